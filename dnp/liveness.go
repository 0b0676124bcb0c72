package dnp

import (
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A ConnectionClose is one byte and a request five, and anybody can forge them. So the
// connection asks the peer, and ends when it has been silent for so long that no answer
// can have been lost (lossEstimate.silence): at least closeDelay, at most silenceMax. After a
// request it is restartMax at most, because a client that starts again gives up after 5 s. A
// client of ours does not wait.
//
// Evidence refutes the suspicion. The first refuted one may have been a late copy of a request.
// After more of them somebody seems to forge, and each doubles the wait, up to the
// ReliableTimeout, after which a silent peer is given up anyhow.
const (
	closeDelay = 2 * time.Second
	silenceMax = 7 * time.Second
	restartMax = 3500 * time.Millisecond
)

// overtakenFor is how long after a ConnectionClose or a request the path may still bring what the peer sent before. Until then
// only answers to what the peer was sent afterwards are evidence.
const overtakenFor = time.Second

// unprompted stands for when something was sent that the peer does not answer but says by itself.
const unprompted = instant(-1)

// Anybody can send messages in the name of a peer that is dead. So a peer that acknowledges
// nothing is asked, whatever else arrives, and the connection ends if it does not answer: 55 s after
// the peer's last acknowledgement. It may lose an answer; there is time for ten.
const (
	askAfter  = 40 * time.Second
	goneAfter = 15 * time.Second // of questions without an answer

	// vagueAcks is how many acknowledgements of nothing between two that are right make the
	// latter worth nothing: somebody guesses. Repeats to a peer that is far away bring some.
	vagueAcks = 4

	// unansweredLeast is how long a peer that commands wait for may acknowledge nothing before its owner is told. On
	// a path with a long round trip it is longer, up to unansweredMost.
	unansweredLeast = 500 * time.Millisecond
	unansweredMost  = time.Second

	// restoredTimeout is how long commands to a peer that was not heard since its connection was restored are
	// repeated. A balancer may send it to a dead edge until then, and let no answer of another edge through.
	restoredTimeout = 30 * time.Second
)

// A liveness is what is known of a peer's life. DNP has no keep-alive, so a silent
// peer may be content, dead, or restarted. The connection asks with a probe: every
// library since 1.2 acknowledges a command 10 without flags and data, and shows it to
// no application. To an older one it would be fatal, so that is asked a question.
type liveness struct {
	heard     instant // when a valid datagram arrived last
	sure      instant // when something arrived last that only the peer is likely to send
	patient   instant // commands count as sent no earlier, when they are given up
	asked     instant // since when a question about sure is on its way; 0 if none is
	suspectAt instant // when the ConnectionClose or request came that nothing contradicts
	closeAt   instant // when a ConnectionClose that nothing contradicts ends the connection; never
	restartAt instant // from when on a request starts a new session, if nothing contradicts the first; never
	wrongAcks uint8   // acknowledgements of nothing, since sure
	spoke     bool    // the peer sent something else than requests
	tested    bool    // the peer was asked since closeAt or restartAt was set
	refuted   uint8   // suspicions that evidence cleared
	doubted   bool    // nothing sure came for long, so the connection asks
	alarms    bool    // EventUnanswered is told
	alarmed   bool    // it was, and nothing was acknowledged since
}

// answered notes something that only the peer can have sent.
func (l *liveness) answered(now instant) {
	l.sure, l.asked, l.wrongAcks, l.doubted, l.alarmed = now, 0, 0, false, false
}

// unansweredAt returns when to tell that a command which was sent first at a time is not answered, on a path of which
// an estimate is known.
func (l *liveness) unansweredAt(first instant, trip roundTrip) instant {
	after := unansweredLeast
	if trip.mean > 0 {
		after = max(after, 4*trip.longest(unansweredMost/4))
	}
	if !l.alarms || l.alarmed {
		return never
	}
	return max(l.sure, first).add(after)
}

// restored is patient with the peer of a connection that was restored.
func (l *liveness) restored(now instant, cfg *Config) {
	l.patient = now.add(max(0, restoredTimeout-cfg.ReliableTimeout))
}

// givesUpAt returns when a command that was sent first at a time is given up.
func (l *liveness) givesUpAt(cfg *Config, first instant) instant {
	return max(first, l.patient).add(cfg.ReliableTimeout)
}

// questioned notes that a question was sent, which on a logged connection has to be stored before.
func (l *liveness) questioned(now instant) {
	if l.doubted && l.asked == 0 {
		l.asked = now
	}
}

// An Endpoint that is called so late stood still, with its process or its machine. Where processors are short that happens over and over;
// shorter pauses let it repeat a command often enough before it gives the command up.
const standstill = time.Second

// stoodStill has the time d since the last call not count for what peers must do in time: the Endpoint heard and repeated nothing
// meanwhile.
func (e *core) stoodStill(d time.Duration) {
	for _, c := range e.conns {
		if c == nil || c.state != connEstablished {
			continue
		}
		c.send.stoodStill(&c.life, d)
		for _, at := range []*instant{&c.life.closeAt, &c.life.restartAt} {
			if *at != never {
				*at = at.add(d)
			}
		}
		if c.life.asked != 0 {
			c.life.asked = c.life.asked.add(d)
		}
		c.recv.stoodStill(d)
		e.timers.set(&c.timer, c.nextTimeout())
	}
}

func (l *liveness) vague() bool { return l.wrongAcks == vagueAcks }

// askAt returns when to ask whether the peer lives.
func (l *liveness) askAt(cfg *Config, client bool) instant {
	if cfg.LivenessInterval <= 0 || client || l.doubted {
		return never
	}
	return l.sure.add(askAfter)
}

// goneAt returns when a peer that is asked counts as dead.
func (l *liveness) goneAt() instant {
	if l.asked == 0 {
		return never
	}
	return l.asked.add(goneAfter)
}

// hear notes a datagram that seems to be from a living peer of this session. Anybody can have
// written it, so it clears a suspicion only if the peer could not be asked.
func (l *liveness) hear(now instant) {
	l.heard, l.spoke = now, true
	switch {
	case l.tested:
	case l.overtaken(now, unprompted): // one that cannot be asked has to have the time to say more
		l.postpone(l.suspectAt.add(overtakenFor), closeDelay)
	default:
		l.closeAt, l.restartAt = never, never
	}
}

// prove notes evidence of the peer, which answers what it was sent at a time, or unprompted. It clears all suspicion that the
// session is over, unless it may have been sent before what caused that.
func (l *liveness) prove(now, asked instant) {
	l.heard, l.spoke = now, true
	if l.overtaken(now, asked) {
		return
	}
	if l.suspected() && l.refuted < 8 {
		l.refuted++
	}
	l.tested, l.patient = false, min(l.patient, now)
	l.closeAt, l.restartAt = never, never
}

// suspect notes a reason to suspect that the session is over, and has the peer asked.
func (l *liveness) suspect(now instant, q *question) {
	if !l.suspected() {
		l.suspectAt = now
	}
	l.test(q)
}

// overtaken reports whether a datagram that comes now, and answers what was sent at a time, may have been sent
// before what made the peer suspected.
func (l *liveness) overtaken(now, asked instant) bool {
	return l.suspected() && asked < l.suspectAt && now < l.suspectAt.add(overtakenFor)
}

// suspected reports whether the session may be over.
func (l *liveness) suspected() bool { return l.closeAt != never || l.restartAt != never }

// wait returns how long a suspected peer must be silent, if that is d without earlier suspicions.
func (l *liveness) wait(cfg *Config, d time.Duration) time.Duration {
	if l.refuted <= 1 {
		return d
	}
	return max(d, min(d<<(l.refuted-1), cfg.ReliableTimeout))
}

// postpone has a suspected peer be silent for d from now on.
func (l *liveness) postpone(now instant, d time.Duration) {
	if l.closeAt != never {
		l.closeAt = max(l.closeAt, now.add(d))
	}
	if l.restartAt != never {
		l.restartAt = max(l.restartAt, now.add(min(d, restartMax)))
	}
}

func (l *liveness) hearIf(valid bool, now instant) {
	if valid {
		l.hear(now)
	}
}

func (l *liveness) nextTimeout(cfg *Config, client bool) instant {
	return min(l.closeAt, l.askAt(cfg, client), l.goneAt())
}

// overdue reports whether the connection has to end.
func (c *Conn) overdue(now instant) (CloseReason, bool) {
	switch cfg := &c.e.cfg; {
	case now >= c.life.closeAt:
		return ClosePeer, true
	case now >= c.life.goneAt():
		return CloseTimeout, true
	case now >= c.recv.holeAt(cfg, c.client, c.log != nil): // we acknowledged what is held
		return CloseHole, true
	}
	return 0, false
}

// endOf returns why the connection ends when a command is given up for this reason. A peer that said that it leaves, and nothing since, has left.
func (l *liveness) endOf(givenUp CloseReason) CloseReason {
	if l.closeAt != never {
		return ClosePeer
	}
	return givenUp
}

// receiveClose handles a ConnectionClose. It counts if the peer stays silent after it. A client of ours wants to know
// that it arrived. p is what follows the command.
func (c *Conn) receiveClose(p []byte, now instant, out Sender) {
	if len(p) == closePadding && !c.client && !c.log.isMuted() {
		c.emit(c.e.cfg.Profile.AppendUpdateHead(out.Datagram(closePaddedBytes), 0), out)
	}
	switch {
	case c.client:
		c.life.closeAt = now
		c.wake()
	case c.life.closeAt == never:
		c.life.suspect(now, c.links.asker())
		c.life.closeAt = c.links.question.askedAt(now).add(c.life.wait(&c.e.cfg, c.loss.silence(c.e.cfg.ReliableResend)))
	}
}

// receiveRequest handles a request from an address that has a connection: a late
// copy, a forgery, or a client that started again. A client that connects ignores
// everything but a ConnectionAck, so a peer that sends anything else did not start again.
func (c *Conn) receiveRequest(p []byte, now instant, out Sender) {
	m, err := wire.ParseConnectionRequest(p)
	l := &c.life
	switch {
	case err != nil:
		c.e.drop(DropTruncated)
	case c.client || !m.Offers(wire.ProtocolDNP1):
		c.e.drop(DropUnexpected)
	case !l.spoke: // the ConnectionAck may have been lost
		c.emit(wire.ConnectionAck{}.Append(out.Datagram(4)), out)
	case l.restartAt == never:
		c.e.drop(DropUnexpected)
		l.suspect(now, c.links.asker())
		l.restartAt = min(l.closeAt, now.add(l.wait(&c.e.cfg, min(c.loss.silence(c.e.cfg.ReliableResend), restartMax))))
	case now < l.restartAt, c.log.askWaits(l, &c.send):
		c.e.drop(DropUnexpected)
	default:
		c.startAgain(p, now, out)
	}
}

// test asks the peer for evidence.
func (l *liveness) test(q *question) { l.tested = q.askIfAlive() || l.tested }

// startAgain ends the session and handles the request like one from a new address.
func (c *Conn) startAgain(p []byte, now instant, out Sender) {
	e, addr := c.e, c.addr
	reason := CloseRestarted
	if c.life.closeAt != never {
		reason = ClosePeer
	}
	if c.log != nil { // when the end is stored, the peer asks again
		c.Close(reason)
		return
	}
	c.endSilently(reason)
	e.receiveRequest(addr, p, now, out)
}

// limited reports whether to ignore a datagram because there are too many in the name of the
// peer. It counts the datagram.
func (e *Endpoint) limited(c *Conn, p []byte, now instant) bool {
	at := time.Duration(now)
	if c.client || c.limit.Take(e.cfg.Rate, at, p) {
		return false
	}
	if v := e.evidence(c, p); v == awaited || v != noEvidence && c.limit.TakeSpare(at, v == newCommand) {
		return false
	}
	e.drop(DropRate)
	return true
}

// An attacker who forges datagrams of a client without seeing its traffic has to guess
// numbers, and one number in 6,500 fits. Many that do not fit are an attack, or a client
// that is badly broken.
const (
	suspectMisses = 50          // reliable numbers outside the window
	suspectTime   = time.Second // in which they arrive
	suspectPause  = time.Minute // between two alarms of a connection
)

// A suspicion counts the reliable numbers of a connection that are outside the window.
type suspicion struct {
	misses uint8
	since  instant // the first of them
	quiet  instant // no alarm before
}

// miss counts a number and reports whether to raise the alarm.
func (s *suspicion) miss(now instant) (alarm bool) {
	if s.misses == 0 || now.sub(s.since) >= suspectTime {
		s.misses, s.since = 0, now
	}
	if s.misses++; s.misses <= suspectMisses {
		return false
	}
	s.misses = 0
	if now < s.quiet {
		return false
	}
	s.quiet = now.add(suspectPause)
	return true
}

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

// tell sends a ConnectionClose, and remembers to repeat it if that is of any use.
func (s *closedPeers) tell(c *Conn, reason CloseReason, out Sender) {
	now := c.e.clock.now
	p := closedPeer{addr: c.addr, again: never, until: now.add(closeRemembered), answers: closeAnswers}
	switch {
	case c.client && c.state == connEstablished && reason == CloseLocal:
		p.leave(&c.trip, now)
	case c.client, c.carried, reason == CloseUncertain: // the server is gone, or never was there; the way tells the peer; the peer may be another server's
		c.emit(wire.AppendConnectionClose(out.Datagram(1)), out)
		return
	default:
		p.repeat(&c.trip, now)
		if reason != CloseTimeout { // that one does not hear
			p.repeats = uint8(closeRepeats * (1 + c.loss.copies()))
			p.again = p.answer
		}
	}
	c.emit(p.appendClose(out.Datagram(closePaddedBytes)), out)
	if !s.add(p) {
		c.e.drop(DropClosesFull)
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

// resend sends the repeats that are due, and forgets peers.
func (s *closedPeers) resend(e *core, now instant, out Sender) {
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

// receive handles a datagram of a peer that was told that its connection ended. It reports false if the datagram
// begins something new, or has nothing to do with that.
func (s *closedPeers) receive(e *core, from netip.AddrPort, p []byte, now instant, out Sender) bool {
	c := s.byAddr[from]
	if c == nil {
		return false
	}
	cmd := wire.Command(p[0])
	switch {
	case cmd == wire.CommandConnectionRequest:
		s.remove(from)
		return false
	case c.client && (cmd == wire.CommandConnectionClose || isSignOfLife(e, p)), !c.client && cmd == wire.CommandConnectionClose:
		s.remove(from) // it knows
	case !c.client && c.answers > 0 && now >= c.answer && !isSignOfLife(e, p):
		c.answers--
		c.answer = now.add(c.pause)
		e.send(from, c.appendClose(out.Datagram(closePaddedBytes)), out)
	}
	e.drop(DropStranger)
	return true
}

func isSignOfLife(e *core, p []byte) bool {
	r := e.cfg.Profile.UpdateReader(p[1:])
	return wire.Command(p[0]) == wire.CommandLinkUpdate && r.KeepAlive()
}
