package natslease

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/jetstream"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Bounds.
const (
	// QueueBytesMax is how many bytes may wait to be stored for one shard; Store refuses
	// more with cluster.ErrQueueFull. A holder then marks the states dirty again, so only
	// time is lost.
	QueueBytesMax = 16 << 20

	// chunkBytesMax is the most that one atomic batch carries in keyframes, unless a single
	// keyframe has more. The largest message of NATS has 1 MiB; a batch could have more,
	// but holds up all other writes of its stream.
	chunkBytesMax = 900 << 10

	// loaders is how many shards are loaded at the same time. Arbitrary.
	loaders = 4
)

// A Config says where the store is and who uses it.
type Config struct {
	// Conn is the connection to NATS. The caller closes it after Run has ended.
	Conn *nats.Conn

	// Subjects are the subjects of the deployment.
	Subjects subject.Names

	// Node is the name of this relay. It must be unique among the relays that run.
	Node string

	// Shards is the number of shards of the deployment; 0 means 64. Streams is the number
	// of streams that hold them; 0 means 4. Both are fixed when the streams are made, and
	// Open refuses others.
	Shards, Streams int

	// Replicas is the number of copies of a stream that Open makes; 0 means 1.
	Replicas int

	// Lease is the configuration of each lease. Open sets Node and ID.
	Lease cluster.LeaseConfig

	// JetStream are options such as a domain.
	JetStream []natsjs.JetStreamOpt

	// Log gets what an operator should know; nil means slog.Default().
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Shards = cmp.Or(c.Shards, 64)
	c.Streams = min(cmp.Or(c.Streams, 4), c.Shards)
	c.Replicas = cmp.Or(c.Replicas, 1)
	c.Lease.Node, c.Lease.ID = c.Node, rand.Text()
	c.Log = cmp.Or(c.Log, slog.Default())
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Conn == nil {
		errs = append(errs, errors.New("lease: no connection to NATS"))
	}
	if c.Shards < 1 || c.Shards > 65_536 || c.Streams < 1 || c.Replicas < 1 {
		errs = append(errs, errors.New("lease: shards must be 1 to 65536, streams and replicas at least 1"))
	}
	return errors.Join(append(errs, c.Lease.Validate())...)
}

// Keys of the metadata of a store stream.
const (
	metaShards  = "dnprelay-shards"
	metaStreams = "dnprelay-store-streams"
)

// StreamName returns the name of the g-th store stream.
func StreamName(g int) string { return "DNP_STORE_" + strconv.Itoa(g) }

// open returns the g-th stream, made if it does not exist, and refuses a stream that this
// relay would have made otherwise.
func (c *Config) open(ctx context.Context, js natsjs.JetStream, g int) (natsjs.Stream, error) {
	want := c.stream(g, time.Now())
	s, err := jetstream.OpenStream(ctx, js, want)
	if err != nil {
		return nil, err
	}
	return s, jetstream.CheckStream(s.CachedInfo().Config, want, "one message per subject, atomic batches, message TTLs and no direct get",
		jetstream.Label{Key: metaShards, Name: "shards"}, jetstream.Label{Key: metaStreams, Name: "store streams"})
}

// stream returns the configuration of the g-th stream. Its first sequence is the time, so
// that epochs do not run backwards when the streams are wiped and made again.
func (c *Config) stream(g int, now time.Time) natsjs.StreamConfig {
	var subjects []string
	for n := g; n < c.Shards; n += c.Streams {
		subjects = append(subjects, c.Subjects.StoreAll(n))
	}
	return natsjs.StreamConfig{
		Name: StreamName(g), Subjects: subjects, Replicas: c.Replicas, Storage: natsjs.FileStorage,
		Description:       "dnprelay: who holds which shard, and the keyframes of its states",
		MaxMsgsPerSubject: 1, AllowAtomicPublish: true, AllowMsgTTL: true, AllowDirect: false,
		FirstSeq: uint64(now.UnixMilli()),
		Metadata: map[string]string{metaShards: strconv.Itoa(c.Shards), metaStreams: strconv.Itoa(c.Streams)},
	}
}
