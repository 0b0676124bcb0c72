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

// edgeReadsPerSecond is how many logs an edge reads per second for clients that no edge
// claims. Datagrams can be forged, so it needs a bound.
const edgeReadsPerSecond = 500

// moveAfter is after how many datagrams that came to another worker a session goes there.
// The kernel sends a client always to the same socket, and cannot be asked to which, so a
// session that was taken over without a datagram is at any worker at first.
const moveAfter = 16

// An adopter finds out where orphan datagrams belong, and takes sessions over.
type adopter struct {
	*base
	awaiting []*Session // in the phase AwaitingSpace, oldest first
	reads    budget     // of logs, for clients that no edge claims
}

// Intercept decides about a datagram that came over an edge, or directly if edge is empty,
// and was forwarded hops times. It reports false if the datagram is the endpoint's.
func (a *adopter) Intercept(now time.Time, from netip.AddrPort, p []byte, edge string, hops uint8) bool {
	if _, ok := a.cfg.Endpoint.Conn(from); !ok && len(p) > 0 && a.interceptOrphan(now, from, orphan{p, edge, hops}) {
		return true
	}
	a.notePath(now, from, edge)
	return false
}

func (a *adopter) interceptOrphan(now time.Time, from netip.AddrPort, o orphan) bool {
	request := wire.Command(o.data[0]) == wire.CommandConnectionRequest
	switch {
	case a.byAddr[from] != nil: // the session is being taken over, or was given away
		a.notePath(now, from, o.edge)
		a.hold(now, from, o)
		return true
	case a.cfg.Endpoint.Greets(from):
		return false
	case request && a.leaving:
		return a.greetElsewhere(now, from, o)
	}
	place := a.locate(now, from)
	if place.Kind == placeElsewhere {
		if place.Node != o.edge && a.forward(place.Node, from, o) { // not back to where it came from
			return true
		}
		a.withLocations(func(l *Locations) { l.Withdraw(a.clientKey(from), place.Node) }) // that edge does not serve it or cannot be reached
		place = a.locate(now, from)
	}
	switch {
	case place.Kind == placeNowhere:
		return false
	case place.Kind == placeHere && place.Worker != a.cfg.Worker:
		a.pass(place.Worker, from, o)
		return true
	}
	first, ok := a.hold(now, from, o)
	if first {
		a.lookUp(now, from, request)
	}
	return ok || !request // a request that cannot wait counts as that of a new client
}

func (a *adopter) locate(now time.Time, from netip.AddrPort) (p place) {
	a.withLocations(func(l *Locations) { p = l.locate(now, a.clientKey(from)) })
	return p
}

// greetElsewhere lets another edge greet a client, because this one leaves. The client's
// next datagrams go there, too: a balancer may send them all here, and no log has the client
// before it has proved its address. It reports false if there is no such edge.
func (a *adopter) greetElsewhere(now time.Time, from netip.AddrPort, o orphan) bool {
	node := a.host.View().successor(a.name(from))
	if node == "" || !a.forward(node, from, o) {
		return false
	}
	a.hintElsewhere(now, from, node)
	return true
}

// Misplaced counts a datagram of a client that came to another worker of this edge, by. After
// moveAfter of them that worker gets the session. A client that comes over another edge does
// not count: the forwarder, not a socket, chooses its worker.
func (a *adopter) Misplaced(client netip.AddrPort, by int) {
	s := a.byAddr[client]
	if s == nil || s.phase != Serving && s.phase != Revalidating || s.path.Edge != "" || a.leaving {
		return
	}
	if s.misplaced++; s.misplaced == moveAfter {
		s.phase, s.toWorker = HandingOver, by
		s.log.HandOver(a.cfg.Node)
		a.wake(s)
	}
}

// ForwardTo forwards what a client said, and says, to the edge that has its session.
func (a *adopter) ForwardTo(now time.Time, client netip.AddrPort, node string) {
	a.hintElsewhere(now, client, node)
	a.forwardHeld(now, client, node)
}

// lookUp finds out which edge serves a client whose datagrams wait. It does not ask the
// affinity about a session that this edge is taking over or has just given away: the
// affinity knows only the last owner, and asking would make an edge take the session back
// from the next one.
func (a *adopter) lookUp(now time.Time, from netip.AddrPort, request bool) {
	name := a.name(from)
	switch {
	case a.present(name):
		if !a.passHeld(from) {
			a.orphans.askLater(now, from)
		}
	case !a.cfg.Affinity:
		a.unclaimed(now, from, request)
	default:
		a.host.Find(Question{Name: name, why: forHeldDatagrams, client: from, request: request})
	}
}

// passHeld gives what waits to the worker of this edge that has the client's session.
func (a *adopter) passHeld(from netip.AddrPort) bool {
	worker, ok := 0, false
	a.withLocations(func(l *Locations) { worker, _, ok = l.Server(a.clientKey(from)) })
	if !ok || worker == a.cfg.Worker {
		return false
	}
	for _, o := range a.orphans.remove(from) {
		a.pass(worker, from, o)
	}
	return true
}

// locatedHeld handles the answer of the affinity about a client whose datagrams wait.
func (a *adopter) locatedHeld(now time.Time, q Question, s cluster.Served, err error) {
	switch {
	case !a.orphans.waiting(q.client) || a.byAddr[q.client] != nil:
	case a.passHeld(q.client):
	case err != nil || s.Node == "":
		a.unclaimed(now, q.client, q.request)
	case s.Alive && s.Node != a.cfg.Node && !a.host.View().hasLeft(s.Node) && a.forwardHeld(now, q.client, s.Node):
	default:
		q.Seen = s
		a.host.Try(q)
	}
}

// triedHeld handles the answer whether this edge may take over the session of a client whose
// datagrams wait.
func (a *adopter) triedHeld(now time.Time, q Question, s cluster.Served, err error) {
	switch {
	case !a.orphans.waiting(q.client):
	case err != nil || s.Trying == a.cfg.Node:
		a.adopt(q.Name, q.client, false)
	case s.Node != q.Seen.Node && s.Alive && a.forwardHeld(now, q.client, s.Node): // another edge was faster
	default: // another edge tries
		a.orphans.askLater(now, q.client)
	}
}

// askAgain looks up clients whose sessions other edges were taking over. It looks a client that
// requests a connection up like any other: where an edge tried, the log may have a session.
func (a *adopter) askAgain(now, next time.Time) time.Time {
	for {
		from, at := a.orphans.due(now, next)
		if !from.IsValid() {
			return at
		}
		a.lookUp(now, from, false)
	}
}

// unclaimed handles a client that no edge claims. A ConnectionRequest is that of a new
// client; for any other datagram the edge reads the log. Over the budget of reads the datagram
// is the endpoint's, which ignores most of those of a client without a connection; the client
// repeats what is reliable.
func (a *adopter) unclaimed(now time.Time, from netip.AddrPort, request bool) {
	if request || !a.reads.spend(now, max(1, edgeReadsPerSecond/a.host.Workers())) {
		a.receiveHeld(now, from)
		return
	}
	a.adopt(a.name(from), from, true)
}

// adopt begins to take a session over, unless this worker has it already. With yields, it
// leaves the session to the edge that owns it, if that edge lives.
func (a *adopter) adopt(name string, client netip.AddrPort, yields bool) *Session {
	if s := a.byName[name]; s != nil && s.log.Phase() != sessionlog.Over {
		return s
	}
	s := &Session{name: name, client: client, phase: Looking, yields: yields, toWorker: -1, log: sessionlog.Adopt(a.log, name)}
	a.setPath(s, Path{Unknown: true})
	if client.IsValid() {
		a.inferPath(s)
	}
	a.enter(s)
	a.wake(s)
	return s
}

// Give has this worker take over a session that another edge or another worker gave to it.
// path is the return path to its client. asker is the subject of the edge that waits to hear
// that the session has a new owner; it may be empty.
func (a *adopter) Give(name string, path Path, asker string) {
	if s := a.byName[name]; s != nil && s.phase == Given {
		a.forget(s) // it comes back
	}
	s := a.adopt(name, netip.AddrPort{}, false)
	s.asker = asker
	if s.log.Phase() == sessionlog.Owning { // this edge does not know yet that it lost the session
		s.givenBack = &path
		a.revalidate(s)
		return
	}
	if !path.Unknown {
		a.setPath(s, path)
	}
}

// found decides about a session that the log has.
func (a *adopter) found(now time.Time, s *Session, action sessionlog.Action) {
	about, ok := parseAbout(action.Info.About)
	switch {
	case !ok:
		a.host.Warn("refusing to take over session: its description in the log cannot be read", "log", s.name)
		a.forget(s)
		return
	case s.yields && action.Node != a.cfg.Node && a.host.View().inRoster(action.Node) && a.yield(now, s, action.Node):
		return
	case about.Listener != a.cfg.Listener: // only its log says so; that listener's worker yields no more
		a.forget(s)
		a.host.AdoptAt(about.Listener, s.name)
		return
	}
	if s.client = action.Info.Addr; a.byAddr[s.client] != nil && a.byAddr[s.client] != s {
		a.forget(s)
		return
	}
	a.inferPath(s)
	a.enter(s)
	s.about, s.deadline, s.phase = about, now.Add(spacePatience), AwaitingSpace
	a.host.Follow(now, about.Space)
	a.awaiting = append(a.awaiting, s)
}

// yield leaves a session to the edge that owns it. It reports false if the client's datagrams
// come here and cannot be forwarded. If those that were held have expired meanwhile, the
// client's next datagram shows whether that edge can be reached.
func (a *adopter) yield(now time.Time, s *Session, node string) bool {
	switch {
	case !s.client.IsValid(): // no datagram came
	case !a.cfg.Forwards:
		return false
	case !a.orphans.waiting(s.client):
		a.hintElsewhere(now, s.client, node)
	case !a.forwardHeld(now, s.client, node):
		return false
	}
	a.forget(s)
	return true
}

// advanceAwaiting claims the sessions whose spaces are complete.
func (a *adopter) advanceAwaiting(now, next time.Time) time.Time {
	a.awaiting = slices.DeleteFunc(a.awaiting, func(s *Session) bool {
		switch {
		case s.phase != AwaitingSpace:
			return true
		case a.host.Follow(now, s.about.Space):
			s.phase = Adopting
			s.log.Claim()
			a.wake(s)
			return true
		case !now.Before(s.deadline):
			a.forget(s)
			return true
		}
		next = earlier(next, s.deadline)
		return false
	})
	return next
}

// adopted serves a session that this edge has taken over.
func (a *adopter) adopted(now time.Time, s *Session) {
	feed := a.host.Resume(now, s)
	if feed == nil {
		return // the next action says why
	}
	a.counts.SessionsAdopted++
	s.feed = feed
	a.serve(s)
	a.receiveHeld(now, s.client)
	a.reply(s)
}

// serve notes that this edge owns a session.
func (a *adopter) serve(s *Session) {
	if s.phase = Serving; s.log.Revalidating() {
		s.phase = Revalidating
	}
	a.publishClaim(s)
}

// gone handles that there is no session to take over. The datagrams that wait may be those
// of a client that logs in. The claim of a dead edge on the session stays until the affinity
// forgets it: this edge can release only its own.
func (a *adopter) gone(now time.Time, s *Session) {
	a.reply(s)
	a.settle(s.name)
	if s.client.IsValid() {
		a.hintNowhere(now, s.client)
		a.receiveHeld(now, s.client)
	}
}
