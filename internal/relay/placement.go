package relay

import (
	"context"
	"log/slog"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
)

// SetRoster tells the relay which nodes there are, from any goroutine but one at a time.
// The relay wants the shards that the roster places on it, and hands over those that the
// roster places on another. The roster may be wrong: only the lease says which relay holds
// a shard.
func (r *Relay) SetRoster(roster cluster.Roster) {
	r.roster.Store(&roster)
	if r.cfg.Leases == nil || r.draining.Load() {
		return
	}
	for shard := range r.cfg.Shards {
		holder, ok := roster.Holder(shard)
		if !ok {
			continue // no relay is ready, so the present holder goes on
		}
		r.cfg.Leases.Want(shard, holder == r.cfg.Node)
		if holder != r.cfg.Node {
			r.handOver(shard, 0, holder)
		}
	}
}

// Drain begins to hand every shard over to the relay that should have it next. Run
// does it by itself.
func (r *Relay) Drain() {
	r.draining.Store(true)
	roster := r.roster.Load()
	for shard := range r.cfg.Shards {
		r.cfg.Leases.Want(shard, false)
		to := ""
		if roster != nil {
			to = successor(*roster, shard, r.cfg.Node)
		}
		r.handOver(shard, 0, to)
	}
}

// drained waits until this relay owns no shard or ctx ends.
func (r *Relay) drained(ctx context.Context) {
	for _, w := range r.workers {
		drained := make(chan struct{})
		w.commands.Put(func(time.Time) { w.drained = drained })
		select {
		case <-drained:
		case <-ctx.Done():
			r.cfg.Log.Warn("ending before every shard was handed over: the drain timeout is over")
			return
		}
	}
}

// successor returns the node that should have a shard once another node has gone; empty if
// there is none.
func successor(roster cluster.Roster, shard int, node string) string {
	for _, name := range roster.Ranking(shard) {
		if name != node {
			return name
		}
	}
	return ""
}

// handOver has the worker of a shard give it to another relay. An epoch of 0 stands for any.
func (r *Relay) handOver(shard int, epoch uint64, to string) {
	w := r.worker(shard)
	w.must(shard, epoch, func(now time.Time, o *ownership) { w.handOver(now, o, to) })
}

// leaseEvent passes an event of the lease of a shard on to the shard's worker.
func (r *Relay) leaseEvent(e cluster.LeaseEvent) {
	w := r.worker(e.Shard)
	switch e.Kind {
	case cluster.ShardAcquired:
		w.commands.Put(func(now time.Time) { w.acquire(now, e.Shard, e.Epoch) })
		if roster := r.roster.Load(); roster != nil {
			if holder, ok := roster.Holder(e.Shard); ok && holder != r.cfg.Node { // the roster changed while the lease was under way
				r.handOver(e.Shard, e.Epoch, holder)
			}
		}
	case cluster.ShardLost:
		level := slog.LevelWarn
		if e.Reason == cluster.ReasonReleased {
			level = slog.LevelDebug // one of many that are handed over
		}
		r.cfg.Log.Log(context.Background(), level, "shard lost", "shard", e.Shard, "epoch", e.Epoch, "reason", e.Reason)
		w.must(e.Shard, e.Epoch, w.lose)
	case cluster.ShardDurable:
		r.cfg.Log.Warn("durable store", "shard", e.Shard, "answers", e.Durable)
		w.must(e.Shard, e.Epoch, func(_ time.Time, o *ownership) { o.setDurable(e.Durable) })
	}
}
