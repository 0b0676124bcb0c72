package natslease

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/lease"
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

	// Silence is the silence of the store after which a relay stops serving; 0 means 12 s.
	Silence time.Duration

	// Format returns the lowest format that all members of the cluster read; see package format. nil stands for the oldest.
	Format func() uint8

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
	start      string // of this process
	streams    []natsjs.Stream
	secrets    []atomic.Pointer[string] // of the streams
	maintainer *jetstream.Maintainer
	requests   *jetstream.Requester
	heard      []heard // of the streams
	lanes      []*lane
	held       []atomic.Uint64 // by shard: the epoch in which this relay holds it, or 0
	queued     []atomic.Int64  // by shard: bytes that wait to be stored
	handle     func(cluster.LeaseEvent)
	loads      []chan load // of the streams
	lists      chan list
	replaced   chan struct{} // closed when another process has the name of this relay
	once       sync.Once
	counts     counters
	unwatched  bool // for tests: no watch brings anything
}

var _ cluster.Leases = (*Leases)(nil)

// answerTimeout is how long an answer is waited for: one that comes late still counts.
const answerTimeout = 12 * time.Second

// Open makes the streams that do not exist, and checks that all are streams of this
// deployment; if they are not, the error wraps jetstream.ErrDeployment, and
// jetstream.ErrReplicas if one has fewer replicas than configured.
func Open(ctx context.Context, cfg Config) (*Leases, error) {
	cfg = cfg.withDefaults()
	store := cfg.store()
	l := &Leases{
		cfg: cfg, start: rand.Text(), secrets: make([]atomic.Pointer[string], cfg.Streams), heard: make([]heard, cfg.Streams),
		held: make([]atomic.Uint64, cfg.Shards), queued: make([]atomic.Int64, cfg.Shards),
		handle: func(cluster.LeaseEvent) {}, replaced: make(chan struct{}), lists: make(chan list, listsMax),
		requests: jetstream.NewRequester(jetstream.RequesterConfig{Conn: cfg.Conn, Timeout: answerTimeout}),
	}
	if err := l.lease(nil).Validate(); err != nil {
		return nil, err
	}
	streams, err := store.Open(ctx, cfg.Conn, cfg.Epochs)
	if err != nil {
		return nil, err
	}
	l.streams = streams
	seen := func(g int, is *natsjs.StreamInfo) {
		secret := store.SecretOf(g, is.Config)
		l.secrets[g].Store(&secret)
	}
	for g, s := range streams {
		info := s.CachedInfo()
		if err := jetstream.CheckReplicas(info.Config, cfg.Replicas); err != nil {
			return nil, err
		}
		seen(g, info)
		l.loads = append(l.loads, make(chan load, cfg.Shards))
		l.lanes = append(l.lanes, newLane(l, g, info.Config.Replicas <= 1))
	}
	l.maintainer = jetstream.NewMaintainer(jetstream.MaintainerConfig{
		Conn: cfg.Conn, Streams: streams, Check: store.Check, Seen: seen, Replaced: l.wiped, Log: cfg.Log,
		Want: func(g int) natsjs.StreamConfig { return store.Stream(g, time.Now(), l.heard[g].highest.Load()) },
	})
	return l, nil
}

// lease returns the configuration of the lease in a stream with these shards.
func (l *Leases) lease(shards []int) lease.Config {
	return lease.Config{Node: l.cfg.Node, Start: l.start, Shards: shards, Format: l.cfg.Format, Draw: cluster.DrawShard, Silence: l.cfg.Silence}
}

// Run works until ctx ends, and then returns whatever NATS does; a consumer that hangs in the
// library ends when the caller closes the connection. Run releases no shard: a relay that
// leaves calls Release before.
func (l *Leases) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { l.requests.Run(ctx) })
	running.Go(func() { l.serveLists(ctx) })
	for _, s := range l.lanes {
		running.Go(func() { s.loop(ctx) })
		if l.unwatched {
			s.put(func(time.Time) { s.lease.Primed() })
		} else {
			running.Go(func() { s.watch(ctx) })
		}
	}
	for _, loads := range l.loads {
		for range loaders {
			running.Go(func() { serveLoads(ctx, loads) })
		}
	}
	running.Wait()
	for _, s := range l.lanes {
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
// node made one that is not of this deployment, or if another process has the name of this relay; the relay must end then.
func (l *Leases) Maintain(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 1)
	go func() { failed <- l.maintainer.Run(ctx) }()
	select {
	case err := <-failed:
		return err
	case <-l.replaced:
		cancel()
		<-failed
		return fmt.Errorf("another relay with the name %q has begun; names of nodes must be unique", l.cfg.Node)
	}
}

// setReplaced has Maintain return. Each stream may say so.
func (l *Leases) setReplaced() { l.once.Do(func() { close(l.replaced) }) }

// OnEvent implements cluster.Leases.
func (l *Leases) OnEvent(handle func(cluster.LeaseEvent)) { l.handle = handle }

func (l *Leases) lane(shard int) *lane { return l.lanes[shard%l.cfg.Streams] }

// Alive implements cluster.Leases.
func (l *Leases) Alive(shard int, open bool) {
	s := l.lane(shard)
	s.put(func(now time.Time) { s.lease.Alive(now, shard, open) })
}

// Release implements cluster.Leases.
func (l *Leases) Release(shard int, epoch uint64, to string) {
	s := l.lane(shard)
	s.put(func(time.Time) { s.lease.Release(shard, epoch, to) })
}

// Fence implements cluster.Leases.
func (l *Leases) Fence(shard int, epoch uint64) {
	l.heard[shard%l.cfg.Streams].hear(epoch)
	if held := l.held[shard].Load(); held == 0 || epoch <= held {
		return
	}
	s := l.lane(shard)
	s.put(func(now time.Time) { s.lease.Fence(now, shard, epoch) })
}

// Store implements cluster.Leases.
func (l *Leases) Store(shard int, epoch uint64, keyframes []cluster.Keyframe, done func(error)) {
	b := &batch{shard: shard, keyframes: keyframes, done: done}
	for _, k := range keyframes {
		if len(k.Data) > cluster.KeyframeBytesMax {
			done(cluster.ErrKeyframeSize)
			return
		}
		b.sizes = append(b.sizes, len(k.Data)+keyframeOverhead)
		b.size += len(k.Data) + keyframeOverhead
	}
	if queued := l.queued[shard].Add(int64(b.size)); queued > QueueBytesMax && queued > int64(b.size) {
		l.queued[shard].Add(-int64(b.size))
		done(cluster.ErrQueueFull)
		return
	}
	s := l.lane(shard)
	if !s.put(func(now time.Time) { s.store(now, epoch, b) }) {
		s.finish(b, cluster.ErrNotHeld)
	}
}

// Load implements cluster.Leases.
func (l *Leases) Load(shard int, epoch uint64, each func([]cluster.Keyframe), done func(error)) {
	g := shard % l.cfg.Streams
	select {
	case l.loads[g] <- load{l: l, shard: shard, epoch: epoch, each: each, done: done, consumers: opener{l: l, g: g}}:
	default:
		done(cluster.ErrQueueFull)
	}
}

// Stats are counters since Open.
type Stats struct {
	Answers                    fence.Counts          // of the store
	Lost                       [lease.Reasons]uint64 // shards that this relay lost, by reason
	Paused                     uint64                // shards that this relay held and had to stop serving, because the store was silent
	Stored                     uint64                // keyframes
	WatchRestarts, LoadRetries uint64
	Replaced                   uint64 // streams that were made again
}

// counters are bumped by many goroutines.
type counters struct {
	answers              jetstream.Verdicts
	lost                 [lease.Reasons]atomic.Uint64
	paused, stored       atomic.Uint64
	watches, loadRetries atomic.Uint64
}

// Stats returns the counters.
func (l *Leases) Stats() Stats {
	c := &l.counts
	s := Stats{Answers: c.answers.Counts(), Paused: c.paused.Load(), Stored: c.stored.Load(), WatchRestarts: c.watches.Load(), LoadRetries: c.loadRetries.Load(), Replaced: l.maintainer.Replaced()}
	for i := range c.lost {
		s.Lost[i] = c.lost[i].Load()
	}
	return s
}
