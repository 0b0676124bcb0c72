package relay

import (
	"encoding/json"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/turn"
)

// Bounds of the announcements that wait for a worker. What does not fit is dropped; the relay
// announces itself again.
const (
	heardMessages = 1024
	heardBytes    = 64 << 10
)

// placeCommands is after how many commands of one turn a worker tells the leases its ranks once
// more. A worker that loads millions of states turns slowly, but does not hang. Arbitrary: one
// command brings 512 states at most.
const placeCommands = 64

// turnedTimeout is how long a worker may not have turned until its relay stops announcing itself.
const turnedTimeout = 3 * cluster.AnnounceInterval

// A placement is what a worker knows about which relay should hold the shards. It belongs to the
// worker, except heard, changed and turned.
type placement struct {
	announced  cluster.Announced
	candidates cluster.Roster // as of the last look
	due        time.Time      // when to look again
	announceAt time.Time      // when this relay announces itself next
	logged     []string       // candidates
	ready      bool           // this relay may be given shards

	heard   *turn.Inbox[announcement]
	changed turn.Wake // the roster has changed, or the relay drains
	turned  atomic.Pointer[time.Time]
}

// An announcement is the message of a relay about itself.
type announcement struct {
	relay string
	Ready bool `json:"ready"` // it may be given shards
}

func newPlacement(wake func()) placement {
	return placement{heard: turn.NewInbox[announcement](heardMessages, heardBytes, wake), changed: turn.NewWake()}
}

// announced takes the announcement of a relay. An answer of JetStream, which is published wherever a
// request says, does not say whether a relay is ready.
func (r *Relay) announced(m bus.Msg) {
	var says struct {
		Ready *bool `json:"ready"`
	}
	node, ok := r.cfg.Subjects.ParseRelay(m.Subject)
	if !ok || node == r.cfg.Node || json.Unmarshal(m.Data, &says) != nil || says.Ready == nil {
		return
	}
	a := announcement{relay: node, Ready: *says.Ready}
	for _, w := range r.workers {
		w.place.heard.Post(a, len(a.relay))
	}
}

// placeAnew has every worker look at the roster.
func (r *Relay) placeAnew() {
	for _, w := range r.workers {
		w.place.changed.Wake()
		w.wake()
	}
}

// advancePlacement looks which relay should hold each shard of the worker, if it is time: the
// leases are told, and shards of other relays are handed over. It returns when to look next. That
// it is called at all is what keeps the shards; see cluster.Lease.Want.
func (w *Worker) advancePlacement(now time.Time) time.Time {
	p := &w.place
	if w.relay.cfg.Leases == nil {
		return now.Add(time.Hour)
	}
	p.heard.Take(func(a announcement) {
		if a.Ready && p.announced.Heard(now, a.relay) || !a.Ready && p.announced.Left(a.relay) {
			p.due = now
		}
	})
	select {
	case <-p.changed:
		p.due = now
	default:
	}
	if !now.Before(p.announceAt) {
		p.announceAt = now.Add(cluster.AnnounceInterval)
		p.turned.Store(&now)
		w.announceRelay(now)
	}
	if !now.Before(p.due) {
		p.due = now.Add(cluster.WantInterval)
		w.placeAll(now)
	}
	if p.announceAt.Before(p.due) {
		return p.announceAt
	}
	return p.due
}

// placeAll places every shard of the worker, once there is a roster.
func (w *Worker) placeAll(now time.Time) {
	roster := w.relay.roster.Load()
	if roster == nil || w.relay.cfg.Leases == nil {
		return
	}
	w.place.candidates = w.place.announced.Candidates(now, *roster, w.relay.cfg.Node)
	w.logCandidates(now)
	ready := !w.relay.draining.Load() && w.place.candidates.Rank(0, w.relay.cfg.Node) != cluster.NoRank
	if ready != w.place.ready { // the others should know before shards are handed over
		w.place.ready = ready
		w.announceRelay(now)
	}
	for shard := w.index; shard < w.relay.cfg.Shards; shard += len(w.relay.workers) {
		w.placeShard(now, shard)
	}
}

// announceRelay says whether this relay may be given shards, if all its workers turn. The first
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
	w.send(bus.JSON(w.relay.cfg.Subjects.Relay(w.relay.cfg.Node), announcement{Ready: w.place.ready}))
}

// placeShard says how much this relay wants a shard, and hands it over if another relay should
// have it. A relay that does not leave gives shards only to relays that rank before it, so that
// no shard goes in circles.
func (w *Worker) placeShard(now time.Time, shard int) {
	self, draining := w.relay.cfg.Node, w.relay.draining.Load()
	rank := cluster.NoRank
	if !draining {
		rank = w.place.candidates.Rank(shard, self)
	}
	w.relay.cfg.Leases.Want(shard, rank)
	o := w.ownership(shard)
	if o == nil {
		return
	}
	if rank == 0 {
		o.leaving = o.leaving && !o.serving // the relay that should have had it has gone
		return
	}
	if to := successor(w.place.candidates, shard, self); to != "" || draining {
		w.handOver(now, o, to)
	}
}

// successor returns the relay other than node that should have a shard; empty if there is none.
func successor(roster cluster.Roster, shard int, node string) string {
	for _, name := range roster.Ranking(shard) {
		if name != node {
			return name
		}
	}
	return ""
}

// placeAcquired places a shard that this relay has acquired.
func (w *Worker) placeAcquired(now time.Time, e cluster.LeaseEvent) {
	if p := &w.place; e.Spare {
		p.announced.Passed(now, p.candidates, e.Shard, w.relay.cfg.Node)
		p.candidates = p.announced.Candidates(now, p.candidates, w.relay.cfg.Node)
	}
	w.placeShard(now, e.Shard)
}

// logCandidates notes for the log which relays may be given shards, when that changes. The first worker does,
// for all.
func (w *Worker) logCandidates(now time.Time) {
	if w.index != 0 {
		return
	}
	names := w.place.candidates.Ranking(0)
	slices.Sort(names)
	if !slices.Equal(names, w.place.logged) {
		w.place.logged = names
		w.relay.shards.candidates(now, names)
	}
}
