package edge

import (
	"net/netip"
	"time"
)

// A client may come over another edge, to which its balancer sends it, and a balancer that
// tracks connections lets only answers of that edge through. Over which edge a client with
// a session comes its kept says. Others are guests: of them it is remembered for a while
// and in bounds, because anybody can forge their addresses. A guest that is forgotten is
// answered directly until its next datagram, which names its edge again.
const (
	guestsMax = 4096
	guestTime = 5 * time.Second // a client that waits for something repeats itself sooner
)

// guests are clients without a session that come over other edges.
type guests struct {
	byAddr map[netip.AddrPort]*guest
	order  []*guest // each once, in the order of their turns
}

type guest struct {
	addr  netip.AddrPort
	via   string // empty if it came directly since then
	until time.Time
	turn  time.Time // when to look whether it has to be forgotten
}

func newGuests() guests { return guests{byAddr: make(map[netip.AddrPort]*guest)} }

// note remembers over which edge a client comes; empty for none. It reports whether
// another client was forgotten for that.
func (g *guests) note(now time.Time, addr netip.AddrPort, via string) (displaced bool) {
	x := g.byAddr[addr]
	if x == nil {
		if via == "" {
			return false
		}
		if displaced = len(g.order) >= guestsMax; displaced {
			g.forgetFirst()
		}
		x = &guest{addr: addr, turn: now.Add(guestTime)}
		g.byAddr[addr] = x
		g.order = append(g.order, x)
	}
	x.via, x.until = via, now.Add(guestTime)
	return displaced
}

// via returns over which edge a client comes.
func (g *guests) via(addr netip.AddrPort) string {
	if x := g.byAddr[addr]; x != nil {
		return x.via
	}
	return ""
}

// advance forgets those that were silent for too long.
func (g *guests) advance(now time.Time) {
	for len(g.order) > 0 && !g.order[0].turn.After(now) {
		x := g.forgetFirst()
		if x.until.After(now) {
			x.turn = x.until
			g.byAddr[x.addr] = x
			g.order = append(g.order, x)
		}
	}
}

func (g *guests) forgetFirst() *guest {
	x := g.order[0]
	g.order[0] = nil
	g.order = g.order[1:]
	delete(g.byAddr, x.addr)
	return x
}

// comesOver notes over which edge a datagram of a client came; empty for none.
func (k *keeper) comesOver(now time.Time, client netip.AddrPort, via string) {
	if via == "" && k.direct() {
		return
	}
	if x := k.byAddr[client]; x != nil {
		k.setWay(x, way{via: via})
	} else if k.guests.note(now, client, via) {
		k.w.counts.GuestsDisplaced++
	}
}

// direct reports whether all clients are known to come directly.
func (k *keeper) direct() bool { return k.over == 0 && len(k.guests.byAddr) == 0 }

// A way is how the datagrams of a client come: directly, if it is zero.
//
// Where a balancer tracks connections (AnswerOnly), the first datagram must be the client's:
// one that an edge sends before leaves an entry for the pair of addresses, and when the
// client's datagrams come to that node, the entry is taken, and they get another source port.
// So nothing is sent to a client that is unheard. Elsewhere it is sent to directly, and none is.
type way struct {
	via     string // edge that they come over
	unheard bool   // none came yet
}

// setWay says how the client of a session comes.
func (k *keeper) setWay(x *kept, to way) {
	to.unheard = to.unheard && k.d.AnswerOnly
	if x.way != (way{}) {
		k.over--
	}
	if x.way = to; to != (way{}) {
		k.over++
	}
}

// heard sets the way of the client of a session that is being taken over to what is known
// of datagrams that came.
func (k *keeper) heard(x *kept) {
	if k.strays.byAddr[x.addr] != nil {
		k.setWay(x, way{via: k.strays.via(x.addr)})
	} else if g := k.guests.byAddr[x.addr]; g != nil && x.via == "" {
		k.setWay(x, way{via: g.via})
	}
}
