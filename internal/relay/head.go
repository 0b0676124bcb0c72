package relay

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/replication"
)

// How often and for how long the holder says how far a space is.
const (
	headInterval = 250 * time.Millisecond
	headRecent   = 60 * time.Second // spaces that changed within it are in every head
)

// heads tells replicas how far the spaces of a lane are, so that a replica that
// missed the last batch of a space notices it without another one.
type heads struct {
	shards []*shardHead // in the order of their coming
	due    time.Time
}

// A shardHead is the spaces of one shard.
type shardHead struct {
	shard  int
	spaces []*space
	turn   int // the quiet space whose turn is next
}

func (h *heads) add(sp *space) {
	i := slices.IndexFunc(h.shards, func(sh *shardHead) bool { return sh.shard == sp.shard })
	if i < 0 {
		i = len(h.shards)
		h.shards = append(h.shards, &shardHead{shard: sp.shard})
	}
	h.shards[i].spaces = append(h.shards[i].spaces, sp)
}

func (h *heads) remove(sp *space) {
	for _, sh := range h.shards {
		sh.spaces = slices.DeleteFunc(sh.spaces, func(x *space) bool { return x == sp })
	}
}

// advanceHeads sends the heads if it is time and returns when it is next.
func (l *Lane) advanceHeads(now time.Time) time.Time {
	if len(l.heads.shards) == 0 {
		return now.Add(time.Hour)
	}
	if now.Before(l.heads.due) {
		return l.heads.due
	}
	l.heads.due = now.Add(headInterval)
	for _, sh := range l.heads.shards {
		data := replication.AppendHead(nil, l.relay.cfg.Epoch, sh.list(now))
		if l.relay.cfg.Bus.Publish(replication.Msg{Subject: l.relay.cfg.Subjects.Head(sh.shard), Data: data}) != nil {
			l.counts.Lost++
		}
	}
	return l.heads.due
}

// list returns the spaces that changed lately, and as many of the others as
// fit, in turn.
func (sh *shardHead) list(now time.Time) []replication.SpaceHead {
	var all []replication.SpaceHead
	room := replication.HeadBytesMax - 16
	add := func(sp *space) bool {
		_, seq := sp.store.Position()
		h := replication.SpaceHead{Space: sp.name, Seq: seq}
		if room -= h.Size(); room < 0 {
			return false
		}
		all = append(all, h)
		return true
	}
	recent := func(sp *space) bool { return now.Sub(sp.emitted) < headRecent }
	for _, sp := range sh.spaces {
		if recent(sp) && !add(sp) {
			return all
		}
	}
	for range sh.spaces {
		sp := sh.spaces[sh.turn%len(sh.spaces)]
		if !recent(sp) && !add(sp) {
			return all
		}
		sh.turn = (sh.turn + 1) % len(sh.spaces)
	}
	return all
}
