package relay

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/cluster/lease"
)

// A worker keeps the stores of a shard that it lost with its lease, or with the durable
// store, if they were complete: if no other relay holds the shard before this one does again,
// nothing is newer, and what was not stored, or was stored and is lost, is only here. It keeps
// them until this relay or another one holds the shard.

// lost ends an ownership for a reason.
func (w *Worker) lost(now time.Time, o *ownership, reason lease.Reason) {
	w.lose(now, o)
	if o.complete && (reason == lease.ReasonRevoked || reason == lease.ReasonWiped) {
		w.former = append(w.former, o)
	}
}

// takeFormer returns what the worker has of the former ownership of a shard, if it is the one in
// this epoch, and forgets it in any case.
func (w *Worker) takeFormer(shard int, epoch uint64) (o *ownership) {
	w.former = slices.DeleteFunc(w.former, func(x *ownership) bool {
		if x.shard == shard && x.epoch == epoch {
			o = x
		}
		return x.shard == shard
	})
	return o
}

// forgetFormer forgets what the worker has of a shard that another relay holds in a later epoch.
func (w *Worker) forgetFormer(shard int, epoch uint64) {
	w.former = slices.DeleteFunc(w.former, func(x *ownership) bool { return x.shard == shard && x.epoch < epoch })
}

// inherit begins an ownership with the states of the former one, which was complete. They are
// stored again, all of them if the durable store was wiped or lost what it had, and then also the ends of
// states that were removed; otherwise those of which it is not certain that they are stored.
func (w *Worker) inherit(now time.Time, o, former *ownership, wiped bool) {
	for _, st := range former.storing {
		st.space.store.MarkDirty(st.since, st.number)
	}
	var removed map[string][]uint64 // the ends to store again, by space
	if wiped {
		removed = former.comparison.ends()
	}
	states := 0
	for _, old := range former.spaces {
		sp := w.makeSpace(now, o, old.name)
		dirty := old.store.Dirty()
		old.store.MarkAllDirty(now) // behind those that are dirty
		all := old.store.TakeDirty(nil, math.MaxInt)
		for _, d := range all {
			w.restoreState(sp, d.Number, d.Data)
		}
		if wiped {
			dirty = len(all)
		}
		var again []uint64
		for _, d := range all[:dirty] {
			again = append(again, d.Number)
		}
		again = append(again, removed[old.name]...)
		delete(removed, old.name)
		sp.store.MarkDirty(now, again...)
		states += len(all)
	}
	for _, name := range slices.Sorted(maps.Keys(removed)) { // spaces in which nothing else is left
		w.makeSpace(now, o, name).store.MarkDirty(now, removed[name]...)
	}
	w.relay.shards.inherit(now, states)
	w.relay.cfg.Log.Debug("holding a shard again, with the states that this relay has", "shard", o.shard, "epoch", o.epoch, "former", former.epoch, "states", states, "wiped", wiped)
	o.complete, o.comparison = true, former.comparison
	w.serve(now, o)
	if former.leaving {
		w.handOver(now, o, former.to)
	}
}
