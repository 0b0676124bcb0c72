package natslease

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strconv"

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

	// Lease are the timings. Open sets Node and ID.
	Lease cluster.LeaseConfig

	// Log gets what an operator should know; nil means slog.Default().
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Shards = cmp.Or(c.Shards, 64)
	c.Streams = min(cmp.Or(c.Streams, 4), c.Shards)
	c.Replicas = cmp.Or(c.Replicas, 1)
	c.Lease.Node, c.Lease.ID = c.Node, rand.Text()
	c.Lease = c.Lease.WithDefaults()
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
	for _, problem := range c.Lease.Validate() {
		errs = append(errs, errors.New(problem))
	}
	return errors.Join(errs...)
}

// StreamName returns the name of the g-th store stream.
func StreamName(g int) string { return "DNP_STORE_" + strconv.Itoa(g) }

// open returns the store streams.
func (c *Config) open(ctx context.Context) ([]natsjs.Stream, error) {
	shards := jetstream.Shards{
		Shards:     jetstream.Count{N: c.Shards, Key: "dnprelay-shards", Name: "shards"},
		Streams:    jetstream.Count{N: c.Streams, Key: "dnprelay-store-streams", Name: "store streams"},
		StreamName: StreamName, Subject: c.Subjects.StoreAll,
		Config: natsjs.StreamConfig{
			Description: "dnprelay: who holds which shard, and the keyframes of its states", Replicas: c.Replicas,
			MaxMsgsPerSubject: 1, AllowAtomicPublish: true,
		},
		Features: "one message per subject, atomic batches, message TTLs and no direct get",
	}
	return shards.Open(ctx, c.Conn)
}
