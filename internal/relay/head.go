package relay

import (
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/replication"
)

// How often and for how long the holder says how far a space is.
const (
	headInterval = 250 * time.Millisecond
	headRecent   = 60 * time.Second // spaces that changed within it are in every head
)

// advanceHeads tells replicas how far the spaces of the lane are, if it is time, so
// that a replica that missed the last batch of a space notices it without another
// one. It returns when it is next.
func (l *Lane) advanceHeads(now time.Time) time.Time {
	if len(l.holdings) == 0 {
		return now.Add(time.Hour)
	}
	if now.Before(l.headsDue) {
		return l.headsDue
	}
	l.headsDue = now.Add(headInterval)
	for _, h := range l.holdings {
		if h.speaking {
			l.sendHead(now, h)
		}
	}
	return l.headsDue
}

// sendHead tells how far the spaces of a shard are. A head without a space still
// says who holds the shard.
func (l *Lane) sendHead(now time.Time, h *holding) {
	if l.relay.cfg.Leases == nil && len(h.spaces) == 0 {
		return // there is no other holder that anybody could have followed
	}
	data := replication.AppendHead(nil, h.epoch, h.head(now))
	l.send(bus.Msg{Subject: l.relay.cfg.Subjects.Head(h.shard), Data: data})
}

// head returns the spaces that changed lately, and as many of the others as fit,
// in turn.
func (h *holding) head(now time.Time) []replication.SpaceHead {
	var all []replication.SpaceHead
	room := replication.HeadBytesMax - 16
	add := func(sp *space) bool {
		_, seq := sp.store.Position()
		head := replication.SpaceHead{Space: sp.name, Seq: seq}
		if room -= head.Size(); room < 0 {
			return false
		}
		all = append(all, head)
		return true
	}
	recent := func(sp *space) bool { return now.Sub(sp.emitted) < headRecent }
	for _, sp := range h.spaces {
		if recent(sp) && !add(sp) {
			return all
		}
	}
	for range h.spaces {
		sp := h.spaces[h.turn%len(h.spaces)]
		if !recent(sp) && !add(sp) {
			return all
		}
		h.turn = (h.turn + 1) % len(h.spaces)
	}
	return all
}
