package natsbus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
)

// Bounds and intervals that hold where Config says nothing. The numbers are
// arbitrary: large enough never to be met by a node that keeps up.
const (
	defaultOutgoingBytes   = 8 << 20
	defaultPendingMessages = 65536
	defaultPendingBytes    = 64 << 20
	defaultRequestsMax     = 65536
	defaultTimeout         = 2 * time.Second
	defaultPingInterval    = time.Second
)

// Reconnects wait from the first to the last pause, doubling each time round
// all servers, plus up to as much again so that a cluster does not come at once.
const (
	reconnectFirst = 50 * time.Millisecond
	reconnectLast  = time.Second
)

// A Config says where the servers are and what may be held in memory.
type Config struct {
	// URL is a server or several joined by commas; nats://127.0.0.1:4222 if empty.
	URL string
	// InProcess, if set, is a server in this process, which is used instead of URL.
	InProcess nats.InProcessConnProvider
	// Name is shown by the server's monitoring.
	Name string
	Security
	// InboxPrefix begins the subjects on which answers come; _INBOX if empty.
	InboxPrefix string

	// Timeout is how long one attempt to connect may take; 0 means 2 s.
	Timeout time.Duration
	// PingInterval is how often a silent server is asked for a sign of life; after
	// two without answer the connection counts as lost, because another server may be
	// within reach and TCP alone would try for minutes. 0 means 1 s.
	PingInterval time.Duration

	// OutgoingBytes bounds the outgoing queue; a Publish beyond it is dropped with
	// ErrBusBusy. 0 means 8 MiB.
	OutgoingBytes int
	// PendingMessages and PendingBytes bound what waits for the handler of one
	// subscription; what is beyond is dropped and counted as Missed. 0 means
	// 65,536 messages and 64 MiB.
	PendingMessages, PendingBytes int
	// RequestsMax bounds the requests that wait for answers; one beyond it ends
	// with ErrBusBusy. 0 means 65,536.
	RequestsMax int

	// OnError, if set, is told what went wrong without anybody having asked: a
	// refused subscription, a subscription that is too slow. It must not block.
	OnError func(error)

	// Options are passed on to the client library, for TLS and the like.
	Options []nats.Option
}

func (c Config) withDefaults() Config {
	c.URL = cmp.Or(c.URL, nats.DefaultURL)
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	c.PingInterval = cmp.Or(c.PingInterval, defaultPingInterval)
	c.OutgoingBytes = cmp.Or(c.OutgoingBytes, defaultOutgoingBytes)
	c.PendingMessages = cmp.Or(c.PendingMessages, defaultPendingMessages)
	c.PendingBytes = cmp.Or(c.PendingBytes, defaultPendingBytes)
	c.RequestsMax = cmp.Or(c.RequestsMax, defaultRequestsMax)
	if c.OnError == nil {
		c.OnError = func(error) {}
	}
	return c
}

func (c Config) options() []nats.Option {
	all := []nats.Option{
		nats.Name(c.Name),
		nats.Timeout(c.Timeout),
		nats.PingInterval(c.PingInterval),
		nats.MaxPingsOutstanding(2),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(), // credentials may come back; a node that serves players does not give up
		nats.CustomReconnectDelay(reconnectDelay),
		nats.ReconnectBufSize(-1), // nothing is kept for later, see the package comment
		nats.NoCallbacksAfterClientClose(),
	}
	if c.InboxPrefix != "" {
		all = append(all, nats.CustomInboxPrefix(c.InboxPrefix))
	}
	all = append(all, c.Security.Options()...)
	if c.InProcess != nil {
		all = append(all, nats.InProcessServer(c.InProcess))
	}
	return append(all, c.Options...)
}

// reconnectDelay returns the pause after all servers were tried for the n-th time.
func reconnectDelay(n int) time.Duration {
	d := reconnectFirst << min(max(n-1, 0), 8)
	d = min(d, reconnectLast)
	return d + rand.N(d)
}

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

// How often Dial tries, and says that it still tries.
const (
	dialPause    = 500 * time.Millisecond
	dialPauseBad = 5 * time.Second // after credentials that the server refused, which it may log
	dialReport   = time.Minute
)

// Dial connects, and tries again until timeout has passed; 0 means for ever. It
// logs one line when it has to wait, and one a minute. Refused credentials end it
// at once, unless it is to wait for ever: then somebody may change what the server
// takes, and ending would only have it started again.
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
			log.Warn("NATS is not there, trying again", "error", err)
			reported = time.Now()
		}
		pause := dialPause
		if bad {
			pause = dialPauseBad
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}
