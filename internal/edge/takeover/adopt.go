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

// outdatedAfter is how long a session that was found waits for a replica that has all states to which
// the links of its client are bound, but may have missed changes. The holder of the space answers sooner if there is one. If its
// node is lost, the next one needs seconds, in which the client would give up.
const outdatedAfter = 300 * time.Millisecond

// edgeReadsPerSecond is how many logs an edge reads per second for clients that no edge
// claims. Datagrams can be forged, so it needs a bound.
const edgeReadsPerSecond = 500

// How many questions per second about strangers an edge asks the affinity. Datagrams that
// may begin a session need no question: without one they are the endpoint's, which proves
// the address of who logs in while too many do, and the log finds out if another edge has
// the session. All others may be those of sessions that a balancer has moved here, and it
// moves many at once.
const (
	edgeJoinsPerSecond  = 250
	edgeOthersPerSecond = 500
	edgeOthersBurst     = 16_384
)

// moveAfter is after how many datagrams that came to another worker a session goes there.
// The kernel sends a client always to the same socket, and cannot be asked to which, so a
// session that was taken over without a datagram is at any worker at first.
const moveAfter = 16

// Intercept decides about a datagram that came over an edge, or directly if edge is empty,
// and was forwarded hops times. It reports false if the datagram is the endpoint's.
func (b *base) Intercept(now time.Time, from netip.AddrPort, p []byte, edge string, hops uint8) bool {
	if _, ok := b.cfg.Endpoint.Conn(from); !ok && len(p) > 0 && b.interceptOrphan(now, from, orphan{p, edge, hops}) {
		return true
	}
	b.noteWay(now, from, orphan{p, edge, hops})
	return false
}

func (b *base) interceptOrphan(now time.Time, from netip.AddrPort, o orphan) bool {
	request := wire.Command(o.data[0]) == wire.CommandConnectionRequest
	greeted := b.cfg.Endpoint.Unproven(from) // perhaps because of a forged request
	switch {
	case b.byAddr[from] != nil: // the session is being taken over, or was given away
		b.noteWay(now, from, o)
		b.hold(now, from, o)
		return true
	case greeted && b.cfg.Endpoint.MayProve(from, o.data):
		return false
	case request && b.leaving:
		return b.greetElsewhere(now, from, o)
	}
	kind, worker, node := b.locations.locate(now, b.client(from))
	if kind == placeElsewhere {
		if node != o.edge && b.forward(node, from, o) { // not back to where it came from
			return true
		}
		b.locations.Withdraw(b.client(from), node) // that edge does not serve it or cannot be reached
		kind, worker, _ = b.locations.locate(now, b.client(from))
	}
	switch {
	case kind == placeNowhere, greeted && !ofSession(o.data):
		return false
	case kind == placeHere && worker != b.cfg.Worker:
		b.pass(worker, from, o)
		return true
	}
	if !b.orphans.waiting(from) && !b.mayAsk(now, o.data) {
		return false
	}
	first, ok := b.hold(now, from, o)
	if first {
		b.lookUp(now, from, request)
	}
	// A request that cannot wait counts as that of a new client, unless others wait in its name,
	// which may be forged: what the endpoint greets it does not forward.
	return ok || !request || b.orphans.waiting(from)
}

// mayAsk reports whether the edge may find out about one more client of which it knows nothing,
// because of a datagram.
func (b *base) mayAsk(now time.Time, p []byte) bool {
	workers := float64(b.host.Workers())
	if b.cfg.Endpoint.MayBegin(p) {
		return b.joins.take(now, edgeJoinsPerSecond/workers, edgeJoinsPerSecond/workers)
	}
	return b.others.take(now, edgeOthersPerSecond/workers, edgeOthersBurst/workers)
}

// ofSession reports whether a datagram of a client that is greeted, but no answer to the greeting, is a reason to
// look for the client's session. Its owner may have died, and a forged request must not keep the edge from taking
// the session over.
func ofSession(p []byte) bool {
	cmd, _, numbered := wire.Numbered(p)
	return numbered || cmd == wire.CommandLinkUp || cmd == wire.CommandLinkDown
}

// greetElsewhere lets another edge greet a client, because this one leaves. The client's
// next datagrams go there, too: a balancer may send them all here, and no log has the client
// before it has proved its address. It reports false if there is no such edge.
func (b *base) greetElsewhere(now time.Time, from netip.AddrPort, o orphan) bool {
	node := b.host.View().successor(b.name(from))
	if node == "" || !b.forward(node, from, o) {
		return false
	}
	b.hintElsewhere(now, from, node)
	return true
}

// Misplaced counts a datagram of a client that came to another worker of this edge, by, before it
// is delivered. After moveAfter of them that worker gets the session. A datagram that is no
// evidence of the client does not count: a forged one can come to another address of the machine.
// A client that comes over another edge does not count: the forwarder, not a socket, chooses its
// worker.
func (b *base) Misplaced(client netip.AddrPort, by int, p []byte) {
	s := b.byAddr[client]
	if s == nil || !s.stays() || s.path.Edge != "" || b.leaving || !b.cfg.Endpoint.Evident(s.Log.Conn(), p) {
		return
	}
	if s.misplaced++; s.misplaced == moveAfter {
		s.departure, s.toWorker = handingOver, by
		s.Log.HandOver(b.cfg.Node)
		b.wake(s)
	}
}

// ForwardTo forwards what a client said, and says, to the edge that has its session.
func (b *base) ForwardTo(now time.Time, client netip.AddrPort, node string) {
	b.hintElsewhere(now, client, node)
	b.forwardHeld(now, client, node)
}

// lookUp finds out which edge serves a client whose datagrams wait. It does not ask the
// affinity about a session that this edge is taking over or has just given away: the
// affinity knows only the last owner, and asking would make an edge take the session back
// from the next one.
func (b *base) lookUp(now time.Time, from netip.AddrPort, request bool) {
	name := b.name(from)
	switch {
	case b.locations.present(name):
		if !b.passHeld(from) {
			b.orphans.askLater(now, from)
		}
	case b.cfg.Affinity == nil:
		b.unclaimed(now, from, request)
	default:
		b.find(name, func(now time.Time, s cluster.Served, err error) { b.locatedHeld(now, name, from, request, s, err) })
	}
}

// passHeld gives what waits to the worker of this edge that has the client's session.
func (b *base) passHeld(from netip.AddrPort) bool {
	worker, _, ok := b.locations.Server(b.client(from))
	if !ok || worker == b.cfg.Worker {
		return false
	}
	for _, o := range b.orphans.remove(from) {
		b.pass(worker, from, o)
	}
	return true
}

// locatedHeld handles the answer of the affinity about a client whose datagrams wait.
func (b *base) locatedHeld(now time.Time, name string, from netip.AddrPort, request bool, seen cluster.Served, err error) {
	switch {
	case !b.orphans.waiting(from) || b.byAddr[from] != nil:
	case b.passHeld(from):
	case err != nil || seen.Node == "":
		b.unclaimed(now, from, request)
	case seen.Alive && seen.Node != b.cfg.Node && !b.host.View().gone[seen.Node] &&
		!b.orphans.over(from, seen.Node) && b.forwardHeld(now, from, seen.Node):
	case b.host.View().alone: // without an attempt, which would keep others from taking over what this edge leaves to its owner
		b.adoptClaimed(name, from, seen)
	default:
		b.try(name, seen, func(now time.Time, s cluster.Served, err error) {
			switch {
			case !b.orphans.waiting(from):
			case err != nil || s.Trying == b.cfg.Node:
				b.adoptClaimed(name, from, seen)
			case s.Node != seen.Node && s.Alive && b.forwardHeld(now, from, s.Node): // another edge was faster
			case seen.Alive && b.orphans.asked(from) >= asksMax:
				b.unclaimed(now, from, false)
			default: // another edge tries
				b.orphans.askLater(now, from)
			}
		})
	}
}

// askAgain looks up clients whose sessions other edges were taking over, and drops datagrams that
// waited for too long. It looks a client that requests a connection up like any other: where an
// edge tried, the log may have a session.
func (b *base) askAgain(now, next time.Time) time.Time {
	for {
		from, at := b.orphans.advance(now, next)
		if !from.IsValid() {
			return at
		}
		b.lookUp(now, from, false)
	}
}

// unclaimed handles a client that no edge claims, or whose living owner is not reached while another edge
// tries. A ConnectionRequest is that of a new client; for any other datagram the edge reads the log. Over the rate of reads the datagram
// is the endpoint's, which ignores most of those of a client without a connection; the client
// repeats what is reliable.
func (b *base) unclaimed(now time.Time, from netip.AddrPort, request bool) {
	rate := edgeReadsPerSecond / float64(b.host.Workers())
	if request || !b.reads.take(now, rate, rate) {
		b.receiveHeld(now, from)
		return
	}
	b.adopt(b.name(from), from, true)
}

// adoptClaimed begins to take over the session of a client whose datagrams wait, with what the affinity
// says of it.
func (b *base) adoptClaimed(name string, client netip.AddrPort, seen cluster.Served) {
	if s := b.adopt(name, client, true); seen.Alive {
		s.alive = seen.Node
	}
}

// adopt begins to take a session over, unless this worker has it already. With yields, it
// leaves the session to the edge that owns it, if that edge lives.
func (b *base) adopt(name string, client netip.AddrPort, yields bool) *Session {
	if s := b.byName[name]; s != nil && s.Log.Phase() != sessionlog.Over {
		return s
	}
	s := &Session{name: name, client: client, yields: yields, toWorker: -1, Log: sessionlog.Adopt(b.log, name)}
	b.setPath(s, Path{Unknown: true})
	if client.IsValid() {
		b.inferPath(s)
	}
	b.enter(s)
	b.wake(s)
	return s
}

// lateTime is how long datagrams of a carried client may still come by an edge that it has left.
const lateTime = time.Second

// Give has this worker take over a session that another edge or another worker gave to it.
// path is the return path to its client. asker is the subject of the edge that waits to hear
// that the session has a new owner; it may be empty.
func (b *base) Give(name string, path Path, asker string) {
	if s := b.byName[name]; s != nil && s.departure == given {
		b.forget(s) // it comes back
	}
	s := b.adopt(name, netip.AddrPort{}, false)
	s.asker = asker
	if s.Log.Phase() == sessionlog.Owning { // this edge does not know yet that it lost the session
		s.givenBack = &path
		b.revalidate(s)
		return
	}
	if !path.Unknown {
		s.named, s.left, s.leftUntil = true, path.Edge, b.turned.Add(lateTime)
		b.setPath(s, path)
	}
}

func (b *base) found(now time.Time, s *Session, action sessionlog.Action) {
	about, ok := parseAbout(action.Info.About)
	living := b.mayLive(s, &action)
	s.found = action.Epoch
	switch {
	case !ok:
		b.host.Warn("refusing to take over session: its description in the log cannot be read", "log", s.name)
		b.forget(s)
		return
	case !s.permitted.IsZero() && now.Sub(s.permitted) > permissionTime: // the next list of claims shows whether the owner is dead
		b.forget(s)
		return
	case living && b.yield(now, s, action.Node):
		return
	case about.Listener != b.cfg.Listener: // only its log says so; that listener's worker yields no more
		b.forget(s)
		b.host.AdoptAt(about.Listener, s.name)
		return
	}
	if s.client = action.Info.Addr; b.byAddr[s.client] != nil && b.byAddr[s.client] != s {
		b.forget(s)
		return
	}
	if !s.named {
		b.inferPath(s)
	}
	b.enter(s)
	s.About, s.deadline, s.outdated = about, now.Add(spacePatience), now.Add(outdatedAfter)
	s.refs = nil
	b.host.Follow(now, about.Space)
	b.awaiting = append(b.awaiting, s)
}

// mayLive reports whether another edge owns a session that was found, and may be alive, so that this one
// should yield.
func (b *base) mayLive(s *Session, found *sessionlog.Action) bool {
	view := b.host.View()
	switch owner := found.Node; {
	case owner == "", owner == b.cfg.Node:
		return false
	case s.found != 0 && found.Epoch > s.found: // it took the session over while this edge tried to
		return true
	case !s.yields, owner == s.dead, s.unclaimed:
		return false
	case view.inRoster(owner):
		return true
	default:
		return owner == s.alive || s.permitted.IsZero() && view.alone
	}
}

// yield leaves a session to the edge that owns it. It reports false if the client's datagrams
// come here and cannot be forwarded, and one of them is evidence that the client wrote it: no
// datagram that anybody can write takes a session from an edge that lives. If those that were
// held have expired meanwhile, the client's next datagram shows whether that edge can be reached.
func (b *base) yield(now time.Time, s *Session, node string) bool {
	switch {
	case !s.client.IsValid(): // no datagram came
	case b.cfg.Forward != nil && !b.orphans.waiting(s.client):
		b.hintElsewhere(now, s.client, node)
	case b.forwardHeld(now, s.client, node):
	case b.orphans.any(s.client, s.Log.Evident):
		return false
	default:
		b.orphans.askLater(now, s.client)
	}
	b.forget(s)
	return true
}

// advanceAwaiting claims the sessions whose spaces are complete.
func (b *base) advanceAwaiting(now, next time.Time) time.Time {
	b.awaiting = slices.DeleteFunc(b.awaiting, func(s *Session) bool {
		switch {
		case s.departure == gone || s.Log.Phase() != sessionlog.Found:
			return true
		case b.host.Follow(now, s.About.Space), b.knows(now, s):
			s.Log.Claim()
			b.wake(s)
			return true
		case !now.Before(s.deadline):
			b.forget(s)
			return true
		}
		next = earlier(next, earlier(s.deadline, s.outdated))
		return false
	})
	return next
}

// inquiryMax is how many of the sessions that wait for their spaces Adopting looks at.
const inquiryMax = 2048

// Adopting returns the session of a client that the worker is taking over, as far as its log was read, and the phase
// of that.
func (b *base) Adopting(space, client string) (id, phase string, ok bool) {
	for _, s := range b.awaiting[:min(len(b.awaiting), inquiryMax)] {
		if s.About.Client == client && s.About.Space == space && s.adopting() {
			return s.About.ID, s.Log.Phase().String(), true
		}
	}
	return "", "", false
}

// knows reports whether a session may be taken over although the replica of its space may have missed
// changes. It looks each outdatedAfter.
func (b *base) knows(now time.Time, s *Session) bool {
	if now.Before(s.outdated) {
		return false
	}
	s.outdated = now.Add(outdatedAfter)
	if s.refs == nil {
		s.refs = s.Log.Refs()
	}
	return b.host.Knows(s, s.refs)
}

// adopted serves a session that this edge has taken over.
func (b *base) adopted(now time.Time, s *Session) {
	feed := b.host.Serve(now, s)
	if feed == nil {
		return // the next action says why
	}
	b.counts.SessionsAdopted++
	s.feed = feed
	b.publishClaim(s)
	if len(s.others.list) > 0 { // nothing that came shows by which way the client comes
		b.ask(s)
	}
	b.receiveHeld(now, s.client)
	b.reply(s)
}

// nothingFound handles that there is no session to take over. The datagrams that wait may be those
// of a client that logs in. The claim of a dead edge on the session stays until the affinity
// forgets it: this edge can release only its own.
func (b *base) nothingFound(now time.Time, s *Session) {
	b.reply(s)
	if s.client.IsValid() {
		b.locations.hint(now, b.client(s.client), "")
		b.receiveHeld(now, s.client)
	}
}
