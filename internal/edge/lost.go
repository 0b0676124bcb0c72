package edge

import (
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
)

// lostPatience is how long is waited between two looks, and how long the edge that took a
// session over from this one has to claim it. A claim follows ADOPT within milliseconds, if
// the log answers. Whoever takes a session back too early moves it once more, which is
// harmless; that the other edge has twice as long the next time ends what would go on for
// ever with one that cannot write claims.
const (
	lostPatience    = 2 * time.Second
	lostPatienceMax = 2 * time.Minute
)

// lostMax bounds the claims that are looked after. One more is released, so that its session
// has to wait for a datagram of its client if its new owner is dead.
const lostMax = 16_384

// lostClaims are this edge's claims on sessions that, as the log says, other edges took over.
// Each stays until there is a later one. The other edge may die between its ADOPT and its
// claim; if the claim before it went then, nothing would lead to a client that says nothing.
type lostClaims struct {
	byName map[string]*lostClaim
	order  []*lostClaim // in the order of their time, with some that are settled
	looks  readBudget
}

// A lostClaim is one of them.
type lostClaim struct {
	name  string
	epoch uint64
	at    time.Time // when to look whether there is a later one
	wait  time.Duration
	until time.Time // wait is over, and the session may be taken back
}

// lose keeps the claim on a session that another edge took over.
func (k *keeper) lose(now time.Time, x *kept) {
	x.endFeed()
	switch q := &k.lost; {
	case k.d.Affinity == nil:
	case len(q.order) >= lostMax:
		k.d.Affinity.Release(x.name, x.core.Epoch())
	default:
		wait := max(lostPatience, min(2*x.waited, lostPatienceMax))
		c := &lostClaim{x.name, x.core.Epoch(), now.Add(lostPatience), wait, now.Add(wait)}
		q.byName[x.name] = c
		q.order = append(q.order, c)
	}
}

// advanceLost looks after claims whose time has come and returns when there is more to do.
// An edge that leaves does not: its claims outlive it, and others find them.
func (k *keeper) advanceLost(now, next time.Time) time.Time {
	q := &k.lost
	if k.drain.on {
		return next
	}
	for len(q.order) > 0 && !q.order[0].at.After(now) {
		c := q.order[0]
		if q.byName[c.name] == c {
			if !q.looks.take(now, adoptionsPerSecond) {
				return earlier(next, now.Add(beat))
			}
			c.at = now.Add(lostPatience)
			q.order = append(q.order, c)
			k.lookAfter(c, !now.Before(c.until))
		}
		q.order[0] = nil
		q.order = q.order[1:]
	}
	if len(q.order) > 0 {
		next = earlier(next, q.order[0].at)
	}
	return next
}

// lookAfter takes the session of a claim back, if it may, unless there is a later one. Whether the owner
// that the log names is alive does not matter: an edge that died and started again is, and
// does not know that it was the owner. Answers that get lost are asked for again.
func (k *keeper) lookAfter(c *lostClaim, may bool) {
	e, aff := k.w.edge, k.d.Affinity
	aff.Find(c.name, func(seen cluster.Served, err error) {
		switch {
		case err != nil:
			return
		case seen.Epoch > c.epoch:
			k.w.post(0, func(*Worker, time.Time) { k.settle(c) })
			return
		case !may || e.names.has(c.name, e.workers):
			return
		}
		aff.Try(c.name, seen, func(s cluster.Served, err error) {
			if err == nil && s.Trying == e.cfg.Node {
				k.w.post(0, func(*Worker, time.Time) { k.takeBack(c) })
			}
		})
	})
}

// takeBack takes over a session that nobody has claimed since this edge lost it.
func (k *keeper) takeBack(c *lostClaim) {
	if k.lost.byName[c.name] == c {
		k.adopt(c.name, netip.AddrPort{}, false).waited = c.wait
	}
}

// settle takes it that nobody has to look after a claim any more. It may be nil.
func (k *keeper) settle(c *lostClaim) {
	if c != nil && k.lost.byName[c.name] == c {
		delete(k.lost.byName, c.name)
		k.d.Affinity.Release(c.name, c.epoch)
	}
}
