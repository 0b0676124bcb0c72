package natsbus

import (
	"cmp"
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
