package natslease

import (
	"cmp"
	"crypto/rand"
	"errors"
	"log/slog"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Bounds.
const (
	// QueueBytesMax is how many bytes may wait to be stored for one shard; more is
	// refused with cluster.ErrQueueFull. A holder that is told so marks the states
	// dirty again, so nothing is lost but time.
	QueueBytesMax = 16 << 20

	// chunkBytesMax is the most that one atomic batch carries in keyframes, unless
	// a single one has more. The largest message of NATS has 1 MiB; a batch could
	// have more, but holds up all other writes of its stream.
	chunkBytesMax = 900 << 10

	// loaders is how many shards are loaded at the same time. Arbitrary.
	loaders = 4
)

// A Config says where the store is and who asks.
type Config struct {
	// Conn is the connection to NATS. The caller closes it after Run has ended.
	Conn *nats.Conn

	// Subjects are those of the deployment.
	Subjects subject.Names

	// Node is the name of this relay. It must be unique among those that run.
	Node string

	// Shards is the number of shards of the deployment; 0 means 64. Streams is the
	// number of streams that they are kept in; 0 means 4. Both are fixed when the
	// streams are made, and Open refuses others.
	Shards, Streams int

	// Replicas is the number of copies of a stream that does not exist yet; 0 means
	// 1.
	Replicas int

	// Lease are the timings. Node and ID are set by Open.
	Lease cluster.LeaseConfig

	// JetStream options, as a domain.
	JetStream []jetstream.JetStreamOpt

	// Log gets what an operator should know; nil means slog.Default().
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Shards = cmp.Or(c.Shards, 64)
	c.Streams = min(cmp.Or(c.Streams, 4), c.Shards)
	c.Replicas = cmp.Or(c.Replicas, 1)
	c.Lease.Node, c.Lease.ID = c.Node, rand.Text()
	c.Lease = c.Lease.WithDefaults()
	if c.Log == nil {
		c.Log = slog.Default()
	}
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
