package natsask

import (
	"cmp"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
)

// Errors of a request.
var (
	// ErrNotSent says that nobody has received the request or ever will: there is no
	// connection, nobody listens, it is too large, or too much waits.
	ErrNotSent = errors.New("the request was not sent")

	// ErrNoAnswer says that no answer came. The request may have been carried out, or
	// be carried out later.
	ErrNoAnswer = errors.New("the request was not answered")
)

// A Config bounds what is under way. The zero value of each number stands for its
// default.
type Config struct {
	// Conn is the connection. It must keep nothing for later while it is broken
	// (nats.ReconnectBufSize(-1)); a request that leaves long after it was given up is
	// wasted at best.
	Conn *nats.Conn

	InFlight int           // requests that wait for an answer; default 4,096. More wait here
	Queue    int           // requests that wait to be sent; default 65,536. More are refused
	Bytes    int           // of both; default 64 MiB
	Timeout  time.Duration // for each of the two waits; default 500 ms
}

func (c Config) withDefaults() Config {
	c.InFlight = cmp.Or(c.InFlight, 4096)
	c.Queue = cmp.Or(c.Queue, 65_536)
	c.Bytes = cmp.Or(c.Bytes, 64<<20)
	c.Timeout = cmp.Or(c.Timeout, 500*time.Millisecond)
	return c
}

// sendBatch is how many requests are taken out of the queue at a time. Those are
// already counted as sent, so fewer is more exact when a connection blocks. Arbitrary.
const sendBatch = 64

// ticksPerTimeout is how exactly the timeout is kept.
const ticksPerTimeout = 16
