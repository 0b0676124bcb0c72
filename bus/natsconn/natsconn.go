// Package natsconn has the options of a connection to a cluster of NATS servers that leaves a server
// that stands still within about a second.
//
//	nc, err := nats.Connect("nats://a:4222,nats://b:4222,nats://c:4222", natsconn.Options()...)
//
// A stopped process, a frozen machine and a cut network close no connection: the system repeats what it
// could not deliver for minutes. So the connection asks its server every PingInterval. A server that lets
// more than PingsOut questions wait, or does not read for WriteTimeout, has lost its client. The client tries
// the other servers at once and each for AttemptTimeout, before it pauses.
//
// Idle, that costs a connection 4 PING and as many PONG a second, about 1.2 kB/s with the headers of TCP/IP.
package natsconn

import (
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
)

// Times of a connection. A server that stands still is noticed after 2 to 3 PingIntervals. A server and a
// client that share a busy machine may need some 100 ms for an answer.
const (
	PingInterval = 250 * time.Millisecond
	PingsOut     = 2
	WriteTimeout = time.Second

	// AttemptTimeout bounds the time to connect to one server, and again that of its greeting. The
	// system accepts connections for a stopped process.
	AttemptTimeout = time.Second
)

// The pause between reconnects doubles after each round of all servers, from the first to the last
// value. A random part of up to the same length keeps a cluster from reconnecting all at once.
const (
	reconnectFirst = 50 * time.Millisecond
	reconnectLast  = time.Second
)

// Options returns the options. The connection reconnects for ever and buffers nothing meanwhile.
func Options() []nats.Option {
	return []nats.Option{
		nats.Timeout(AttemptTimeout),
		nats.PingInterval(PingInterval),
		nats.MaxPingsOutstanding(PingsOut),
		nats.FlusherTimeout(WriteTimeout),
		nats.MaxReconnects(-1),
		nats.CustomReconnectDelay(ReconnectDelay),
		nats.ReconnectBufSize(-1),
	}
}

// ReconnectDelay returns the pause after n rounds of all servers.
func ReconnectDelay(n int) time.Duration {
	d := reconnectFirst << min(max(n-1, 0), 8)
	d = min(d, reconnectLast)
	return d + rand.N(d)
}
