package natslog

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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

// readTimeout bounds a read from its first request on. A read takes a round trip for each
// write since the checkpoint.
const readTimeout = 2 * time.Second

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
	// number of streams that hold them, default 16. Each stream has its leader at one
	// server, so 16 streams spread the load and what a dead server interrupts. Both
	// numbers are fixed when the streams are made, and Open refuses others.
	Shards, Streams int

	// Replicas is the number of copies of a stream that Open makes; default 1.
	Replicas int

	// MaxAge is how long the stream keeps a write at most; default 24 h. A session that
	// writes nothing for so long loses its log, and a session that was never closed is
	// forgotten then.
	MaxAge time.Duration

	InFlight int           // writes that wait for an answer; default 4,096
	Queue    int           // writes that wait to be sent; default 65,536
	Reads    int           // reads under way; default 128. Others wait, one for each session
	Timeout  time.Duration // for an answer; default 500 ms. A client waits for 3 s

	// JetStream are options such as a domain.
	JetStream []natsjs.JetStreamOpt

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
	if c.InFlight < 1 || c.Queue < 1 || c.Reads < 1 || c.Timeout < 0 || c.MaxAge < time.Hour {
		errs = append(errs, errors.New("session log: bounds and timeouts must be positive, the age at least an hour"))
	}
	return errors.Join(errs...)
}

// Keys of the metadata of a log stream.
const (
	metaShards  = "dnprelay-log-shards"
	metaStreams = "dnprelay-log-streams"
	metaSecret  = "dnprelay-log-secret" // of the first stream: the key of the hash that names logs
)

// StreamName returns the name of the g-th log stream.
func StreamName(g int) string { return "DNP_LOG_" + strconv.Itoa(g) }

// open makes the g-th stream if it does not exist, and refuses a stream that this edge would
// have made otherwise.
func (c *Config) open(ctx context.Context, js natsjs.JetStream, g int) (natsjs.StreamConfig, error) {
	want := c.stream(g, time.Now())
	s, err := jetstream.OpenStream(ctx, js, want)
	if err != nil {
		return natsjs.StreamConfig{}, err
	}
	got := s.CachedInfo().Config
	if g == 0 && got.Metadata[metaSecret] == "" {
		return got, fmt.Errorf("%w: stream %s has no secret", jetstream.ErrDeployment, got.Name)
	}
	return got, jetstream.CheckStream(got, want, "rollups, message TTLs, no limit of messages per subject and no direct get",
		jetstream.Label{Key: metaShards, Name: "log shards"}, jetstream.Label{Key: metaStreams, Name: "log streams"})
}

// stream returns the configuration of the g-th stream.
//
// It has no limit of messages per subject, because such a limit would delete the checkpoint
// that a log begins with; checkpoints themselves delete what precedes them. The first sequence
// is the time, so that sequences do not run backwards when the streams are wiped and made
// again: the store then refuses a write that expects an old sequence.
func (c *Config) stream(g int, now time.Time) natsjs.StreamConfig {
	var subjects []string
	for n := g; n < c.Shards; n += c.Streams {
		subjects = append(subjects, c.Subjects.LogAll(n))
	}
	meta := map[string]string{metaShards: strconv.Itoa(c.Shards), metaStreams: strconv.Itoa(c.Streams)}
	if g == 0 {
		meta[metaSecret] = rand.Text()
	}
	return natsjs.StreamConfig{
		Name: StreamName(g), Subjects: subjects, Replicas: c.Replicas, Storage: natsjs.FileStorage,
		Description: "dnprelay: the logs of sessions", MaxAge: c.MaxAge,
		MaxMsgsPerSubject: -1, AllowRollup: true, AllowMsgTTL: true, AllowDirect: false,
		FirstSeq: uint64(now.UnixMilli()),
		Metadata: meta,
	}
}
