package natslease

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
)

// keyframeOverhead is what a keyframe counts beside its data: subject, headers
// and bookkeeping, generously.
const keyframeOverhead = 256

// A shard is one shard as this relay sees it. Its lease and what is below it
// belong to the goroutine in loop.
type shard struct {
	l *Leases
	n int

	wake   chan struct{} // holds one when in has something
	ops    chan op       // what the goroutine in serve is to do; holds one at most, as the lease has it
	queued atomic.Int64  // bytes in batches
	held   atomic.Uint64 // epoch; 0 if the shard is not held

	// Everybody puts into the inbox and loop empties it. What can be coalesced is,
	// so it does not grow; a channel could not do that.
	mu    sync.Mutex
	in    inbox
	ended bool

	lease   *cluster.Lease
	batches []*pendingBatch // the first is being stored, if chunk is not empty
	chunk   []cluster.Keyframe
	token   uint64
	leaving bool // gives the shard to the node to when nothing waits to be stored
	to      string
	otherEpoch  uint64 // newest epoch of another that was told of
}

// An inbox is what a shard was told and has not looked at.
type inbox struct {
	want, wanted bool
	release      uint64 // epoch
	to           string
	fence        uint64
	holder          cluster.Holder
	heartbeat         cluster.Heartbeat
	answer       *cluster.Answer
	batches      []*pendingBatch
}

// A storing is a batch on its way into the store.
type pendingBatch struct {
	epoch uint64
	rest  []cluster.Keyframe // not stored yet
	size  int
	done  func(error)
}

// An op is an action with what it stores.
type op struct {
	cluster.Action
	keyframes []cluster.Keyframe
}

func newShard(l *Leases, n int) *shard {
	return &shard{
		l: l, n: n, wake: make(chan struct{}, 1), ops: make(chan op, 1), lease: cluster.NewLease(l.cfg.Lease),
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
	select {
	case s.wake <- struct{}{}:
	default:
	}
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

// turn takes what was put into the inbox, and does what the lease wants.
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
	if in.fence != 0 {
		s.lease.Fence(now, in.fence)
	}
	if in.wanted {
		s.lease.Want(now, in.want)
	}
	s.batches = append(s.batches, in.batches...)
	if in.release != 0 && in.release == s.lease.Epoch() {
		s.leaving, s.to = true, in.to
	}
	s.storeNext(now)
}

// tellHolder says who else holds the shard.
func (s *shard) reportHolder(o cluster.Holder) {
	if !o.Released && o.ID != s.l.cfg.Lease.ID && o.Seq > s.otherEpoch {
		s.otherEpoch = o.Seq
		s.l.handle(cluster.LeaseEvent{Kind: cluster.ShardSeen, Shard: s.n, Epoch: o.Seq, Node: o.Node})
	}
}

func (s *shard) act(a cluster.Action) {
	event := cluster.LeaseEvent{Shard: s.n, Epoch: a.Epoch, Node: s.l.cfg.Node, Reason: a.Reason, Durable: a.Durable}
	switch a.Kind {
	case cluster.ActionAcquired:
		s.held.Store(a.Epoch)
		event.Kind, event.Durable = cluster.ShardAcquired, true
		s.l.handle(event)
	case cluster.ActionLost:
		s.held.Store(0)
		s.leaving = false
		s.l.counts.lost[a.Reason].Add(1)
		event.Kind = cluster.ShardLost
		s.l.handle(event)
	case cluster.ActionDurable:
		event.Kind = cluster.ShardDurable
		s.l.handle(event)
	case cluster.ActionStored:
		s.stored()
	case cluster.ActionStore:
		s.ops <- op{Action: a, keyframes: s.chunk}
	default:
		s.ops <- op{Action: a}
	}
}

// end is called when no goroutine runs any more.
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
