package relay

import (
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/lease"
	"github.com/dnprelay/dnprelay/internal/turn"
)

// aliveCommands is after how many commands of one turn a worker tells the leases once
// more that it turns. A worker that loads millions of states turns slowly, but does not hang. Arbitrary: one
// command brings 512 states at most.
const aliveCommands = 64

// turnedTimeout is how long a worker may not have turned until its relay stops announcing itself.
const turnedTimeout = 3 * lease.AliveInterval

// A placement is what a worker says about itself to the leases. It belongs to the
// worker, except changed and turned.
type placement struct {
	due     time.Time // when to say it again
	changed turn.Wake // the relay drains
	turned  atomic.Pointer[time.Time]
}

// An announcement is the message of a relay about itself, by which nodes notice that their NATS server is cut off from the others.
type announcement struct {
	Ready bool `json:"ready"` // it may be given shards
}

// advancePlacement tells the leases that the worker turns, if it is time. It returns when to do so next. That
// it is called at all is what keeps the shards; see cluster.Leases.Alive.
func (w *Worker) advancePlacement(now time.Time) time.Time {
	p := &w.place
	if w.relay.cfg.Leases == nil {
		return now.Add(time.Hour)
	}
	select {
	case <-p.changed:
		p.due = now
	default:
	}
	if !now.Before(p.due) {
		p.due = now.Add(lease.AliveInterval)
		p.turned.Store(&now)
		w.sayAlive()
		w.announceRelay(now)
	}
	return p.due
}

// sayAlive tells the leases that the worker turns, and whether it takes shards.
func (w *Worker) sayAlive() {
	if w.relay.cfg.Leases == nil {
		return
	}
	for shard := w.index; shard < w.relay.cfg.Shards; shard += len(w.relay.workers) {
		w.relay.cfg.Leases.Alive(shard, !w.relay.draining.Load())
	}
}

// announceRelay says that this relay is there, if all its workers turn. The first
// worker does, for all.
func (w *Worker) announceRelay(now time.Time) {
	if w.index != 0 {
		return
	}
	for _, other := range w.relay.workers {
		if at := other.place.turned.Load(); at == nil || now.Sub(*at) >= turnedTimeout {
			return
		}
	}
	w.send(bus.JSON(w.relay.cfg.Subjects.Relay(w.relay.cfg.Node), announcement{Ready: !w.relay.draining.Load()}))
}

// placed takes the word of the leases which relay should hold a shard of this one, and hands the shard over. A relay that does not
// leave keeps a shard that no relay takes.
func (w *Worker) placed(now time.Time, o *ownership, node string) {
	switch {
	case node == w.relay.cfg.Node:
		o.leaving = o.leaving && o.released // the relay that should have had it has gone
	case node != "" || w.relay.draining.Load():
		w.handOver(now, o, node)
	}
}

// leaseEvent passes an event of a shard on to its worker.
func (r *Relay) leaseEvent(e cluster.LeaseEvent) {
	w := r.worker(e.Shard)
	switch e.Kind {
	case cluster.ShardAcquired:
		w.commands.Put(func(now time.Time) { w.acquire(now, e.Shard, e.Epoch, e.Former, e.Wiped) })
	case cluster.ShardLost:
		r.cfg.Log.Debug("shard lost", "shard", e.Shard, "epoch", e.Epoch, "reason", e.Reason)
		if e.Reason != lease.ReasonReleased { // which is in order
			r.shards.lose(time.Now(), e.Shard, e.Reason.String())
		}
		w.command(e.Shard, e.Epoch, func(now time.Time, o *ownership) { w.lost(now, o, e.Reason) })
	case cluster.ShardPaused:
		r.shards.lose(time.Now(), e.Shard, storeSilent)
		w.command(e.Shard, e.Epoch, w.pause)
	case cluster.ShardResumed:
		w.command(e.Shard, e.Epoch, w.resume)
	case cluster.ShardPlaced:
		w.command(e.Shard, e.Epoch, func(now time.Time, o *ownership) { w.placed(now, o, e.Node) })
	case cluster.ShardSeen:
		w.commands.Put(func(time.Time) { w.forgetFormer(e.Shard, e.Epoch) })
	case cluster.ShardDurable:
		w.command(e.Shard, e.Epoch, func(_ time.Time, o *ownership) { o.setDurable(e.Durable) })
	}
}
