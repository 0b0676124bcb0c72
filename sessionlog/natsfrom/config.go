package natsfrom

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/internal/jetstream"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// StreamName is the name of the stream.
const StreamName = "DNP_FROM"

// maxAge is how long game servers may be away. dedupe is how long the stream remembers the ids
// of messages: it costs the server about 200 bytes of memory per message. An edge that publishes
// an older message again was stopped for so long; consumers drop that message by its number.
const (
	maxAge = 10 * time.Minute
	dedupe = 2 * time.Minute
)

// A Config says where the stream is. The zero value of each number stands for its default.
type Config struct {
	// Conn is the connection to NATS. It must keep nothing for later while it is broken
	// (nats.ReconnectBufSize(-1)). The caller closes it after Run has ended.
	Conn *nats.Conn

	// Subjects are the subjects of the deployment.
	Subjects subject.Names

	// Replicas is the number of copies of a stream that Open makes; default 1.
	Replicas int

	InFlight int           // sessions that wait for a confirmation; default 4,096. Further ones wait in a queue
	Timeout  time.Duration // for a confirmation; default 1 s
	Pause    time.Duration // before a failed message is published again; default 100 ms

	// Log gets what an operator should know; nil means slog.Default().
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Replicas = cmp.Or(c.Replicas, 1)
	c.InFlight = cmp.Or(c.InFlight, 4096)
	c.Timeout = cmp.Or(c.Timeout, time.Second)
	c.Pause = cmp.Or(c.Pause, 100*time.Millisecond)
	c.Log = cmp.Or(c.Log, slog.Default())
	return c
}

func (c Config) validate() error {
	switch {
	case c.Conn == nil:
		return errors.New("messages of clients: no connection to NATS")
	case c.Replicas < 1, c.InFlight < 1, c.Timeout < 0, c.Pause < time.Millisecond:
		return errors.New("messages of clients: replicas, bounds and times must be positive")
	}
	return nil
}

// open makes the stream if it does not exist. A stream that exists may have other limits,
// which are the operator's decision.
func (c *Config) open(ctx context.Context) error {
	js, err := natsjs.New(c.Conn)
	if err != nil {
		return fmt.Errorf("JetStream: %w", err)
	}
	want := natsjs.StreamConfig{
		Name: StreamName, Subjects: []string{c.Subjects.FromAll()}, Replicas: c.Replicas, Storage: natsjs.FileStorage,
		Description: "dnprelay: reliable messages of clients", MaxAge: maxAge, Duplicates: dedupe,
	}
	s, err := jetstream.OpenStream(ctx, js, want)
	if err != nil {
		return err
	}
	if got := s.CachedInfo().Config.Subjects; !slices.Equal(got, want.Subjects) {
		return fmt.Errorf("stream %s has the subjects %v, want %v", StreamName, got, want.Subjects)
	}
	return nil
}
