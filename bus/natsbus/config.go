package natsbus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/bus/natsconn"
	"github.com/dnprelay/dnprelay/internal/turn"
	"github.com/nats-io/nats.go"
)

// pendingBytes bounds the bytes that wait for the handler of one subscription.
const pendingBytes = 64 << 20

// A Config names the servers and bounds the memory. The default bounds are arbitrary: a node
// that keeps up never reaches them.
type Config struct {
	// URL is one server, or several joined by commas; nats://127.0.0.1:4222 if empty.
	URL string
	// InProcess, if set, is a server in this process, which is used instead of URL.
	InProcess nats.InProcessConnProvider
	// Name identifies the connection in the server's monitoring.
	Name string
	Security
	// InboxPrefix begins the subjects of answers; _INBOX if empty.
	InboxPrefix string
	// PeerInbox, if set, begins the subjects of answers to requests whose Msg.Reply is PeerInbox.
	PeerInbox string
	// MayAnswer, if set, says whether a received message may be answered on the subject that it
	// names. Handlers get any other message without that subject, counted in Errors.
	MayAnswer func(reply string) bool

	// OutgoingBytes bounds the outgoing queue; a Publish beyond it is dropped with ErrBusy. 0
	// means 8 MiB.
	OutgoingBytes int
	// PendingMessages bounds the messages that wait for the handler of one subscription;
	// pendingBytes bounds their bytes. Messages beyond that are dropped and counted as Missed. 0
	// means 65,536.
	PendingMessages int
	// RequestsMax bounds the requests that wait for answers; one beyond it ends with ErrBusy. 0
	// means 65,536.
	RequestsMax int

	// ReadEvery, if not 0, is for how long a received message may wait for others, so that fewer reads bring them: see
	// natsconn.ReadEvery.
	ReadEvery time.Duration

	// Options come behind those that the other fields and natsconn make.
	Options []nats.Option

	// OnError, if set, is called with errors that belong to no call: a refused subscription, a
	// slow handler. It must not block.
	OnError func(error)
}

func (c Config) withDefaults() Config {
	c.URL = cmp.Or(c.URL, nats.DefaultURL)
	c.OutgoingBytes = cmp.Or(c.OutgoingBytes, 8<<20)
	c.PendingMessages = cmp.Or(c.PendingMessages, 65_536)
	c.RequestsMax = cmp.Or(c.RequestsMax, 65_536)
	if c.OnError == nil {
		c.OnError = func(error) {}
	}
	return c
}

func (c Config) options() []nats.Option {
	all := append(natsconn.Options(),
		nats.Name(c.Name),
		nats.IgnoreAuthErrorAbort(), // the credentials may become valid again, and a node with players does not give up
		nats.NoCallbacksAfterClientClose(),
	)
	if c.InboxPrefix != "" {
		all = append(all, nats.CustomInboxPrefix(c.InboxPrefix))
	}
	all = append(all, c.Security.Options()...)
	if c.ReadEvery > 0 {
		all = append(all, natsconn.ReadEvery(c.ReadEvery))
	}
	if c.InProcess != nil {
		all = append(all, nats.InProcessServer(c.InProcess))
	}
	return append(all, c.Options...)
}

// Security says how a connection authenticates, and which servers it trusts. Every field may be
// empty.
type Security struct {
	// User and Password are for a server whose URL has neither, so that they need no escaping.
	User, Password string
	// Credentials is the path of a credentials file of NATS, or of a file with the one line USER:PASSWORD.
	Credentials string
	// NKey is the path of a file with the seed of an NKey.
	NKey string
	// CA is the path of a PEM file with the authorities that may sign the server's certificate;
	// those of the system if empty. Cert and Key are the paths of the client certificate and
	// its key.
	CA, Cert, Key string
}

// Options returns the options of the client library. It reads the files at each new connection, so that a credential changes
// without a restart. An NKey does not: the file may move, and its key has to stay that of the first connection.
func (s Security) Options() (all []nats.Option) {
	if s.User != "" {
		all = append(all, nats.UserInfo(s.User, s.Password))
	}
	if _, _, err := login(s.Credentials); err == nil {
		all = append(all, nats.UserInfoHandler(func() (user, password string) {
			user, password, _ = login(s.Credentials) // without a file the server refuses, and the client comes again
			return user, password
		}))
	} else if s.Credentials != "" {
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

// login returns the user and the password of a file with the one line USER:PASSWORD.
func login(file string) (user, password string, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", "", err
	}
	user, password, ok := strings.Cut(strings.TrimSpace(string(text)), ":")
	if !ok || user == "" || password == "" || strings.ContainsAny(user+password, "\r\n") {
		return "", "", errors.New("want one line, USER:PASSWORD")
	}
	return user, password, nil
}

// CheckCredentials returns what is wrong with a file of credentials.
func CheckCredentials(file string) error {
	if _, _, err := login(file); err == nil {
		return nil
	}
	o := nats.GetDefaultOptions()
	if err := nats.UserCredentials(file)(&o); err != nil {
		return fmt.Errorf("%s has no credentials, and not the one line USER:PASSWORD: %w", file, err)
	}
	if _, err := o.SignatureCB([]byte("nonce")); err != nil {
		return fmt.Errorf("%s has no usable seed: %w", file, err)
	}
	return nil
}

// CheckNKey returns what is wrong with a file for the seed of an NKey.
func CheckNKey(file string) error {
	if _, err := nats.NkeyOptionFromSeed(file); err != nil {
		return fmt.Errorf("%s has no seed of a user: %w", file, err)
	}
	return nil
}

// CheckCA returns what is wrong with a file of authorities.
func CheckCA(file string) error {
	o := nats.GetDefaultOptions()
	if err := nats.RootCAs(file)(&o); err != nil {
		return fmt.Errorf("%s has no certificates: %w", file, err)
	}
	if _, err := o.RootCAsCB(); err != nil {
		return fmt.Errorf("%s has no certificates: %w", file, err)
	}
	return nil
}

// CheckCert returns what is wrong with the files of a client certificate and its key.
func CheckCert(cert, key string) error {
	o := nats.GetDefaultOptions()
	if err := nats.ClientCert(cert, key)(&o); err != nil {
		return fmt.Errorf("%s and %s: %w", cert, key, err)
	}
	if _, err := o.TLSCertCB(); err != nil {
		return fmt.Errorf("%s and %s: %w", cert, key, err)
	}
	return nil
}

// Intervals of the attempts and reports of Dial.
const (
	dialPause    = 500 * time.Millisecond
	dialPauseBad = 5 * time.Second // after refused credentials, which the server may log
	dialReport   = time.Minute
)

// Dial connects, and retries until timeout has passed; 0 means for ever. It logs a warning when
// it has to wait, and then one a minute. Refused credentials end it at once, unless timeout is
// 0: then an operator may correct the server, and ending would only restart the process.
func Dial(ctx context.Context, cfg Config, timeout time.Duration, log *slog.Logger) (*Bus, error) {
	start, reported := time.Now(), time.Time{}
	for {
		bus, err := Connect(cfg)
		bad := errors.Is(err, ErrCredentials)
		if err == nil || bad && timeout > 0 {
			return bus, err
		}
		if timeout > 0 && time.Since(start) >= timeout {
			return nil, fmt.Errorf("gave up after %v: %w", timeout, err)
		}
		if time.Since(reported) >= dialReport {
			log.Warn("cannot connect to NATS, trying again", "error", err)
			reported = time.Now()
		}
		pause := dialPause
		if bad {
			pause = dialPauseBad
		}
		if !turn.Pause(ctx, pause) {
			return nil, ctx.Err()
		}
	}
}
