package edge

import (
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// readsPerSecond is how many logs an edge reads per second for clients of whom the
// affinity knows nothing. Datagrams can be forged, so it needs a bound.
const readsPerSecond = 500

// A readBudget is what is left of them.
type readBudget struct {
	second int64
	spent  int
}

func (b *readBudget) take(now time.Time, most int) bool {
	if s := now.Unix(); s != b.second {
		*b = readBudget{second: s}
	}
	b.spent++
	return b.spent <= most
}

// lookUp finds out who serves a client whose datagrams wait. There is nothing to find out
// about a session that a worker of this edge takes over by its name, or has just given away:
// the affinity knows its last owner only, who would take it back from the next one.
func (k *keeper) lookUp(now time.Time, from netip.AddrPort, request bool) {
	name := k.name(from)
	if k.w.edge.names.has(name, k.w.edge.workers) {
		if !k.passHeld(from) {
			k.strays.askLater(now, from)
		}
		return
	}
	if k.d.Affinity == nil {
		k.unclaimed(now, from, request)
		return
	}
	k.d.Affinity.Find(name, func(s cluster.Served, err error) {
		k.w.post(0, func(_ *Worker, now time.Time) { k.served(now, from, request, s, err) })
	})
}

// served takes the answer of the affinity.
func (k *keeper) served(now time.Time, from netip.AddrPort, request bool, s cluster.Served, err error) {
	e := k.w.edge
	switch {
	case k.strays.byAddr[from] == nil || k.byAddr[from] != nil:
	case k.passHeld(from):
	case err != nil || s.Node == "":
		k.unclaimed(now, from, request)
	case s.Alive && s.Node != e.cfg.Node && !e.roster.dead(s.Node) && k.forwardHeld(now, from, s.Node):
	default:
		k.try(from, s)
	}
}

// passHeld gives what waits to the worker of this edge that has the client's session.
func (k *keeper) passHeld(from netip.AddrPort) bool {
	to := k.w.edge.directory.worker(place{from, k.w.listener})
	if to == nil || to == k.w {
		return false
	}
	for _, h := range k.strays.take(from) {
		k.passOver(from, h)
	}
	return true
}

// try asks to be the one who takes the session over.
func (k *keeper) try(from netip.AddrPort, seen cluster.Served) {
	name := k.name(from)
	k.d.Affinity.Try(name, seen, func(s cluster.Served, err error) {
		k.w.post(0, func(_ *Worker, now time.Time) {
			switch {
			case k.strays.byAddr[from] == nil:
			case err != nil || s.Trying == k.w.edge.cfg.Node:
				k.adopt(name, from, false)
			case s.Node != seen.Node && s.Alive && k.forwardHeld(now, from, s.Node): // somebody was faster
			default: // somebody is at it
				k.strays.askLater(now, from)
			}
		})
	})
}

// askAgain looks those up whom somebody else was taking over.
func (k *keeper) askAgain(now, next time.Time) time.Time {
	for {
		from, at := k.strays.due(now, next)
		if !from.IsValid() {
			return at
		}
		k.lookUp(now, from, false)
	}
}

// unclaimed handles a client that nobody says to serve. A request is that of a new
// client; for anything else the log is asked.
func (k *keeper) unclaimed(now time.Time, from netip.AddrPort, request bool) {
	if request || !k.reads.take(now, max(1, readsPerSecond/len(k.w.edge.workers))) {
		k.letIn(now, from)
		return
	}
	k.adopt(k.name(from), from, true)
}

// adopt begins to take a session over. unsure says that it may be served elsewhere.
func (k *keeper) adopt(name string, client netip.AddrPort, unsure bool) *kept {
	if x := k.byName[name]; x != nil && x.core.Phase() != sessionlog.Over {
		return x
	}
	x := &kept{k: k, name: name, addr: client, unsure: unsure, core: sessionlog.Adopt(k.cfg, name)}
	k.setWay(x, way{unheard: true})
	if client.IsValid() {
		k.heard(x)
	}
	k.enter(x)
	k.wake(x)
	return x
}

// gone takes it that there is no session to take over: the datagrams that wait may be
// those of a client that logs in.
func (k *keeper) gone(now time.Time, x *kept) {
	x.answerAsker()
	k.settle(k.lost.byName[x.name])
	if x.addr.IsValid() {
		k.strays.learn(x.addr, "", now.Add(nobodyTime))
		k.letIn(now, x.addr)
	}
}
