package relay

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/replication"
)

// A holding is this relay's authority over one shard. It begins when the lease
// says so, speaks when what its predecessors stored has been loaded, and ends at
// once when the lease says so, or in order when another relay should have it.
type holding struct {
	shard    int
	epoch    uint64
	speaking bool
	durable  bool     // the durable store answers
	spaces   []*space // in the order of their coming
	end      []func() // unsubscribe
	turn     int      // the quiet space that the next head begins with

	storing int // keyframes on their way to the durable store

	leaving bool   // another relay should hold the shard
	to      string // which
}

// firstNumberBase is the beginning of 2025 in Unix milliseconds. Epochs count up
// from the time at which the durable store was made.
const firstNumberBase = 1_735_689_600_000

// firstNumber returns the first state number of a holding. A holder can die before
// it stored a state that it numbered, so the numbers of an epoch must not depend on
// what was stored: they begin where no earlier epoch can have come, as every message
// in the stream of the shard, a renewal twice a second at least, leaves room for
// 16,384 states.
func firstNumber(epoch uint64) uint64 {
	if epoch > firstNumberBase {
		epoch -= firstNumberBase
	}
	return epoch<<14 + 1
}

// acquire begins a holding. What is stored is loaded before anything is said.
func (l *Lane) acquire(now time.Time, shard int, epoch uint64) {
	h := &holding{shard: shard, epoch: epoch, durable: true}
	l.holdings = append(l.holdings, h)
	if l.relay.cfg.Leases == nil {
		l.speak(now, h)
		return
	}
	l.relay.cfg.Leases.Load(shard, epoch,
		func(part []cluster.Keyframe) {
			l.command(command{kind: commandLoaded, shard: shard, epoch: epoch, part: part})
		},
		func(err error) { l.command(command{kind: commandLoadEnd, shard: shard, epoch: epoch, err: err}) })
}

// holding returns the holding of a shard, or nil.
func (l *Lane) holding(shard int) *holding {
	if i := slices.IndexFunc(l.holdings, func(h *holding) bool { return h.shard == shard }); i >= 0 {
		return l.holdings[i]
	}
	return nil
}

// speaker returns the holding of a shard for which this relay speaks, or nil.
func (l *Lane) speaker(shard int) *holding {
	if h := l.holding(shard); h != nil && h.speaking {
		return h
	}
	l.counts.NotHeld++
	return nil
}

// restore gives stores what was stored.
func (l *Lane) restore(now time.Time, h *holding, part []cluster.Keyframe) {
	for _, k := range part {
		sp, ok := l.makeSpace(now, h, k.Space)
		if !ok {
			continue
		}
		if err := sp.store.Restore(k.Number, k.Data); err != nil {
			l.counts.RestoreErrors++
			l.relay.cfg.Log.Error("a stored state cannot be read", "space", k.Space, "state", k.Number, "error", err)
		}
	}
}

// speak begins to answer for a shard, and tells replicas and publishers so.
func (l *Lane) speak(now time.Time, h *holding) {
	h.speaking = true
	h.end = l.relay.subscribeShard(l, h.shard)
	for _, sp := range h.spaces {
		l.enter(now, sp)
		l.announce(now, sp)
	}
	l.sendHead(now, h)
	l.relay.cfg.Log.Debug("speaking for shard", "shard", h.shard, "epoch", h.epoch, "spaces", len(h.spaces))
	l.heldAt = now
}

// heldQuiet is how long what a lane holds must stay the same before it is logged,
// because shards come and go many at a time.
const heldQuiet = time.Second

// tellHeld logs what the lane holds, once that has come to rest. It returns when to
// look again.
func (l *Lane) tellHeld(now time.Time) time.Time {
	switch {
	case l.heldAt.IsZero() || l.relay.cfg.Leases == nil:
		return now.Add(time.Hour)
	case now.Before(l.heldAt.Add(heldQuiet)):
		return l.heldAt.Add(heldQuiet)
	}
	l.heldAt = time.Time{}
	var shards []int
	for _, h := range l.holdings {
		if h.speaking {
			shards = append(shards, h.shard)
		}
	}
	slices.Sort(shards)
	l.relay.cfg.Log.Info("holding", "node", l.relay.cfg.Node, "lane", slices.Index(l.relay.lanes, l), "shards", shards, "spaces", len(l.spaces))
	return now.Add(time.Hour)
}

// announce asks publishers to say again what the predecessor may not have stored.
func (l *Lane) announce(now time.Time, sp *space) {
	epoch, seq := sp.store.Position()
	l.publishEvent(&replication.Event{
		Type: replication.EventReassert, Space: sp.name, Time: now, Epoch: epoch, Seq: seq, Shard: sp.h.shard,
	})
}

// lose ends a holding at once. Who waits for an answer asks the next holder.
func (l *Lane) lose(now time.Time, h *holding) {
	l.heldAt = now
	h.hush()
	for _, sp := range h.spaces {
		l.leave(sp)
	}
	l.holdings = slices.DeleteFunc(l.holdings, func(x *holding) bool { return x == h })
}

// hush stops speaking for the shard.
func (h *holding) hush() {
	h.speaking = false
	for _, f := range h.end {
		f()
	}
	h.end = nil
}

// handOver gives a shard to another relay, or to whoever wants it. While much is
// left to be stored it goes on speaking; what is left then takes no longer to store
// than a publisher waits.
func (l *Lane) handOver(now time.Time, h *holding, to string) {
	if h.leaving {
		h.to = to
		return
	}
	h.leaving, h.to = true, to
	if !h.speaking {
		l.relay.cfg.Leases.Release(h.shard, h.epoch, to)
		return
	}
	l.advanceLeaving(now, h)
}

// handOverDirty is how many states may be left to be stored in the silence of a
// hand-over. One batch of the durable store has so many.
const handOverDirty = cluster.BatchKeyframesMax

// advanceLeaving takes the last step of a hand-over when little is left to store.
func (l *Lane) advanceLeaving(now time.Time, h *holding) {
	if !h.leaving || !h.speaking || h.storing > 0 || h.dirty() > handOverDirty {
		return
	}
	for _, sp := range h.spaces {
		l.emit(now, sp)
	}
	h.hush()
	l.store(h, h.dirty())
	l.relay.cfg.Leases.Release(h.shard, h.epoch, h.to)
}
