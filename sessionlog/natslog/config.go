package natslog

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/internal/jetstream"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Bounds of a read. A log ends its session at 4 MiB without a checkpoint, and a checkpoint is
// at most one message of NATS.
const (
	readEntriesMax = 32_768
	readBytesMax   = 8 << 20
)

// reads is how many reads are under way; others wait, one for each session.
const reads = 128

// readTimeout bounds a read from its first request on. A read takes a round trip for each
// write since the checkpoint.
const readTimeout = 2 * time.Second

// maxAge is how long a stream keeps a write at most. A session that writes nothing for so long
// loses its log, and a session that was never closed is forgotten then.
const maxAge = 24 * time.Hour

// closedTTL is how long the stream remembers the end of a session. It must outlast every
// write that is on its way, and every stop of an edge after which its clients live on.
const closedTTL = "10m"

// A Config says where the logs are. The zero value of each number stands for its default.
type Config struct {
	// Conn is the connection to NATS. It must keep nothing for later while it is broken
	// (nats.ReconnectBufSize(-1)). The caller closes it after Run has ended.
	Conn *nats.Conn

	// Subjects are the subjects of the deployment.
	Subjects subject.Names

	// Shards is the number of log shards of the deployment, default 64. Streams is the
	// number of streams that hold them, default 16. Both numbers are fixed when the streams
	// are made, and Open refuses others.
	Shards, Streams int

	// Replicas is the number of copies of a stream that Open makes; default 1.
	Replicas int

	InFlight int           // writes that wait for an answer; default 4,096
	Queue    int           // writes that wait to be sent; default 65,536
	Timeout  time.Duration // for an answer; default 500 ms. A client waits for 3 s

	// Log gets what an operator should know; nil means slog.Default().
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Shards = cmp.Or(c.Shards, 64)
	c.Streams = min(cmp.Or(c.Streams, 16), c.Shards)
	c.Replicas = cmp.Or(c.Replicas, 1)
	c.InFlight = cmp.Or(c.InFlight, 4096)
	c.Queue = cmp.Or(c.Queue, 65_536)
	c.Timeout = cmp.Or(c.Timeout, 500*time.Millisecond)
	c.Log = cmp.Or(c.Log, slog.Default())
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
	if c.InFlight < 1 || c.Queue < 1 || c.Timeout < 0 {
		errs = append(errs, errors.New("session log: bounds and timeouts must be positive"))
	}
	return errors.Join(errs...)
}

// metaSecret is the metadata key of the key of the hash that names logs.
const metaSecret = "dnprelay-log-secret"

// StreamName returns the name of the g-th log stream.
func StreamName(g int) string { return "DNP_LOG_" + strconv.Itoa(g) }

// open returns the log streams. They have no limit of messages per subject, because such a
// limit would delete the checkpoint that a log begins with; checkpoints themselves delete what
// precedes them.
func (c *Config) open(ctx context.Context) ([]natsjs.Stream, error) {
	shards := jetstream.Shards{
		Shards:     jetstream.Count{N: c.Shards, Key: "dnprelay-log-shards", Name: "log shards"},
		Streams:    jetstream.Count{N: c.Streams, Key: "dnprelay-log-streams", Name: "log streams"},
		StreamName: StreamName, Subject: c.Subjects.LogAll, Secret: metaSecret,
		Config: natsjs.StreamConfig{
			Description: "dnprelay: the logs of sessions", Replicas: c.Replicas,
			MaxAge: maxAge, MaxMsgsPerSubject: -1, AllowRollup: true,
		},
		Features: "rollups, message TTLs, no limit of messages per subject and no direct get",
	}
	return shards.Open(ctx, c.Conn)
}
