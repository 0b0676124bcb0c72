package natslease

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/fence"
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

	// loaders is how many shards of a stream are loaded at the same time. Each stream has its own, because a stream
	// whose server does not answer must not keep the shards of others waiting. Arbitrary.
	loaders = 2
)

// A Config says where the store is and who uses it.
type Config struct {
	// Conn is the connection to NATS. The caller closes it after Run has ended.
	Conn *nats.Conn

	// Subjects are the subjects of the deployment.
	Subjects subject.Names

	// Node is the name of this relay. It must be unique among the relays that run.
	Node string

	// Shards is the number of shards of the deployment, at most 65,536; 0 means 64. Streams is
	// the number of streams that hold them; 0 means 4. Both are fixed when the streams are
	// made, and Open refuses others.
	Shards, Streams int

	// Replicas is the number of copies of a stream that Open makes; 0 means 1.
	Replicas int

	// Lease is the configuration of each lease. Open sets Node and ID.
	Lease cluster.LeaseConfig

	// Epochs returns the highest epoch that holders name on the bus. Open calls it before it
	// makes a stream: relays that run may know a former one. nil means that there are none.
	Epochs func() uint64

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

// StreamName returns the name of the g-th store stream.
func StreamName(g int) string { return "DNP_STORE_" + strconv.Itoa(g) }

// store describes the store streams.
func (c *Config) store() jetstream.Shards {
	s := c.Subjects
	return jetstream.Shards{
		Shards:     jetstream.Count{N: c.Shards, Key: "dnprelay-shards", Name: "shards"},
		Streams:    jetstream.Count{N: c.Streams, Key: "dnprelay-store-streams", Name: "store streams"},
		StreamName: StreamName,
		Seal: &jetstream.Seal{
			Key:     "dnprelay-store-secret",
			Subject: func(n int, secret string) string { return s.StoreInput(s.StoreAll(n), secret) },
			Remove: func(secret string) (from, to string) {
				m := s.StoreInputs(secret)
				return m.From, m.To
			},
		},
		Config: natsjs.StreamConfig{
			Description: "dnprelay: who holds which shard, and the keyframes of its states", Replicas: c.Replicas,
			MaxMsgsPerSubject: 1, AllowAtomicPublish: true,
		},
		Features: "one message per subject, atomic batches, message TTLs and no direct get",
	}
}

// Leases is cluster.Leases over JetStream. Make it with Open, call OnEvent, then Run once.
type Leases struct {
	cfg        Config
	streams    []natsjs.Stream
	secrets    []atomic.Pointer[string] // of the streams
	maintainer *jetstream.Maintainer
	heard      []heard // of the streams
	shards     []*shard
	handle     func(cluster.LeaseEvent)
	loads      []chan load // of the streams
	counts     counters
	unwatched  bool // for tests: no watch brings anything
}

var _ cluster.Leases = (*Leases)(nil)

// Open makes the streams that do not exist, and checks that all are streams of this
// deployment; if they are not, the error wraps jetstream.ErrDeployment, and
// jetstream.ErrReplicas if one has fewer replicas than configured.
func Open(ctx context.Context, cfg Config) (*Leases, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Lease.Validate(); err != nil {
		return nil, err
	}
	store := cfg.store()
	streams, err := store.Open(ctx, cfg.Conn, cfg.Epochs)
	if err != nil {
		return nil, err
	}
	for _, s := range streams {
		if err := jetstream.CheckReplicas(s.CachedInfo().Config, cfg.Replicas); err != nil {
			return nil, err
		}
	}
	l := &Leases{
		cfg: cfg, streams: streams, secrets: make([]atomic.Pointer[string], cfg.Streams), heard: make([]heard, cfg.Streams),
		handle: func(cluster.LeaseEvent) {},
	}
	for range streams {
		l.loads = append(l.loads, make(chan load, cfg.Shards))
	}
	seen := func(g int, is *natsjs.StreamInfo) {
		secret := store.SecretOf(g, is.Config)
		l.secrets[g].Store(&secret)
	}
	for g, s := range streams {
		seen(g, s.CachedInfo())
	}
	l.maintainer = jetstream.NewMaintainer(jetstream.MaintainerConfig{
		Conn: cfg.Conn, Streams: streams, Check: store.Check, Seen: seen, Replaced: l.replaced, Log: cfg.Log,
		Want: func(g int) natsjs.StreamConfig { return store.Stream(g, time.Now(), l.heard[g].highest.Load()) },
	})
	for n := range cfg.Shards {
		l.shards = append(l.shards, newShard(l, n))
	}
	return l, nil
}

// Run works until ctx ends, and then returns whatever NATS does; a consumer that hangs in the
// library ends when the caller closes the connection. Run releases no shard: a relay that
// leaves calls Release before.
func (l *Leases) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, s := range l.shards {
		running.Go(func() { s.loop(ctx) })
		running.Go(func() { s.serveStore(ctx) })
	}
	if !l.unwatched {
		for g := range l.streams {
			running.Go(func() { l.watch(ctx, g) })
		}
	}
	if hints, err := l.cfg.Conn.Subscribe(l.cfg.Subjects.OwnAll(), l.hinted); err == nil { // otherwise the watches must do
		defer func() { _ = hints.Unsubscribe() }()
	}
	for _, loads := range l.loads {
		for range loaders {
			running.Go(func() { serveLoads(ctx, loads) })
		}
	}
	running.Wait()
	for _, s := range l.shards {
		s.end()
	}
	for _, loads := range l.loads {
		for len(loads) > 0 {
			d := <-loads
			d.done(cluster.ErrNotHeld)
		}
	}
}

// Maintain makes the streams again that are deleted, until ctx ends. It returns an error if another
// node made one that is not of this deployment; the relay must end then.
func (l *Leases) Maintain(ctx context.Context) error { return l.maintainer.Run(ctx) }

// OnEvent implements cluster.Leases.
func (l *Leases) OnEvent(handle func(cluster.LeaseEvent)) { l.handle = handle }

// Want implements cluster.Leases.
func (l *Leases) Want(shard int, rank int) {
	l.shards[shard].put(func(in *inbox) { in.rank, in.wanted = rank, true })
}

// Release implements cluster.Leases.
func (l *Leases) Release(shard int, epoch uint64, to string) {
	l.shards[shard].put(func(in *inbox) { in.release, in.successor = epoch, to })
}

// Fence implements cluster.Leases.
func (l *Leases) Fence(shard int, epoch uint64) {
	l.heard[shard%l.cfg.Streams].hear(epoch)
	l.shards[shard].put(func(in *inbox) { in.fence = max(in.fence, epoch) })
}

// Store implements cluster.Leases.
func (l *Leases) Store(shard int, epoch uint64, batch []cluster.Keyframe, done func(error)) {
	size := 0
	for _, k := range batch {
		if len(k.Data) > cluster.KeyframeBytesMax {
			done(cluster.ErrKeyframeSize)
			return
		}
		size += len(k.Data) + keyframeOverhead
	}
	s := l.shards[shard]
	if queued := s.queued.Add(int64(size)); queued > QueueBytesMax && queued > int64(size) {
		s.queued.Add(-int64(size))
		done(cluster.ErrQueueFull)
		return
	}
	b := &pendingBatch{epoch: epoch, rest: batch, size: size, done: done}
	if !s.put(func(in *inbox) { in.batches = append(in.batches, b) }) {
		done(cluster.ErrNotHeld)
	}
}

// Load implements cluster.Leases.
func (l *Leases) Load(shard int, epoch uint64, each func([]cluster.Keyframe), done func(error)) {
	g := shard % l.cfg.Streams
	select {
	case l.loads[g] <- load{shard: l.shards[shard], epoch: epoch, each: each, done: done, consumers: opener{l: l, g: g}}:
	default:
		done(cluster.ErrQueueFull)
	}
}

func (l *Leases) stream(shard int) natsjs.Stream { return l.streams[shard%l.cfg.Streams] }

// Stats are counters since Open.
type Stats struct {
	Answers                    fence.Counts            // of the store
	Lost                       [cluster.Reasons]uint64 // shards that this relay lost, by reason
	Stored                     uint64                  // keyframes
	WatchRestarts, LoadRetries uint64
	Replaced                   uint64 // streams that were made again
}

// counters are bumped by many goroutines.
type counters struct {
	answers              jetstream.Verdicts
	lost                 [cluster.Reasons]atomic.Uint64
	stored, batches      atomic.Uint64
	watches, loadRetries atomic.Uint64
}

// Stats returns the counters.
func (l *Leases) Stats() Stats {
	c := &l.counts
	s := Stats{Answers: c.answers.Counts(), Stored: c.stored.Load(), WatchRestarts: c.watches.Load(), LoadRetries: c.loadRetries.Load(), Replaced: l.maintainer.Replaced()}
	for i := range c.lost {
		s.Lost[i] = c.lost[i].Load()
	}
	return s
}
