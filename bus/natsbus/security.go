package natsbus

import "github.com/nats-io/nats.go"

// Security is how a connection logs in, and whom it trusts. Everything may be empty.
type Security struct {
	// User and Password are for servers whose URL has none, so that neither has to be
	// written as a URL wants it.
	User, Password string
	// Credentials is the path of a credentials file.
	Credentials string
	// NKey is the path of a file with the seed of an NKey.
	NKey string
	// CA is the path of a PEM file with the authorities that may have signed the server's
	// certificate; those of the system if empty. Cert and Key are the paths of a
	// certificate to show to the server, and of its key.
	CA, Cert, Key string
}

// Options returns the options of the client library. Files are read when a connection
// begins, and at each new one.
func (s Security) Options() (all []nats.Option) {
	if s.User != "" {
		all = append(all, nats.UserInfo(s.User, s.Password))
	}
	if s.Credentials != "" {
		all = append(all, nats.UserCredentials(s.Credentials))
	}
	if s.NKey != "" {
		all = append(all, func(o *nats.Options) error {
			option, err := nats.NkeyOptionFromSeed(s.NKey)
			if err != nil {
				return err
			}
			return option(o)
		})
	}
	if s.CA != "" {
		all = append(all, nats.RootCAs(s.CA))
	}
	if s.Cert != "" {
		all = append(all, nats.ClientCert(s.Cert, s.Key))
	}
	return all
}
