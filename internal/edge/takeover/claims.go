package takeover

import (
	"net/netip"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
)

// adoptionsPerSecond is how many sessions of dead edges a worker takes over per second, and
// how many superseded claims it looks at.
const adoptionsPerSecond = 2000

// inheritMax bounds the orphaned claims that wait to be taken over. Sessions beyond it are
// taken over when a datagram of their client comes.
const inheritMax = 131_072

// How often the claims of a dead edge are listed. The affinity lists claims for two
// minutes, and leaves out those that others took over. A listing that failed is due again
// after listRetry, and one that succeeded after listPause, because another edge may have
// begun to take a session over in vain.
const (
	listRounds = 12
	listPause  = 10 * time.Second
	listRetry  = time.Second
)

// EdgeGone takes over, with the other edges that are ready, the sessions that a dead edge,
// or an earlier process of this edge, had. The first worker of an edge does it.
func (t *Takeover) EdgeGone(node string) { t.host.List(node, listRounds) }

// Orphaned queues claims of a dead edge that this edge should take over.
func (t *Takeover) Orphaned(node string, names []string) {
	q := &t.inherited
	for _, name := range names[:max(0, min(len(names), inheritMax-len(q.queue)))] {
		q.queue = append(q.queue, orphanedClaim{name, node})
	}
}

// Listed handles the end of a listing.
func (t *Takeover) Listed(now time.Time, node string, rounds int, err error) {
	l := listing{node, rounds - 1, now.Add(listPause)}
	if err != nil {
		l = listing{node, rounds, now.Add(listRetry)}
	}
	if q := &t.inherited; l.rounds > 0 && len(q.lists) < goneMax {
		q.lists = append(q.lists, l)
	}
}

// advanceInherited takes over as many sessions as may be, and returns when there is more
// to do.
func (t *Takeover) advanceInherited(now, next time.Time) time.Time {
	q := &t.inherited
	q.lists = slices.DeleteFunc(q.lists, func(l listing) bool {
		if l.at.After(now) {
			next = earlier(next, l.at)
			return false
		}
		if l.node == t.cfg.Node || !t.host.View().alive(l.node) { // an edge that is back looks after its claims by itself
			t.host.List(l.node, l.rounds)
		}
		return true
	})
	if t.draining.on {
		q.queue = nil
	}
	for len(q.queue) > 0 && !q.next.After(now) {
		if q.next.IsZero() || now.Sub(q.next) > turnInterval {
			q.next = now
		}
		q.next = q.next.Add(time.Second / adoptionsPerSecond)
		c := q.queue[0]
		q.queue = q.queue[1:]
		if !t.present(c.name) {
			t.host.Find(Question{Name: c.name, why: inheritedClaim, node: c.node})
		}
	}
	if len(q.queue) > 0 {
		next = earlier(next, q.next)
	}
	return next
}

// locatedOrphaned handles the answer of the affinity about an orphaned claim. It leaves the
// session to an edge that has claimed it since.
func (t *Takeover) locatedOrphaned(q Question, s cluster.Served, err error) {
	if err != nil || s.Node == q.node {
		q.Seen = s
		t.host.Try(q)
	}
}

// triedOrphaned takes over the session of an orphaned claim, if this edge may. If the
// affinity does not answer, only the log knows whether it may.
func (t *Takeover) triedOrphaned(q Question, s cluster.Served, err error) {
	if err != nil || s.Trying == t.cfg.Node {
		t.adopt(q.Name, netip.AddrPort{}, err != nil)
	}
}

// lose keeps this edge's claim on a session that another edge took over.
func (t *Takeover) lose(now time.Time, s *Session) {
	s.endFeed()
	switch {
	case !t.cfg.Affinity:
	case len(t.superseded) >= supersededMax:
		t.host.Release(s.name, s.log.Epoch())
	default:
		patience := max(claimPatience, min(2*s.patience, claimPatienceMax))
		c := &supersededClaim{s.name, s.log.Epoch(), now.Add(claimPatience), patience, now.Add(patience)}
		t.superseded = append(t.superseded, c)
		t.host.BorrowLocations().supersede(s.name, t.client(s.client), t.cfg.Worker, c)
		t.host.ReturnLocations()
	}
}

// looksAfter reports whether the worker still looks after a claim.
func (t *Takeover) looksAfter(c *supersededClaim) bool {
	defer t.host.ReturnLocations()
	return t.host.BorrowLocations().superseded(c.name, t.cfg.Worker) == c
}

// advanceSuperseded looks after claims whose time has come, and returns when there is more
// to do. An edge that leaves does not: its claims outlive it, and others find them.
func (t *Takeover) advanceSuperseded(now, next time.Time) time.Time {
	if t.draining.on {
		return next
	}
	for len(t.superseded) > 0 && !t.superseded[0].look.After(now) {
		c := t.superseded[0]
		if t.looksAfter(c) {
			if !t.looks.spend(now, adoptionsPerSecond) {
				return earlier(next, now.Add(turnInterval))
			}
			c.look = now.Add(claimPatience)
			t.superseded = append(t.superseded, c)
			t.host.Find(Question{Name: c.name, why: staleClaim, claim: c, mayTake: !now.Before(c.until)})
		}
		t.superseded[0] = nil
		t.superseded = t.superseded[1:]
	}
	if len(t.superseded) > 0 {
		next = earlier(next, t.superseded[0].look)
	}
	return next
}

// locatedStale handles the answer of the affinity about a superseded claim: it settles the
// claim if there is a later one, and otherwise takes the session back, if it may. It does
// not matter whether the owner that the log names is alive: an edge that died and started
// again is, and does not know that it was the owner. A question that fails is asked again
// at the next look.
func (t *Takeover) locatedStale(q Question, s cluster.Served, err error) {
	switch {
	case err != nil || !t.looksAfter(q.claim):
	case s.Epoch > q.claim.epoch:
		t.settle(q.Name)
	case q.mayTake && !t.present(q.Name):
		q.Seen = s
		t.host.Try(q)
	}
}

// triedStale takes back a session that no edge has claimed since this edge lost it.
func (t *Takeover) triedStale(q Question, s cluster.Served, err error) {
	if err == nil && s.Trying == t.cfg.Node && t.looksAfter(q.claim) {
		t.adopt(q.Name, netip.AddrPort{}, false).patience = q.claim.patience
	}
}
