package dnp

import (
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A ConnectionClose is one datagram without an acknowledgement. So an Endpoint that ends a connection sends it again.
//
// A server repeats it a few times, and answers what the peer still sends. A request of the peer, which begins something
// new, ends that. Libraries use another port for each connection, and so does a client that was told at once.
//
// A client repeats it more often, because it wants to end and the server knows no other sign, with two bytes behind the
// command. Receivers ignore them, but our servers answer them with a LinkUpdate without links, which everybody
// ignores but a client that waits for it. The answer is not longer than the question. Forged, it stops
// the repeats.
const (
	closeRepeats     = 2 // of a server, and two for each copy of lossEstimate.copies
	closeAnswers     = 8
	closePauseLeast  = 100 * time.Millisecond
	closePauseUsual  = 250 * time.Millisecond // without a round trip that is known
	closePauseMost   = time.Second
	closeRemembered  = 5 * time.Second // as admit remembers a session that ended
	closedPeersMax   = 1024
	leaveRepeats     = 9 // of a client
	leavePauseLeast  = 20 * time.Millisecond
	leavePauseUsual  = 50 * time.Millisecond
	leavePauseMost   = 100 * time.Millisecond
	closeGrid        = 5 * time.Millisecond
	closePadding     = 2
	closePaddedBytes = 1 + closePadding
)

// A closedPeer is one that is told, or was, that its connection ended.
type closedPeer struct {
	addr    netip.AddrPort
	client  bool    // we are the client
	again   instant // when the next repeat is due; never
	until   instant // when the peer is forgotten
	answer  instant // no answer before
	pause   time.Duration
	repeats uint8 // that are left
	answers uint8 // that are left
	over    bool  // not in closedPeers.byAddr any more
}

// closedPeers are the closed peers of an Endpoint, closedPeersMax at most: the ones behind are not remembered, and are sent
// their ConnectionClose once.
type closedPeers struct {
	byAddr  map[netip.AddrPort]*closedPeer
	list    []*closedPeer // in the order in which they ended, with those that are over
	next    instant       // when to look at the list
	leaving int           // of which we are the client
}

// add remembers a peer that was sent a ConnectionClose, and reports whether there was room.
func (s *closedPeers) add(p closedPeer) bool {
	s.remove(p.addr)
	if len(s.byAddr) >= closedPeersMax {
		return false
	}
	if s.byAddr == nil {
		s.byAddr, s.next = make(map[netip.AddrPort]*closedPeer), never
	}
	s.byAddr[p.addr] = &p
	s.list = append(s.list, &p)
	if p.client {
		s.leaving++
	}
	s.next = min(s.next, p.again, p.until)
	return true
}

// remove forgets a peer.
func (s *closedPeers) remove(addr netip.AddrPort) {
	p := s.byAddr[addr]
	if p == nil {
		return
	}
	delete(s.byAddr, addr)
	p.over = true
	if p.client {
		s.leaving--
	}
	s.next = 0 // the list is due
}

func (s *closedPeers) nextTimeout() instant {
	if len(s.list) == 0 {
		return never
	}
	return s.next
}

// Leaving reports whether the Endpoint repeats to a server that a connection which it made has ended. Its owner may
// wait for that, about a second at most, by going on with Receive and Advance.
func (e *Endpoint) Leaving() bool { return e.closed.leaving > 0 }

// sendClose sends a ConnectionClose, and remembers to repeat it if that is of any use.
func (e *Endpoint) sendClose(c *Conn, reason CloseReason, out Sender) {
	now := e.clock.now
	p := closedPeer{addr: c.addr, again: never, until: now.add(closeRemembered), answers: closeAnswers}
	switch {
	case c.client && c.state == connEstablished && reason == CloseLocal:
		p.leave(&c.trip, now)
	case c.client, c.carried, reason == CloseUncertain: // the server is gone, or never was there; the way tells the peer; the peer may be another server's
		c.emit(wire.AppendConnectionClose(out.Datagram(1)), out)
		return
	default:
		p.repeat(&c.trip, now)
		if reason != CloseTimeout && reason != CloseIdle { // those do not hear
			p.repeats = uint8(closeRepeats * (1 + c.loss.copies()))
			p.again = p.answer
		}
	}
	c.emit(p.appendClose(out.Datagram(closePaddedBytes)), out)
	if !e.closed.add(p) {
		e.drop(DropClosesFull)
	}
}

// leave has a client repeat its ConnectionClose.
func (p *closedPeer) leave(trip *roundTrip, now instant) {
	p.client, p.answers, p.repeats = true, 0, leaveRepeats
	p.pause = leavePauseUsual
	if trip.mean > 0 {
		p.pause = min(max(time.Duration(trip.mean)*time.Microsecond/2, leavePauseLeast), leavePauseMost)
	}
	p.again, p.until = now.add(p.pause).upTo(closeGrid), now.add((leaveRepeats+1)*p.pause)
}

// repeat sets the pause of a server, in which a peer that connects again has sent a request.
func (p *closedPeer) repeat(trip *roundTrip, now instant) {
	p.pause = closePauseUsual
	if trip.mean > 0 {
		p.pause = min(max(time.Duration(trip.mean)*time.Microsecond*3/2, closePauseLeast), closePauseMost)
	}
	p.answer = now.add(p.pause).upTo(closeGrid)
}

// appendClose appends a ConnectionClose.
func (p *closedPeer) appendClose(b []byte) []byte {
	b = wire.AppendConnectionClose(b)
	if p.client {
		b = append(b, make([]byte, closePadding)...)
	}
	return b
}

// repeatCloses sends the repeats that are due, and forgets peers.
func (e *Endpoint) repeatCloses(now instant, out Sender) {
	s := &e.closed
	if s.nextTimeout() > now {
		return
	}
	next, stay := never, s.list[:0]
	for _, p := range s.list {
		switch {
		case p.over:
			continue
		case now >= p.until:
			s.remove(p.addr)
			continue
		case now >= p.again:
			e.send(p.addr, p.appendClose(out.Datagram(closePaddedBytes)), out)
			if p.repeats--; p.repeats == 0 {
				p.again = never
			} else {
				p.again = now.add(p.pause).upTo(closeGrid)
			}
		}
		next = min(next, p.again, p.until)
		stay = append(stay, p)
	}
	clear(s.list[len(stay):])
	s.list, s.next = stay, next
}

// receiveClosed handles a datagram of a peer that was told that its connection ended. It reports false if the datagram
// begins something new, or has nothing to do with that.
func (e *Endpoint) receiveClosed(from netip.AddrPort, p []byte, now instant, out Sender) bool {
	s := &e.closed
	c := s.byAddr[from]
	if c == nil {
		return false
	}
	cmd := wire.Command(p[0])
	switch {
	case cmd == wire.CommandConnectionRequest:
		s.remove(from)
		return false
	case c.client && (cmd == wire.CommandConnectionClose || e.isSignOfLife(p)), !c.client && cmd == wire.CommandConnectionClose:
		s.remove(from) // it knows
	case !c.client && c.answers > 0 && now >= c.answer && !e.isSignOfLife(p):
		c.answers--
		c.answer = now.add(c.pause)
		e.send(from, c.appendClose(out.Datagram(closePaddedBytes)), out)
	}
	e.drop(DropStranger)
	return true
}

func (e *Endpoint) isSignOfLife(p []byte) bool {
	r := e.cfg.Profile.UpdateReader(p[1:])
	return wire.Command(p[0]) == wire.CommandLinkUpdate && r.KeepAlive()
}

// answerClose answers a client that wants to know that its ConnectionClose arrived. p is what follows the command.
func (c *Conn) answerClose(p []byte, out Sender) {
	if len(p) == closePadding && !c.client && !c.log.isMuted() {
		c.emit(c.e.cfg.Profile.AppendUpdateHead(out.Datagram(closePaddedBytes), 0), out)
	}
}
