package natslease

import (
	"context"
	"fmt"
	"sync"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/nats-io/nats.go/jetstream"
)

// Leases is cluster.Leases over JetStream. Make it with Open, call OnEvent, then
// Run once.
type Leases struct {
	cfg     Config
	streams []jetstream.Stream
	js      jetstream.JetStream
	shards  []*shard
	handle  func(cluster.LeaseEvent)
	loads   chan load
	counts  counters
	deaf    bool // for tests: no watch brings anything
}

var _ cluster.Leases = (*Leases)(nil)

// Open makes the streams, if they do not exist, and checks that they are those of
// this deployment; the error wraps ErrDeployment if they are not.
func Open(ctx context.Context, cfg Config) (*Leases, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	js, err := jetstream.New(cfg.Conn, cfg.JetStream...)
	if err != nil {
		return nil, fmt.Errorf("JetStream: %w", err)
	}
	l := &Leases{cfg: cfg, js: js, handle: func(cluster.LeaseEvent) {}, loads: make(chan load, cfg.Shards)}
	for g := range cfg.Streams {
		s, err := cfg.open(ctx, js, g)
		if err != nil {
			return nil, err
		}
		l.streams = append(l.streams, s)
	}
	for n := range cfg.Shards {
		l.shards = append(l.shards, newShard(l, n))
	}
	return l, nil
}

// Run does the work until ctx ends. It gives nothing up: a relay that leaves
// calls Release before.
func (l *Leases) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, s := range l.shards {
		running.Go(func() { s.loop(ctx) })
		running.Go(func() { s.serve(ctx) })
	}
	if !l.deaf {
		for g := range l.streams {
			running.Go(func() { l.watch(ctx, g) })
		}
	}
	if hints, err := l.cfg.Conn.Subscribe(l.cfg.Subjects.OwnAll(), l.hinted); err == nil { // else the watches have to do
		defer func() { _ = hints.Unsubscribe() }()
	}
	for range loaders {
		running.Go(func() { l.serveLoads(ctx) })
	}
	running.Wait()
	for _, s := range l.shards {
		s.end()
	}
	for {
		select {
		case d := <-l.loads:
			d.done(cluster.ErrNotHeld)
		default:
			return
		}
	}
}

// OnEvent implements cluster.Leases.
func (l *Leases) OnEvent(handle func(cluster.LeaseEvent)) { l.handle = handle }

// Want implements cluster.Leases.
func (l *Leases) Want(shard int, want bool) {
	l.shards[shard].put(func(in *inbox) { in.want, in.wanted = want, true })
}

// Release implements cluster.Leases.
func (l *Leases) Release(shard int, epoch uint64, to string) {
	l.shards[shard].put(func(in *inbox) { in.release, in.to = epoch, to })
}

// Fence implements cluster.Leases.
func (l *Leases) Fence(shard int, epoch uint64) {
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
	select {
	case l.loads <- load{shard: l.shards[shard], epoch: epoch, each: each, done: done}:
	default:
		done(cluster.ErrQueueFull)
	}
}
