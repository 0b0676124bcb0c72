package natslease

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/turn"
)

// keyframeOverhead is what a keyframe counts beside its data: subject, headers and
// bookkeeping, generously.
const keyframeOverhead = 256

// A shard is one shard as this relay sees it. Its lease and the fields below belong to the
// goroutine in loop.
type shard struct {
	l *Leases
	n int

	wake   turn.Wake     // in has something
	ops    chan op       // for the goroutine in serveStore; holds one at most, as the lease has it
	queued atomic.Int64  // bytes in batches
	held   atomic.Uint64 // epoch; 0 if this relay does not hold the shard

	// Every goroutine may put something into the inbox, and loop empties it. It does not
	// grow, because newer values replace older ones; a channel could not do that.
	mu    sync.Mutex
	in    inbox
	ended bool

	lease      *cluster.Lease
	batches    []*pendingBatch // the first is being stored, if chunk is not empty
	chunk      []cluster.Keyframe
	token      uint64
	leaving    bool   // the shard goes to successor when no batch waits
	successor  string // empty for any
	otherEpoch uint64 // the newest epoch of another holder that was reported
}

// An inbox is what a shard was told since its last turn.
type inbox struct {
	rank      int // of this relay, if wanted
	wanted    bool
	release   uint64 // epoch
	successor string
	fence     uint64
	wiped     bool // the store is another one
	holder    cluster.Holder
	heartbeat cluster.Heartbeat
	answer    *cluster.Answer
	batches   []*pendingBatch
}

// A pendingBatch is on its way into the store.
type pendingBatch struct {
	epoch uint64
	rest  []cluster.Keyframe // not stored yet
	size  int
	done  func(error)
}

// An op is an action, with the keyframes that ActionStore stores.
type op struct {
	cluster.Action
	keyframes []cluster.Keyframe
}

func newShard(l *Leases, n int) *shard {
	return &shard{
		l: l, n: n, wake: turn.NewWake(), ops: make(chan op, 1), lease: cluster.NewLease(l.cfg.Lease),
	}
}

// put changes the inbox, from any goroutine. It reports false after the end.
func (s *shard) put(change func(*inbox)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	change(&s.in)
	s.wake.Wake()
	return true
}

// loop owns the lease. It reads the clock once per turn.
func (s *shard) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
		now := time.Now()
		next, ok := s.turn(now)
		if !ok {
			next = now.Add(time.Hour)
		}
		timer.Reset(next.Sub(now))
	}
}

// turn empties the inbox and carries out what the lease wants.
func (s *shard) turn(now time.Time) (next time.Time, ok bool) {
	s.mu.Lock()
	in := s.in
	s.in = inbox{}
	s.mu.Unlock()
	s.apply(now, &in)
	for _, a := range s.lease.Advance(now) {
		s.act(a)
	}
	s.storeNext(now)
	return s.lease.NextTimeout()
}

func (s *shard) apply(now time.Time, in *inbox) {
	if in.holder.Seq != 0 {
		s.lease.SeenHolder(now, in.holder)
		s.reportHolder(in.holder)
	}
	if in.heartbeat.Seq != 0 {
		s.lease.SeenHeartbeat(now, in.heartbeat)
	}
	if in.answer != nil {
		s.lease.Answer(now, *in.answer)
	}
	if in.wiped {
		s.lease.Wiped(now)
	}
	if in.fence != 0 {
		s.lease.Fence(now, in.fence)
	}
	if in.wanted {
		s.lease.Want(now, in.rank)
	}
	s.batches = append(s.batches, in.batches...)
	if in.release != 0 && in.release == s.lease.Epoch() {
		s.leaving, s.successor = true, in.successor
	}
	s.storeNext(now)
}

// reportHolder reports another relay that holds the shard.
func (s *shard) reportHolder(h cluster.Holder) {
	if !h.Released && h.ID != s.l.cfg.Lease.ID && h.Seq > s.otherEpoch {
		s.otherEpoch = h.Seq
		s.l.handle(cluster.LeaseEvent{Kind: cluster.ShardSeen, Shard: s.n, Epoch: h.Seq, Node: h.Node})
	}
}

func (s *shard) act(a cluster.Action) {
	event := cluster.LeaseEvent{Shard: s.n, Epoch: a.Epoch, Node: s.l.cfg.Node, Reason: a.Reason, Durable: a.Durable, Former: a.Former, Wiped: a.Wiped, Spare: a.Spare}
	switch a.Kind {
	case cluster.ActionAcquired:
		s.held.Store(a.Epoch)
		event.Kind, event.Durable = cluster.ShardAcquired, true
	case cluster.ActionLost:
		s.held.Store(0)
		s.leaving = false
		s.l.counts.lost[a.Reason].Add(1)
		event.Kind = cluster.ShardLost
	case cluster.ActionDurable:
		event.Kind = cluster.ShardDurable
	case cluster.ActionStored:
		s.chunkStored()
		return
	default:
		s.ops <- op{Action: a, keyframes: s.chunk}
		return
	}
	s.l.handle(event)
}

// storeNext gives the lease the next chunk to store, if it has none, and refuses the batches
// of epochs that are over. A release follows the last batch.
func (s *shard) storeNext(now time.Time) {
	epoch := s.lease.Epoch()
	for len(s.batches) > 0 && s.batches[0].epoch != epoch {
		s.chunk = nil
		s.finishBatch(cluster.ErrNotHeld)
	}
	if len(s.batches) == 0 && s.leaving {
		s.lease.Release(s.successor)
	}
	if len(s.batches) == 0 || s.chunk != nil {
		return
	}
	b := s.batches[0]
	if !s.lease.Store(now, s.token+1) {
		return
	}
	s.token++
	n := chunkLen(b.rest)
	s.chunk, b.rest = b.rest[:n:n], b.rest[n:]
}

// chunkStored takes note that the chunk is stored.
func (s *shard) chunkStored() {
	s.l.counts.stored.Add(uint64(len(s.chunk)))
	s.chunk = nil
	if len(s.batches[0].rest) == 0 {
		s.finishBatch(nil)
	}
}

// finishBatch reports what became of the first batch.
func (s *shard) finishBatch(err error) {
	b := s.batches[0]
	s.batches[0] = nil
	s.batches = s.batches[1:]
	s.queued.Add(-int64(b.size))
	b.done(err)
}

// chunkLen returns how many of the keyframes fit into one atomic batch, at least one.
func chunkLen(all []cluster.Keyframe) int {
	size := 0
	for i, k := range all {
		size += len(k.Data) + keyframeOverhead
		if i == cluster.BatchKeyframesMax || i > 0 && size > chunkBytesMax {
			return i
		}
	}
	return len(all)
}

// end is called after all goroutines of the shard have ended.
func (s *shard) end() {
	s.mu.Lock()
	s.ended = true
	left := append(s.batches, s.in.batches...)
	s.mu.Unlock()
	s.held.Store(0)
	for _, b := range left {
		b.done(cluster.ErrNotHeld)
	}
}
