package relay

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
)

// A worker serves a shard only from a complete copy: from a load that ended without an error, or from the
// copy of a former ownership that was complete (former.go). A part of a shard looks like a whole one whose
// other states were removed, to clients and to game servers, which would put them anew.

// Times of loads. Both are arbitrary.
const (
	loadPause = time.Second     // before a load that failed is repeated
	loadLate  = 5 * time.Second // a load that takes longer is logged
)

// A loading is how far an ownership is with its copy of the shard.
type loading struct {
	began    time.Time // when the shard was acquired
	complete bool      // the copy has everything that is stored
	again    time.Time // when to ask for the states again, because a load failed; zero if none has
	err      error     // of the newest load that failed
	replaced []replacedState
}

// A replacedState is one that the durable store is to delete, because a later one has its key.
type replacedState struct {
	space  *space
	number uint64
}

// late reports whether loads of the shard fail or take long.
func (l *loading) late(now time.Time) bool {
	return !l.complete && (l.err != nil || now.Sub(l.began) >= loadLate)
}

// loads are the loads of a worker's shards.
type loads struct {
	worker *Worker
	due    time.Time // when a load that failed is repeated; zero if none is
}

// begin asks the durable store for the states of a shard. What an older load brings late is for another
// epoch, and is dropped.
func (l *loads) begin(o *ownership) {
	shard, epoch := o.shard, o.epoch
	l.worker.relay.cfg.Leases.Load(shard, epoch,
		func(part []cluster.Keyframe) {
			l.worker.command(shard, epoch, func(now time.Time, o *ownership) { l.restore(now, o, part) })
		},
		func(err error) {
			l.worker.command(shard, epoch, func(now time.Time, o *ownership) { l.ended(now, o, err) })
		})
}

// restore gives stores what was stored. A load that is repeated brings it again.
func (l *loads) restore(now time.Time, o *ownership, part []cluster.Keyframe) {
	for _, k := range part {
		sp := l.worker.makeSpace(now, o, k.Space)
		if k.Data == nil {
			l.worker.comparisons.noteRemoved(o, sp.name, k.Number)
		}
		l.worker.restoreState(sp, k.Number, k.Data)
	}
}

// ended takes the end of a load. After an error the worker asks again, for as long as this relay holds
// the shard: also ErrNotHeld says only that it is lost, and ShardLost follows.
func (l *loads) ended(now time.Time, o *ownership, err error) {
	if err != nil {
		o.err, o.again = err, now.Add(loadPause)
		l.plan(o.again)
		return
	}
	for _, r := range o.replaced {
		r.space.store.MarkDirty(now, r.number)
		l.worker.relay.shards.replace(now, r.space.name, r.number)
	}
	o.complete, o.replaced = true, nil
	if !o.leaving && !o.paused {
		l.worker.serve(now, o)
	}
}

func (l *loads) plan(at time.Time) {
	if l.due.IsZero() || at.Before(l.due) {
		l.due = at
	}
}

// advance repeats the loads that failed. It returns when it must be called again.
func (l *loads) advance(now time.Time) time.Time {
	if !l.due.IsZero() && !now.Before(l.due) {
		l.due = time.Time{}
		for _, o := range l.worker.owned {
			switch {
			case o.again.IsZero() || o.leaving:
			case now.Before(o.again):
				l.plan(o.again)
			default:
				o.again = time.Time{}
				l.begin(o)
			}
		}
	}
	if l.due.IsZero() {
		return now.Add(time.Hour)
	}
	return l.due
}

// log logs when loads begin to fail or to take long, and when all have ended, once for all shards of the relay.
func (l *loads) log(now time.Time) {
	r, owned := l.worker.relay, l.worker.owned
	i := slices.IndexFunc(owned, func(o *ownership) bool { return o.late(now) })
	switch {
	case i >= 0:
		if r.connection.Settled(now) && r.loads.Fails(now) { // the loss of the bus says it all
			r.cfg.Log.Warn("loading shards from the durable store fails or takes long; this relay does not serve them before it has all states",
				"node", r.cfg.Node, "shard", owned[i].shard, "error", owned[i].err)
		}
	case r.loads.Works(now):
		r.cfg.Log.Info("shards are loaded from the durable store again", "node", r.cfg.Node)
	}
}

// restoreState gives a stored state to a space.
func (w *Worker) restoreState(sp *space, number uint64, data []byte) {
	replaced, err := sp.store.Restore(number, data)
	if err != nil {
		w.counts.RestoreErrors++
		w.relay.cfg.Log.Error("leaving out a stored state that cannot be read", "space", sp.name, "state", number, "error", err)
	}
	if r := (replacedState{sp, replaced}); replaced != 0 && !slices.Contains(sp.owner.replaced, r) {
		sp.owner.replaced = append(sp.owner.replaced, r)
	}
}
