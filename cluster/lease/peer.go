package lease

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
)

// peersMax bounds the relays that are remembered. Those whose leases were revoked are forgotten first: an absent lease counts
// as a revoked one.
const peersMax = 1024

// A peer is another relay, as its records show it.
type peer struct {
	Record
	seen   time.Time     // when it last gave a sign
	since  time.Time     // from when its silence counts while the store answers promptly
	last   time.Time     // when the newest proof was asked
	proofs int           // writes of this relay that were asked behind since, and confirmed promptly
	late   int           // those that were confirmed behind lateAt
	worst  time.Duration // the longest that a confirmation took since the last sign
	asked  time.Time     // when its revocation was asked; zero if none is under way
	passed time.Time     // when it let a shard pass; zero for never
	proved proof
}

func (p *peer) lives() bool { return p.Seq != 0 && p.Revoked == "" }

// heard restarts the wait after which the lease may be revoked.
func (p *peer) heard(now time.Time) {
	p.seen, p.late, p.worst = now, 0, 0
	p.wait(now)
}

// wait restarts the wait for a store that answers promptly.
func (p *peer) wait(now time.Time) { p.since, p.last, p.proofs = now, now, 0 }

// confirmed takes note that a write of this relay, which was asked at a time, is stored after so long.
func (p *peer) confirmed(now, asked time.Time, took time.Duration) {
	p.worst = max(p.worst, took)
	if took > prompt {
		p.wait(now)
	}
	if asked.Sub(p.last) < proofStep {
		return
	}
	p.last = asked
	p.proofs++
	if !now.Before(p.lateAt()) {
		p.late++
	}
}

// silent reports whether the relay gave no sign although it could.
func (p *peer) silent(now time.Time) bool {
	return now.Sub(p.since) >= revokeWait && p.proofs >= proofs || p.late >= proofs
}

// lateAt returns when the relay has been silent for too long in a slow store.
func (p *peer) lateAt() time.Time { return p.seen.Add(revokeLate + 2*p.worst) }

// meet returns a new peer.
func (l *Lease) meet(node string) *peer {
	if len(l.peers) >= peersMax {
		for name, p := range l.peers {
			if !p.lives() {
				l.forget(name)
			}
		}
	}
	p := &peer{}
	l.peers[node] = p
	i, _ := slices.BinarySearch(l.order, node)
	l.order = slices.Insert(l.order, i, node)
	return p
}

// forget forgets a relay.
func (l *Lease) forget(name string) {
	delete(l.peers, name)
	l.order = slices.DeleteFunc(l.order, func(other string) bool { return other == name })
}

// judge revokes the leases of relays that gave no sign although the store answered this one.
func (l *Lease) judge(now time.Time) {
	if !l.joined || now.Before(l.grace) {
		return
	}
	for _, name := range l.order {
		if l.peers[name].silent(now) {
			l.revoke(now, name)
		}
	}
}

// revoke revokes the lease of a relay, if it has one and that is not asked already.
func (l *Lease) revoke(now time.Time, name string) {
	if p := l.peers[name]; p != nil && p.lives() && now.Sub(p.asked) >= Timeout {
		p.asked = now
		l.emit(Action{Kind: ActionRevoke, Node: name, Expect: p.Seq, Record: Record{Format: l.recordFormat(), Incarnation: p.Incarnation, Revoked: l.cfg.Node}})
	}
}

// Revoked answers ActionRevoke for the lease of a node.
func (l *Lease) Revoked(now time.Time, node string, r Record, a Answer) {
	p := l.peers[node]
	if p == nil {
		return
	}
	p.asked = time.Time{}
	switch a.Verdict {
	case fence.OK:
		r.Seq = a.Seq
		l.Saw(now, node, r)
	case fence.Stale: // it lives, and the watch is late; or another relay was faster
		p.heard(now)
		l.emit(Action{Kind: ActionReadLease, Node: node, Asked: now})
	default:
		p.asked = now.Add(pauseMax - Timeout)
	}
}

// over reports whether the incarnation that holds a shard can write no more, as far as this relay knows: its lease was revoked or replaced, or is
// absent. See hasLeft.
func (l *Lease) over(s *shard) bool {
	p := l.peers[s.owner.Node]
	return p == nil || p.Incarnation != s.owner.Incarnation || !p.lives()
}

// Open reports whether another relay is known to take shards.
func (l *Lease) Open(node string) bool {
	p := l.peers[node]
	return p != nil && p.lives() && !p.Closed
}

// rank returns how many relays rank before this one for a shard.
func (l *Lease) rank(n int) (rank int) {
	mine := l.cfg.Draw(l.cfg.Node, n)
	for _, name := range l.order {
		if p := l.peers[name]; p.lives() && !p.Closed && before(name, l.cfg.Draw(name, n), l.cfg.Node, mine) {
			rank++
		}
	}
	return rank
}

// best returns the relay that should hold a shard which this one holds: empty if this one takes none, and no other does.
func (l *Lease) best(now time.Time, n int, open bool) (best string) {
	var most uint64
	consider := func(name string) {
		if draw := l.cfg.Draw(name, n); best == "" || before(name, draw, best, most) {
			best, most = name, draw
		}
	}
	if open {
		consider(l.cfg.Node)
	}
	for _, name := range l.order {
		if p := l.peers[name]; p.lives() && !p.Closed && (p.passed.IsZero() || now.Sub(p.passed) >= passedTime) {
			consider(name)
		}
	}
	return best
}

// before reports whether relay a, with its draw, ranks before relay b.
func before(a string, draw uint64, b string, other uint64) bool {
	return draw > other || draw == other && a < b
}
