package takeover

import (
	"net/netip"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// spacePatience is how long a session that was found waits for the states of its space.
// Without them its links would end, and its client would see every state go and come. A
// client that has something to say gives up after three seconds; one that only listens
// can wait.
const spacePatience = 10 * time.Second

// readsPerSecond is how many logs an edge reads per second for clients that no edge
// claims. Datagrams can be forged, so it needs a bound.
const readsPerSecond = 500

// moveAfter is after how many datagrams that came to another worker a session goes there.
// The kernel sends a client always to the same socket, and cannot be asked to which, so a
// session that was taken over without a datagram is at any worker at first.
const moveAfter = 16

// Intercept decides about a datagram that came over an edge, or directly if edge is empty,
// and was forwarded hops times. It reports false if the datagram is the endpoint's.
func (t *Takeover) Intercept(now time.Time, from netip.AddrPort, p []byte, edge string, hops uint8) bool {
	if _, ok := t.cfg.Endpoint.Conn(from); !ok && len(p) > 0 && t.interceptOrphan(now, from, orphan{p, edge, hops}) {
		return true
	}
	t.notePath(now, from, edge)
	return false
}

func (t *Takeover) interceptOrphan(now time.Time, from netip.AddrPort, o orphan) bool {
	request := wire.Command(o.data[0]) == wire.CommandConnectionRequest
	switch {
	case t.byAddr[from] != nil: // it is being taken over, or was given away
		t.notePath(now, from, o.edge)
		t.hold(now, from, o)
		return true
	case t.cfg.Endpoint.Greets(from):
		return false
	case request && t.draining.on:
		return t.greetElsewhere(now, from, o)
	}
	place := t.locate(now, from)
	if place.Kind == Elsewhere {
		if place.Node != o.edge && t.forward(place.Node, from, o) { // not back to where it came from
			return true
		}
		t.withdraw(from, place.Node)
		place = t.locate(now, from)
	}
	switch {
	case place.Kind == Nowhere:
		return false
	case place.Kind == Here && place.Worker != t.cfg.Worker:
		t.pass(place.Worker, from, o)
		return true
	}
	first, ok := t.hold(now, from, o)
	if first {
		t.lookUp(now, from, request)
	}
	return ok || !request // a request that cannot wait counts as that of a new client
}

func (t *Takeover) locate(now time.Time, from netip.AddrPort) Place {
	defer t.host.ReturnLocations()
	return t.host.BorrowLocations().Locate(now, t.client(from))
}

// withdraw forgets the hint that another edge serves a client, because that edge cannot be
// reached.
func (t *Takeover) withdraw(from netip.AddrPort, node string) {
	t.host.BorrowLocations().Withdraw(t.client(from), node)
	t.host.ReturnLocations()
}

// greetElsewhere lets another edge greet a client, because this one leaves. The client's
// next datagrams go there, too: a balancer may send them all here, and no log has the client
// before it has proved its address. It reports false if there is no such edge.
func (t *Takeover) greetElsewhere(now time.Time, from netip.AddrPort, o orphan) bool {
	node := t.host.View().successor(t.name(from))
	if node == "" || !t.forward(node, from, o) {
		return false
	}
	t.elsewhere(now, from, node)
	return true
}

// Passed counts a datagram of a client that came to another worker of this edge. After
// some of them that worker gets the session.
func (t *Takeover) Passed(client netip.AddrPort, by int) {
	s := t.byAddr[client]
	if s == nil || s.phase != Serving && s.phase != Revalidating || s.path.Edge != "" || t.draining.on {
		return
	}
	if s.misplaced++; s.misplaced == moveAfter {
		s.phase, s.toWorker = HandingOver, by
		s.log.HandOver(t.cfg.Node)
		t.wake(s)
	}
}

// ForwardTo forwards what a client said, and says, to the edge that has its session.
func (t *Takeover) ForwardTo(now time.Time, client netip.AddrPort, node string) {
	t.elsewhere(now, client, node)
	t.forwardHeld(now, client, node)
}

// lookUp finds out which edge serves a client whose datagrams wait. It does not ask the
// affinity about a session that this edge is taking over or has just given away: the
// affinity knows only the last owner, which would take the session back from the next one.
func (t *Takeover) lookUp(now time.Time, from netip.AddrPort, request bool) {
	name := t.name(from)
	switch {
	case t.present(name):
		if !t.passHeld(from) {
			t.orphans.askLater(now, from)
		}
	case !t.cfg.Affinity:
		t.unclaimed(now, from, request)
	default:
		t.host.Find(Question{Name: name, why: heldDatagrams, client: from, request: request})
	}
}

// passHeld gives what waits to the worker of this edge that has the client's session.
func (t *Takeover) passHeld(from netip.AddrPort) bool {
	worker, _, ok := t.host.BorrowLocations().Server(t.client(from))
	t.host.ReturnLocations()
	if !ok || worker == t.cfg.Worker {
		return false
	}
	for _, o := range t.orphans.remove(from) {
		t.pass(worker, from, o)
	}
	return true
}

// locatedHeld handles the answer of the affinity about a client whose datagrams wait.
func (t *Takeover) locatedHeld(now time.Time, q Question, s cluster.Served, err error) {
	switch {
	case !t.orphans.waiting(q.client) || t.byAddr[q.client] != nil:
	case t.passHeld(q.client):
	case err != nil || s.Node == "":
		t.unclaimed(now, q.client, q.request)
	case s.Alive && s.Node != t.cfg.Node && !t.host.View().dead(s.Node) && t.forwardHeld(now, q.client, s.Node):
	default:
		q.Seen = s
		t.host.Try(q)
	}
}

// triedHeld handles the answer whether this edge may take over the session of a client whose
// datagrams wait.
func (t *Takeover) triedHeld(now time.Time, q Question, s cluster.Served, err error) {
	switch {
	case !t.orphans.waiting(q.client):
	case err != nil || s.Trying == t.cfg.Node:
		t.adopt(q.Name, q.client, false)
	case s.Node != q.Seen.Node && s.Alive && t.forwardHeld(now, q.client, s.Node): // another edge was faster
	default: // another edge tries
		t.orphans.askLater(now, q.client)
	}
}

// askAgain looks up clients whose sessions other edges were taking over.
func (t *Takeover) askAgain(now, next time.Time) time.Time {
	for {
		from, at := t.orphans.due(now, next)
		if !from.IsValid() {
			return at
		}
		t.lookUp(now, from, false)
	}
}

// unclaimed handles a client that no edge claims. A ConnectionRequest is that of a new
// client; for any other datagram the edge reads the log.
func (t *Takeover) unclaimed(now time.Time, from netip.AddrPort, request bool) {
	if request || !t.reads.spend(now, max(1, readsPerSecond/t.host.Workers())) {
		t.receiveHeld(now, from)
		return
	}
	t.adopt(t.name(from), from, true)
}

// adopt begins to take a session over, unless this worker has it already. With yields, it
// leaves the session to the edge that owns it, if that edge lives.
func (t *Takeover) adopt(name string, client netip.AddrPort, yields bool) *Session {
	if s := t.byName[name]; s != nil && s.log.Phase() != sessionlog.Over {
		return s
	}
	s := &Session{name: name, client: client, phase: Looking, yields: yields, toWorker: -1, log: sessionlog.Adopt(t.log, name)}
	t.setPath(s, Path{Unknown: true})
	if client.IsValid() {
		t.inferPath(s)
	}
	t.enter(s)
	t.wake(s)
	return s
}

// Give has this worker take over a session that another edge or another worker gave to it.
// path is the return path to its client. asker is the subject of the edge that waits to hear
// that the session has a new owner; it may be empty.
func (t *Takeover) Give(name string, path Path, asker string) {
	if s := t.byName[name]; s != nil && s.phase == Given {
		t.forget(s) // it comes back
	}
	s := t.adopt(name, netip.AddrPort{}, false)
	s.asker = asker
	if s.log.Phase() == sessionlog.Owning { // this edge does not know yet that it lost the session
		s.givenBack = &path
		t.revalidate(s)
		return
	}
	if !path.Unknown {
		t.setPath(s, path)
	}
}

// found decides about a session that the log has.
func (t *Takeover) found(now time.Time, s *Session, a sessionlog.Action) {
	about, ok := parseAbout(a.Info.About)
	switch {
	case !ok:
		t.host.Warn("refusing to take over session: its description in the log cannot be read", "log", s.name)
		t.forget(s)
		return
	case about.Listener != t.cfg.Listener: // only its log says so
		t.forget(s)
		t.host.AdoptAt(about.Listener, s.name)
		return
	case s.yields && a.Node != t.cfg.Node && t.host.View().alive(a.Node) && t.yield(now, s, a.Node):
		return
	}
	if s.client = a.Info.Addr; t.byAddr[s.client] != nil && t.byAddr[s.client] != s {
		t.forget(s)
		return
	}
	t.inferPath(s)
	t.enter(s)
	s.about, s.deadline, s.phase = about, now.Add(spacePatience), AwaitingSpace
	t.host.Follow(now, about.Space)
	t.awaiting = append(t.awaiting, s)
}

// yield leaves a session to the edge that has it. It reports false if datagrams of the
// client came here and cannot be forwarded.
func (t *Takeover) yield(now time.Time, s *Session, node string) bool {
	if s.client.IsValid() && !t.forwardHeld(now, s.client, node) {
		return false
	}
	t.forget(s)
	return true
}

// advanceAwaiting claims the sessions whose spaces are complete.
func (t *Takeover) advanceAwaiting(now, next time.Time) time.Time {
	t.awaiting = slices.DeleteFunc(t.awaiting, func(s *Session) bool {
		switch {
		case s.phase != AwaitingSpace:
			return true
		case t.host.Follow(now, s.about.Space):
			s.phase = Claiming
			s.log.Claim()
			t.wake(s)
			return true
		case !now.Before(s.deadline):
			t.forget(s)
			return true
		}
		next = earlier(next, s.deadline)
		return false
	})
	return next
}

// adopted serves a session that this edge has taken over.
func (t *Takeover) adopted(now time.Time, s *Session) {
	feed := t.host.Resume(now, s)
	if feed == nil {
		return // the next action says why
	}
	t.counts.SessionsAdopted++
	s.feed = feed
	t.serve(s)
	t.receiveHeld(now, s.client)
	t.reply(s)
}

// serve notes that this edge owns a session.
func (t *Takeover) serve(s *Session) {
	if s.phase = Serving; s.log.Revalidating() {
		s.phase = Revalidating
	}
	t.claim(s)
}

// gone handles that there is no session to take over. The datagrams that wait may be those
// of a client that logs in.
func (t *Takeover) gone(now time.Time, s *Session) {
	t.reply(s)
	t.settle(s.name)
	if s.client.IsValid() {
		t.nowhere(now, s.client)
		t.receiveHeld(now, s.client)
	}
}
