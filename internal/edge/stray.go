package edge

import (
	"bytes"
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// Bounds of datagrams whose client this worker does not serve. They wait until it is
// known who does, or the session is taken over; a client says everything reliable again
// after half a second.
const (
	straysPerClient = 8
	straysMax       = 4096 // clients
	strayTime       = 250 * time.Millisecond
	askAgainTime    = 50 * time.Millisecond
	routesMax       = 65_536 // clients of whom it is remembered who serves them
	routeTime       = 2 * time.Second
	nobodyTime      = time.Second
)

// strays are datagrams that wait, and what is known about clients that others serve.
type strays struct {
	byAddr map[netip.AddrPort]*stray
	order  []*stray // in the order of their time
	asked  []*stray // of whom is asked again, the first first
	routes map[netip.AddrPort]route
}

// A stray is the datagrams of one client.
type stray struct {
	addr  netip.AddrPort
	until time.Time
	again time.Time // when to ask again who serves the client; zero for never
	list  []held
}

type held struct {
	data []byte
	via  string
	hops uint8
}

// A route is the edge that serves a client; empty if nobody does.
type route struct {
	node  string
	until time.Time
}

func newStrays() strays {
	return strays{byAddr: make(map[netip.AddrPort]*stray), routes: make(map[netip.AddrPort]route)}
}

// hold keeps a datagram. It reports whether it is the first of its client, and whether
// there was room.
func (s *strays) hold(now time.Time, from netip.AddrPort, h held) (first, ok bool) {
	x := s.byAddr[from]
	switch {
	case x == nil && len(s.byAddr) >= straysMax, x != nil && len(x.list) >= straysPerClient:
		return false, false
	case x == nil:
		first = true
		x = &stray{addr: from, until: now.Add(strayTime)}
		s.byAddr[from] = x
		s.order = append(s.order, x)
	}
	h.data = bytes.Clone(h.data)
	x.list = append(x.list, h)
	return first, true
}

// via returns over which edge the newest datagram of a client came that waits.
func (s *strays) via(from netip.AddrPort) string {
	if x := s.byAddr[from]; x != nil {
		return x.list[len(x.list)-1].via
	}
	return ""
}

// take returns the datagrams of a client, which do not wait any more.
func (s *strays) take(from netip.AddrPort) []held {
	x := s.byAddr[from]
	if x == nil {
		return nil
	}
	delete(s.byAddr, from)
	list := x.list
	x.list = nil
	return list
}

// advance forgets what waited for too long, and returns when there is more to do.
func (s *strays) advance(now, next time.Time) time.Time {
	for len(s.order) > 0 && !s.order[0].until.After(now) {
		if x := s.order[0]; s.byAddr[x.addr] == x {
			delete(s.byAddr, x.addr)
		}
		s.order[0] = nil
		s.order = s.order[1:]
	}
	if len(s.order) > 0 {
		return earlier(next, s.order[0].until)
	}
	return next
}

// askLater has it asked again who serves a client whose datagrams wait.
func (s *strays) askLater(now time.Time, from netip.AddrPort) {
	if x := s.byAddr[from]; x.again.IsZero() {
		x.again = now.Add(askAgainTime)
		s.asked = append(s.asked, x)
	}
}

// due returns a client of whom it is time to ask again, if there is one, and otherwise when
// there is more to do.
func (s *strays) due(now, next time.Time) (netip.AddrPort, time.Time) {
	for len(s.asked) > 0 {
		x := s.asked[0]
		if x.again.After(now) {
			return netip.AddrPort{}, earlier(next, x.again)
		}
		s.asked[0] = nil
		s.asked = s.asked[1:]
		x.again = time.Time{}
		if s.byAddr[x.addr] == x {
			return x.addr, now
		}
	}
	return netip.AddrPort{}, next
}

// learn remembers who serves a client.
func (s *strays) learn(from netip.AddrPort, node string, until time.Time) {
	if len(s.routes) >= routesMax {
		clear(s.routes) // they are asked for again
	}
	s.routes[from] = route{node, until}
}

// elsewhere remembers that the session of a client is at another edge.
func (s *strays) elsewhere(now time.Time, from netip.AddrPort, node, self string) {
	if node != "" && node != self && from.IsValid() {
		s.learn(from, node, now.Add(routeTime))
	}
}

// misled forgets that a node serves a client.
func (s *strays) misled(from netip.AddrPort, node string) {
	if s.routes[from].node == node {
		delete(s.routes, from)
	}
}

// route returns who serves a client; an empty node is nobody.
func (s *strays) route(now time.Time, from netip.AddrPort) (node string, known bool) {
	r, ok := s.routes[from]
	if ok && !r.until.After(now) {
		delete(s.routes, from)
		ok = false
	}
	return r.node, ok
}

// takes decides about a datagram. It reports false for one that is the endpoint's.
func (k *keeper) takes(now time.Time, from netip.AddrPort, p []byte, via string, hops uint8) bool {
	if _, ok := k.w.ep.Conn(from); ok || len(p) == 0 {
		return false
	}
	request := wire.Command(p[0]) == wire.CommandConnectionRequest
	h := held{p, via, hops}
	switch {
	case k.byAddr[from] != nil: // it is being taken over
		k.comesOver(now, from, via)
		_, ok := k.strays.hold(now, from, h)
		k.countHeld(ok)
		return true
	case k.w.ep.Greets(from):
		return false
	case request && k.drain.on:
		return k.greetElsewhere(now, from, h)
	}
	if node, known := k.strays.route(now, from); known {
		if node == "" {
			return false
		}
		if k.forward(node, from, h) {
			return true
		}
		delete(k.strays.routes, from)
	}
	if k.passOver(from, h) {
		return true
	}
	first, ok := k.strays.hold(now, from, h)
	k.countHeld(ok)
	if first {
		k.lookUp(now, from, request)
	}
	return ok || !request // a request that cannot wait is taken for that of a new client
}

func (k *keeper) countHeld(ok bool) {
	if ok {
		k.w.counts.StraysHeld++
	} else {
		k.w.counts.StraysDropped++
	}
}

// forward sends a datagram to the edge that serves its client.
func (k *keeper) forward(node string, from netip.AddrPort, h held) bool {
	if k.d.Forward == nil {
		return false
	}
	if h.hops >= hopsMax {
		k.w.counts.StraysDropped++
		return true // it went around for long enough
	}
	if !k.d.Forward.Forward(node, k.w.listener, from, h.hops, h.data) {
		return false
	}
	k.w.counts.StraysForwarded++
	return true
}

// forwardHeld sends what waits to the edge that serves the client.
func (k *keeper) forwardHeld(now time.Time, from netip.AddrPort, node string) bool {
	x := k.strays.byAddr[from]
	if x == nil || len(x.list) == 0 || !k.forward(node, from, x.list[0]) {
		return false
	}
	for _, h := range k.strays.take(from)[1:] {
		k.forward(node, from, h)
	}
	k.strays.learn(from, node, now.Add(routeTime))
	return true
}

// passOver gives a datagram to the worker of this edge that has its client's session.
func (k *keeper) passOver(from netip.AddrPort, h held) bool {
	to := k.w.edge.directory.worker(place{from, k.w.listener})
	if to == nil || to == k.w {
		return false
	}
	data, here := bytes.Clone(h.data), k.w
	to.post(len(data), func(w *Worker, now time.Time) {
		w.Deliver(now, h.via, h.hops, from, data)
		w.keeper.passedOver(from, here)
	})
	k.w.counts.StraysForwarded++
	return true
}

// moveAfter is after how many datagrams that came to another worker a session goes
// there. One that was taken over without a datagram is anywhere at first.
const moveAfter = 16

// passedOver counts datagrams that came to another worker of this edge.
func (k *keeper) passedOver(from netip.AddrPort, by *Worker) {
	x := k.byAddr[from]
	if x == nil || x.session == nil || x.via != "" || k.drain.on {
		return
	}
	if x.strays++; x.strays == moveAfter {
		x.moveTo = by
		x.core.HandOver(k.w.edge.cfg.Node)
		k.wake(x)
	}
}

// release gives what waits to the endpoint.
func (k *keeper) letIn(now time.Time, from netip.AddrPort) {
	for _, h := range k.strays.take(from) {
		k.w.take(now, from, h.data, h.via)
	}
}
