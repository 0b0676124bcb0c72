package relay

import (
	"context"
	"log/slog"

	"github.com/dnprelay/dnprelay/cluster"
)

// SetRoster says who is there, from any goroutine but one at a time. Every relay
// wants the shards that the roster places on it, and hands over those that it
// places on another. The roster may be wrong: only the lease says who holds a shard.
func (r *Relay) SetRoster(roster cluster.Roster) {
	r.roster.Store(&roster)
	if r.cfg.Leases == nil || r.draining.Load() {
		return
	}
	for shard := range r.cfg.Shards {
		holder, ok := roster.Holder(shard)
		if !ok {
			continue // nobody is ready, so whoever holds it goes on
		}
		r.cfg.Leases.Want(shard, holder == r.cfg.Node)
		if holder != r.cfg.Node {
			r.lane(shard).command(command{kind: commandHandOver, shard: shard, to: holder})
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
		r.lane(shard).command(command{kind: commandHandOver, shard: shard, to: to})
	}
}

// drained waits until nothing is held or ctx ends.
func (r *Relay) drained(ctx context.Context) {
	for _, l := range r.lanes {
		drained := make(chan struct{})
		l.command(command{kind: commandDrain, drained: drained})
		select {
		case <-drained:
		case <-ctx.Done():
			r.cfg.Log.Warn("not every shard was handed over in time")
			return
		}
	}
}

// successor returns who should have a shard when node is gone.
func successor(roster cluster.Roster, shard int, node string) string {
	for _, name := range roster.Ranking(shard) {
		if name != node {
			return name
		}
	}
	return ""
}

// leaseEvent brings what happened to a shard to its lane.
func (r *Relay) leaseEvent(e cluster.LeaseEvent) {
	c := command{shard: e.Shard, epoch: e.Epoch, durable: e.Durable}
	switch e.Kind {
	case cluster.ShardAcquired:
		c.kind = commandAcquired
	case cluster.ShardLost:
		c.kind = commandLost
		level := slog.LevelWarn
		if e.Reason == cluster.ReasonReleased {
			level = slog.LevelDebug // it was handed over, one of many
		}
		r.cfg.Log.Log(context.Background(), level, "shard lost", "shard", e.Shard, "epoch", e.Epoch, "reason", e.Reason)
	case cluster.ShardDurable:
		c.kind = commandDurable
		r.cfg.Log.Warn("durable store", "shard", e.Shard, "answers", e.Durable)
	default:
		return
	}
	r.lane(e.Shard).command(c)
	if roster := r.roster.Load(); e.Kind == cluster.ShardAcquired && roster != nil {
		if holder, ok := roster.Holder(e.Shard); ok && holder != r.cfg.Node { // it changed while the lease was under way
			r.lane(e.Shard).command(command{kind: commandHandOver, shard: e.Shard, epoch: e.Epoch, to: holder})
		}
	}
}
