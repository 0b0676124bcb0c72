package natslog

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Bounds of a read. A log ends its session at 4 MiB without a checkpoint, and a
// checkpoint is at most one message of NATS.
const (
	readEntriesMax = 32_768
	readBytesMax   = 8 << 20
)

// readTime is how long a read may take from its first request. It needs a round trip
// per write since the checkpoint.
const readTime = 2 * time.Second

// finalTTL is how long the end of a session is remembered. It is to outlast every
// write that is still on its way, and every stop of an edge that anybody forgives.
const finalTTL = "10m"

// A Config says where the logs are. The zero value of each number stands for its
// default.
type Config struct {
	// Conn is the connection to NATS. It must keep nothing for later while it is broken
	// (nats.ReconnectBufSize(-1)). The caller closes it after Run has ended.
	Conn *nats.Conn

	// Subjects are those of the deployment.
	Subjects subject.Names

	// Shards is the number of log shards of the deployment, default 64, and Streams
	// that of the streams that they are kept in, default 16. Each stream has its leader
	// at one server, so 16 spread the sessions, and what a dead server interrupts. Both
	// are fixed when the streams are made, and Open refuses others.
	Shards, Streams int

	// Replicas is the number of copies of a stream that does not exist yet; default 1.
	Replicas int

	// MaxAge is how long a write is kept at most; default 24 h. A session that writes
	// nothing for so long loses its log, and one that nobody ended is forgotten then.
	MaxAge time.Duration

	InFlight int           // writes under way; default 4,096
	Queue    int           // writes that wait for that; default 65,536
	Reads    int           // logs that are read at a time; default 128. Others wait, one per session
	Timeout  time.Duration // for an answer; default 500 ms. A client waits for 3 s

	// JetStream options, as a domain.
	JetStream []jetstream.JetStreamOpt

	// Log gets what an operator should know; nil means slog.Default().
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Shards = cmp.Or(c.Shards, 64)
	c.Streams = min(cmp.Or(c.Streams, 16), c.Shards)
	c.Replicas = cmp.Or(c.Replicas, 1)
	c.MaxAge = cmp.Or(c.MaxAge, 24*time.Hour)
	c.InFlight = cmp.Or(c.InFlight, 4096)
	c.Queue = cmp.Or(c.Queue, 65_536)
	c.Reads = cmp.Or(c.Reads, 128)
	c.Timeout = cmp.Or(c.Timeout, 500*time.Millisecond)
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Conn == nil {
		errs = append(errs, errors.New("session log: no connection to NATS"))
	}
	if c.Shards < 1 || c.Shards > 65_536 || c.Streams < 1 || c.Replicas < 1 {
		errs = append(errs, errors.New("session log: shards must be 1 to 65536, streams and replicas at least 1"))
	}
	if c.InFlight < 1 || c.Queue < 1 || c.Reads < 1 || c.Timeout < 0 || c.MaxAge < time.Hour {
		errs = append(errs, errors.New("session log: bounds and timeouts must be positive, the age at least an hour"))
	}
	return errors.Join(errs...)
}
