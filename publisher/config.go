package publisher

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
)

// A Config says where NATS is. The zero value of each number stands for its default.
type Config struct {
	// URL is one or more NATS servers with commas; default nats://127.0.0.1:4222. Options
	// are added to the connection: credentials, TLS and so on.
	URL     string
	Options []nats.Option

	// Conn is used instead of URL if it is not nil. The caller closes it, after Close.
	Conn *nats.Conn

	// Prefix begins all subjects; default dnp.v1.
	Prefix string

	// Timeout is for how long an answer is awaited before a publish is said again;
	// default 2 s.
	Timeout time.Duration

	// Retry is the pause before something that failed is said again; default 50 ms. It
	// doubles up to 1 s while nothing succeeds.
	Retry time.Duration

	// Probe is how long a space may hear nothing of its relay before it asks for the
	// epoch, in case the event of a new one was lost; default 5 s.
	Probe time.Duration

	// Window is how many publishes of a space may wait for their answer; default 64.
	// Beyond it changes are collected, and the next publish has the newest.
	Window int

	// StatesMax bounds the states that a space remembers, and likewise the clients whose
	// groups it remembers; default 65,536. More of them are refused: too_large.
	StatesMax int

	// Refused is told of a change that the relay refused and for which nobody waits. It
	// must not block. nil means a line in Log.
	Refused func(space string, err error)

	// Log gets what an operator should know; nil means slog.Default().
	Log *slog.Logger
}

// retryMost is the longest pause. It is a compromise: an election of NATS takes 4 to
// 9 s, and a relay's death 3 s.
const retryMost = time.Second

func (c Config) withDefaults() Config {
	c.URL = cmp.Or(c.URL, nats.DefaultURL)
	c.Timeout = cmp.Or(c.Timeout, 2*time.Second)
	c.Retry = cmp.Or(c.Retry, 50*time.Millisecond)
	c.Probe = cmp.Or(c.Probe, 5*time.Second)
	c.Window = cmp.Or(c.Window, 64)
	c.StatesMax = cmp.Or(c.StatesMax, 65_536)
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Refused == nil {
		log := c.Log
		c.Refused = func(space string, err error) { log.Warn("a change was refused", "space", space, "error", err) }
	}
	return c
}

func (c Config) validate() error {
	if c.Timeout < 0 || c.Retry < 0 || c.Probe < 0 || c.Window < 1 || c.StatesMax < 1 {
		return errors.New("publisher: times and bounds must be positive")
	}
	return nil
}
