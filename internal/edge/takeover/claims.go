package takeover

import (
	"net/netip"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/turn/heap"
)

// workerAdoptionsPerSecond is how many sessions of dead edges a worker takes over per second, and
// how many superseded claims it looks at.
const workerAdoptionsPerSecond = 2000

// inheritMax bounds the inherited claims that wait to be taken over. Sessions beyond it are
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

// supersededMax bounds the superseded claims that a worker looks after. A claim beyond the
// bound is released at once; if the new owner of its session is dead, the session then waits
// for a datagram of its client.
const supersededMax = 16_384

// claimPatience is how long a worker waits between two looks at a superseded claim, and
// how long the edge that took a session over has to claim it. A claim follows ADOPT within
// milliseconds, if the log answers. To take a session back too early moves it once more,
// which is harmless. The other edge has twice as long the next time, up to
// claimPatienceMax, or an edge that cannot write claims would lose the session and get it
// back for ever.
const (
	claimPatience      = 2 * time.Second
	claimPatienceMax   = 2 * time.Minute
	claimPatienceAlive = 10 * time.Second // with an owner whose process still lives: it may reach the affinity later than this edge
)

// A supersededClaim is the claim of this edge on a session that, as the log says, another
// edge took over. It stays until there is a later one: the other edge may die between its
// ADOPT and its claim. If this claim were released before, nothing would lead to a client
// that says nothing.
type supersededClaim struct {
	name     string
	epoch    uint64
	owner    cluster.Member // that the log names, as the roster had it when the session was lost
	look     time.Time      // when to look whether there is a later one
	since    time.Time      // from when the owner has had time to claim the session
	patience time.Duration  // how much time it has, at least
	place    int            // in claims.byLook
}

// claims look after claims on sessions that no edge may be serving: those of dead edges, and
// superseded claims of this edge.
type claims struct {
	*base
	superseded map[string]*supersededClaim
	byLook     *heap.Heap[*supersededClaim]
	looks      tokenBucket // at superseded claims

	inherited []inheritedClaim // that wait
	lists     []listing
	pace      pace // of questions about inherited claims
	probe     pace // of questions whether the log answers
}

// An inheritedClaim is the claim of a dead edge on a session that this edge should take over. It is overdue if it was
// due listPause ago, too: an edge that has taken the session over since had that time to claim it.
type inheritedClaim struct {
	name, node string
	overdue    bool
}

// A listing of the claims of a dead edge that is due again.
type listing struct {
	node   string
	rounds int
	at     time.Time
}

func newClaims(b *base) claims {
	return claims{base: b, superseded: make(map[string]*supersededClaim), byLook: heap.New(
		func(a, b *supersededClaim) bool { return a.look.Before(b.look) },
		func(c *supersededClaim) *int { return &c.place },
	)}
}

// EdgeGone takes over, with the other edges that are ready, the sessions that a dead edge,
// or an earlier process of this edge, had. The first worker of an edge does it.
func (c *claims) EdgeGone(now time.Time, node string) {
	at := now
	if c.host.View().alone {
		at = now.Add(alonePatience)
	}
	c.addListing(listing{node, listRounds, at})
}

func (c *claims) addListing(l listing) {
	if l.rounds > 0 && len(c.lists) < goneMax {
		c.lists = append(c.lists, l)
	}
}

// list lists the claims of a dead edge. It chooses on the goroutine of the affinity, because
// that edge may have had many sessions.
func (c *claims) list(node string, rounds int) {
	c.cfg.Affinity.Claimed(node, func(claims []string) {
		names := c.host.View().inherited(node, slices.Clone(claims))
		c.host.Must(func(time.Time) { c.inherit(node, names, rounds < listRounds) })
	}, func(err error) {
		c.host.Must(func(now time.Time) { c.listed(now, node, rounds, err) })
	})
}

// inherit queues claims of a dead edge that this edge should take over.
func (c *claims) inherit(node string, names []string, overdue bool) {
	room := max(0, inheritMax-len(c.inherited))
	for _, name := range names[:min(len(names), room)] {
		c.inherited = append(c.inherited, inheritedClaim{name, node, overdue})
	}
}

func (c *claims) listed(now time.Time, node string, rounds int, err error) {
	if err != nil {
		c.addListing(listing{node, rounds, now.Add(listRetry)})
		return
	}
	c.addListing(listing{node, rounds - 1, now.Add(listPause)})
}

// advanceInherited takes over as many sessions as may be, and returns when there is more
// to do.
func (c *claims) advanceInherited(now, next time.Time) time.Time {
	c.lists = slices.DeleteFunc(c.lists, func(l listing) bool {
		if l.at.After(now) {
			next = earlier(next, l.at)
			return false
		}
		if !c.mayJudge(now) {
			next = earlier(next, now.Add(turnInterval))
			return false
		}
		if l.node == c.cfg.Node || !c.host.View().inRoster(l.node) { // an edge that is back looks after its claims by itself
			c.list(l.node, l.rounds)
		}
		return true
	})
	if c.leaving {
		c.inherited = nil
	}
	for len(c.inherited) > 0 && c.mayJudge(now) && c.pace.take(now, time.Second/workerAdoptionsPerSecond) {
		claim := c.inherited[0]
		c.inherited = c.inherited[1:]
		if !c.locations.present(claim.name) {
			c.find(claim.name, func(_ time.Time, s cluster.Served, err error) { c.locatedInherited(claim, s, err) })
		}
	}
	switch {
	case len(c.inherited) == 0:
	case !c.mayJudge(now):
		next = earlier(next, now.Add(turnInterval))
	default:
		next = earlier(next, c.pace.next)
	}
	return next
}

// locatedInherited takes over the session of an inherited claim, if this edge may. It leaves
// the session to an edge that has claimed it since. If the affinity does not answer, only
// the log knows whether this edge may.
func (c *claims) locatedInherited(claim inheritedClaim, seen cluster.Served, err error) {
	if err == nil && (seen.Node != claim.node || seen.Alive && seen.Node != c.cfg.Node && c.host.View().alone) {
		return
	}
	c.try(claim.name, seen, func(now time.Time, found cluster.Served, err error) {
		if err == nil && found.Trying != c.cfg.Node {
			return
		}
		s := c.adopt(claim.name, netip.AddrPort{}, true)
		if s.permitted = now; err == nil {
			s.dead, s.unclaimed = claim.node, claim.overdue && c.superseded[claim.name] == nil
		}
	})
}

// lose keeps this edge's claim on a session that another edge, owner, took over.
func (c *claims) lose(now time.Time, s *Session, owner string) {
	s.endFeed()
	switch {
	case c.cfg.Affinity == nil:
	case len(c.superseded) >= supersededMax:
		c.cfg.Affinity.Release(s.name, s.Log.Epoch())
	default:
		c.unsupersede(s.name)
		patience := max(claimPatience, min(2*s.patience, claimPatienceMax))
		claim := &supersededClaim{name: s.name, epoch: s.Log.Epoch(), look: now.Add(claimPatience), since: now, patience: patience}
		claim.owner, _ = c.host.View().roster.Member(owner)
		c.superseded[s.name] = claim
		c.byLook.Set(claim)
	}
}

// unsupersede stops looking after the superseded claim on a session, and returns it; nil if
// there is none.
func (c *claims) unsupersede(name string) *supersededClaim {
	claim := c.superseded[name]
	if claim != nil {
		delete(c.superseded, name)
		c.byLook.Remove(claim)
	}
	return claim
}

func (c *claims) settle(name string) {
	if claim := c.unsupersede(name); claim != nil {
		c.cfg.Affinity.Release(name, claim.epoch)
	}
}

// advanceSuperseded looks after claims whose time has come, and returns when there is more
// to do. An edge that leaves does not: its claims outlive it, and others find them.
func (c *claims) advanceSuperseded(now, next time.Time) time.Time {
	for claim, ok := c.byLook.First(); ok && !c.leaving; claim, ok = c.byLook.First() {
		if claim.look.After(now) {
			return earlier(next, claim.look)
		}
		if !c.looks.take(now, workerAdoptionsPerSecond, workerAdoptionsPerSecond) {
			return earlier(next, now.Add(turnInterval))
		}
		claim.look = now.Add(claimPatience)
		c.byLook.Set(claim)
		mayTake := c.mayTakeBack(now, claim)
		c.find(claim.name, func(_ time.Time, s cluster.Served, err error) { c.locatedSuperseded(claim, mayTake, s, err) })
	}
	return next
}

// mayTakeBack reports whether the owner of a session had its time to claim it. An edge that was cut off
// lately does not know how long the others have reached the affinity.
func (c *claims) mayTakeBack(now time.Time, claim *supersededClaim) bool {
	patience := claim.patience
	if m, ok := c.host.View().roster.Member(claim.owner.Name); ok && m.Incarnation == claim.owner.Incarnation {
		patience = max(patience, claimPatienceAlive)
	}
	return now.Sub(claim.since) >= patience && now.Sub(c.reach.gap) >= rejoinTime
}

// locatedSuperseded handles the answer of the affinity about a superseded claim: it settles the
// claim if there is a later one, and otherwise takes the session back, if it may. The owner that the
// log names may be alive and yet not know that it was the owner, because it died and started again. A
// question that fails is asked again at the next look.
func (c *claims) locatedSuperseded(claim *supersededClaim, mayTake bool, seen cluster.Served, err error) {
	switch {
	case c.superseded[claim.name] != claim:
	case err != nil: // claims made meanwhile are written when the affinity is back
		claim.since = claim.look
	case seen.Epoch > claim.epoch:
		c.settle(claim.name)
	case mayTake && !c.locations.present(claim.name):
		c.try(claim.name, seen, func(now time.Time, found cluster.Served, err error) {
			if err == nil && found.Trying == c.cfg.Node && c.superseded[claim.name] == claim {
				s := c.adopt(claim.name, netip.AddrPort{}, false)
				s.patience, s.permitted = claim.patience, now
			}
		})
	}
}
