package edge

import (
	"net/netip"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
)

// adoptionsPerSecond is how many sessions of a dead edge this one takes over per second.
const adoptionsPerSecond = 2000

// inheritMax bounds the sessions that wait for that. More are taken over when a
// datagram of their client comes.
const inheritMax = 131_072

// silent are the sessions of dead edges that this one is to take over although nothing
// was heard of their clients. The first worker does it for the edge.
type silent struct {
	queue []bequest
	again []retry
	next  time.Time // when the next may go
}

// A bequest is a session by the name of its log, and the dead edge that had it.
type bequest struct{ name, node string }

// A retry is a dead node whose sessions are to be listed again.
type retry struct {
	node   string
	rounds int
	at     time.Time
}

// How often the affinity is asked for the sessions of a dead node: claims are listed for
// two minutes, and what was taken over in one round is nobody's business in the next. A
// round that failed, or a session that somebody began to take over in vain, is due again.
const (
	inheritRounds = 12
	inheritPause  = 10 * time.Second
	inheritRetry  = time.Second // when the affinity does not answer
)

// inherit takes over what this edge is the heir of, and all that an earlier process of its
// own had, because the others may not have noticed that one's end.
func (e *Edge) inherit(node string, rounds int) {
	e.cfg.Durable.Affinity.Claimed(node, func(names []string) {
		for _, name := range names {
			if node == e.cfg.Node || e.roster.heir(name, true) == e.cfg.Node {
				e.workers[0].keeper.leave(name, node)
			}
		}
	}, func(err error) {
		e.workers[0].post(0, func(w *Worker, now time.Time) {
			r := retry{node, rounds - 1, now.Add(inheritPause)}
			if err != nil {
				r = retry{node, rounds, now.Add(inheritRetry)}
			}
			if q := &w.keeper.silent; r.rounds > 0 && len(q.again) < goneMax {
				q.again = append(q.again, r)
			}
		})
	})
}

// leave adds a session that a dead node had, from any goroutine.
func (k *keeper) leave(name, node string) {
	k.w.post(len(name), func(w *Worker, _ time.Time) {
		if len(k.silent.queue) < inheritMax {
			k.silent.queue = append(k.silent.queue, bequest{name, node})
		}
	})
}

// advanceSilent takes over as many as may be and returns when there is more to do.
func (k *keeper) advanceSilent(now, next time.Time) time.Time {
	q := &k.silent
	q.again = slices.DeleteFunc(q.again, func(r retry) bool {
		if r.at.After(now) {
			next = earlier(next, r.at)
			return false
		}
		if r.node != k.w.edge.cfg.Node && k.w.edge.roster.alive(r.node) {
			return true // it is back, and looks after them by itself
		}
		k.w.edge.inherit(r.node, r.rounds)
		return true
	})
	if k.drain.on {
		q.queue = nil
	}
	for len(q.queue) > 0 && !q.next.After(now) {
		if q.next.IsZero() || now.Sub(q.next) > beat {
			q.next = now
		}
		q.next = q.next.Add(time.Second / adoptionsPerSecond)
		b := q.queue[0]
		q.queue = q.queue[1:]
		k.inherit(b)
	}
	if len(q.queue) > 0 {
		next = earlier(next, q.next)
	}
	return next
}

// inherit takes a session over unless somebody else has it by now, or another worker.
func (k *keeper) inherit(b bequest) {
	if k.w.edge.names.has(b.name, k.w.edge.workers) {
		return
	}
	aff := k.d.Affinity
	aff.Find(b.name, func(seen cluster.Served, err error) {
		if err == nil && seen.Node != b.node {
			return
		}
		aff.Try(b.name, seen, func(s cluster.Served, err error) {
			if err == nil && s.Trying != k.w.edge.cfg.Node {
				return
			}
			unsure := err != nil // without the affinity, only the log knows
			k.w.post(0, func(*Worker, time.Time) { k.adopt(b.name, netip.AddrPort{}, unsure) })
		})
	})
}

// adoptAt lets a worker of a listener take over a session by its name.
func (e *Edge) adoptAt(listener uint16, name string) {
	var b [4]byte
	copy(b[:], name) // as good as random
	if w := e.workerOf(listener, uint32(b[0])|uint32(b[1])<<8|uint32(b[2])<<16); w != nil {
		w.post(len(name), func(w *Worker, now time.Time) { w.adopt(name, way{unheard: now}, "") })
	}
}
