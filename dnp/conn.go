package dnp

import (
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

type connState uint8

const (
	connConnecting  connState = iota // Connect waits for a ConnectionAck
	connEstablished                  // the peer proved its address, or accepted our request
	connClosed                       // EventClosed was reported
)

// A Conn is a connection with one peer. Its methods only queue; the next Advance
// sends. After EventClosed they do nothing or return ErrClosed.
//
// A Conn joins parts that own their state and never hold a Conn: the path to
// the peer, the two windows of reliable commands, the table of links, and, if its
// Endpoint has Config.Logged, the journal.
type Conn struct {
	path
	e      *Endpoint
	data   any
	handle uint32 // place in core.conns
	timer  timer

	state    connState
	client   bool        // we asked for the connection
	inReady  bool        // in Endpoint.ready
	closing  bool        // Close was called
	inOffers bool        // in Endpoint.offers
	reason   CloseReason // of closing

	life      liveness
	connect   connecting
	limit     admit.Allowance
	suspicion suspicion

	send       sendWindow
	recv       recvWindow
	acks       *ackRepeats // nil before the peer repeated a command
	unreliable unreliableLane
	links      linkTable
	log        *journal // nil if the connection does not wait for a log
}

// Addr returns the address of the peer.
func (c *Conn) Addr() netip.AddrPort { return c.addr }

// Data returns what SetData was given.
func (c *Conn) Data() any { return c.data }

// SetData stores a value for the owner.
func (c *Conn) SetData(data any) { c.data = data }

// Established reports whether the connection is made and not closed.
func (c *Conn) Established() bool { return c.state == connEstablished && !c.closing }

// SpeaksLong reports whether the peer is known to understand command 10.
func (c *Conn) SpeaksLong() bool { return c.send.peerLong }

// over reports whether nothing more may be queued.
func (c *Conn) over() bool { return c.state == connClosed || c.closing }

// Close ends the connection: the next Advance sends ConnectionClose and reports
// EventClosed with this reason. With CloseMoved nothing is sent.
func (c *Conn) Close(reason CloseReason) {
	if c.over() && !(c.awaitsEnd() && reason == CloseMoved) {
		return
	}
	c.closing, c.reason = true, reason
	c.wake()
}

// Ask asks the peer for a proof that it receives what it is sent. EventAnswered follows for each
// answer, twice if none is lost, because a stranger may guess one.
func (c *Conn) Ask() {
	if c.Established() {
		c.links.asker().ask()
	}
}

// wake makes the next Advance pump c.
func (c *Conn) wake() {
	if !c.inReady && c.state != connClosed {
		c.inReady = true
		c.e.ready = append(c.e.ready, c)
	}
}

// receive handles a datagram of an established connection.
func (c *Conn) receive(p []byte, now instant, out Sender) {
	cmd, body := wire.Command(p[0]), p[1:]
	switch cmd {
	case wire.CommandConnectionRequest:
		c.receiveRequest(body, now, out)
	case wire.CommandConnectionAck:
		c.e.drop(DropUnexpected)
	case wire.CommandConnectionClose:
		c.receiveClose(body, now, out)
	case wire.CommandMessage:
		c.receiveMessage(body, now)
	case wire.CommandReliableAck:
		c.receiveAck(body, now)
	case wire.CommandLinkUp:
		c.life.hearIf(c.links.receiveAnswer(body, now) || c.links.receiveLinkUp(body, &c.send, now), now)
	case wire.CommandLinkDown:
		c.life.hearIf(c.links.receiveAnswer(body, now) || c.links.receiveLinkDown(body, now), now)
	case wire.CommandLinkUpdate:
		var order wire.Order
		if c.links.ordered {
			body, order = c.e.readTrailer(c.handle, body)
		}
		if r := c.e.cfg.Profile.UpdateReader(body); c.carried && r.KeepAlive() {
			c.life.heard = now // no more: another node may have sent it, because the peer is connected there
			return
		}
		c.life.hearIf(c.links.receiveUpdate(body, order, now), now)
		c.correct(len(p), now, out)
	default:
		if !isReliable(cmd, c.e.cfg.Profile) {
			c.e.drop(DropUnknownCommand)
			return
		}
		c.receiveReliable(cmd, body, now, out)
	}
}

func (c *Conn) receiveMessage(data []byte, now instant) {
	if len(data) == 0 {
		c.e.drop(DropTruncated)
		return
	}
	c.life.hear(now)
	c.e.event(c.handle, Event{Kind: EventMessage, Data: data})
}

// pump sends what is ready and does what is due.
func (c *Conn) pump(now instant, out Sender) {
	c.inReady = false
	switch {
	case c.state == connClosed:
		return
	case c.awaitsEnd():
		c.log.want(needNow)
	case c.closing:
		c.end(c.reason, out)
	case c.log.isMuted():
	case c.state == connConnecting:
		c.connect.advance(c, now, out)
	default:
		c.pumpEstablished(now, out)
	}
	c.settle(now)
}

func (c *Conn) pumpEstablished(now instant, out Sender) {
	if c.log.askWaits(&c.life, &c.send) { // the peer cannot answer
		c.life.postpone(now, c.loss.silence(c.e.cfg.ReliableResend))
	}
	c.recv.giveUp(&c.e.core, c.client, c.log != nil, now)
	if reason, over := c.overdue(now); over {
		c.end(reason, out)
		return
	}
	c.continueStored(now, out)
	c.acks.resend(&c.path, now, out)
	if c.links.question.advance(now, c.loss.copies()) && c.log.isDoubted() {
		c.Close(CloseUncertain)
		return
	}
	if !c.resend(now, out) { // a trial goes before the question behind it
		c.end(c.life.endOf(c.send.givenUp()), out)
		return
	}
	if now >= c.send.probeAt(&c.e.cfg, &c.life, &c.path) {
		c.send.queueProbe(&c.e.cfg)
	}
	if now >= c.life.askAt(&c.e.cfg, c.client) {
		c.life.doubted = true
	}
	if c.life.doubted || c.send.trial() >= 0 {
		c.links.asker().ask()
	}
	if c.send.lapNear() {
		c.send.lap.told = true
		c.e.event(c.handle, Event{Kind: EventLap})
	}
	if c.send.lapOver() {
		c.Close(CloseRecycle)
		return
	}
	c.links.presume(now)
	c.links.scrubSome(now)
	if now >= c.links.flushAt(&c.budget) {
		c.links.flushSoon()
	}
	c.fill(now, 0, out)
	c.unreliable.send(&c.path, out)
	c.links.sendRepeats(&c.path, c.life.heard, now, out)
}

// settle sets the timer of c, and schedules c for offers or at once if it can send more.
func (c *Conn) settle(now instant) {
	if c.state == connClosed {
		return
	}
	if c.life.suspected() { // what asked the peer may be answered, without evidence
		c.life.test(c.links.asker())
	}
	switch {
	case c.closing && !c.awaitsEnd():
		c.wake()
	case !c.closing && !c.log.isMuted() && c.state == connEstablished:
		switch c.choose(now) {
		case takeNothing:
			if c.send.lapNear() || c.send.lapOver() {
				c.wake()
			}
		case takeOther:
			c.wake()
		case takeOffer:
			c.e.offers.add(c)
		}
	}
	c.e.timers.set(&c.timer, c.nextTimeout())
}

func (c *Conn) nextTimeout() instant {
	switch {
	case c.state == connConnecting:
		return min(c.connect.next, c.connect.until(c))
	case c.awaitsEnd(), c.log.isMuted():
		return never
	}
	cfg, now := &c.e.cfg, c.e.clock.now
	at := min(c.send.nextTimeout(cfg, &c.life, c.path.pace(&c.life, now)), c.acks.nextTimeout(), c.recv.dueAt(cfg, c.client, c.log != nil), c.send.probeAt(cfg, &c.life, &c.path),
		c.life.nextTimeout(cfg, c.client), c.links.question.nextTimeout(), c.links.nextTimeout(&c.path), c.links.flushAt(&c.budget))
	if len(c.send.offers) > 0 && c.send.room(cfg.Profile) && !c.inOffers {
		if offer := c.offerAt(now); offer > now {
			at = min(at, offer)
		}
	}
	if message := c.send.messageAt(&c.budget, now); message > now && c.send.messages() && c.send.room(cfg.Profile) {
		at = min(at, message)
	}
	return at
}

// end closes the connection for good and sends the peer ConnectionClose, if that is of any use.
func (c *Conn) end(reason CloseReason, out Sender) {
	if c.log != nil && !c.closing { // a successor may exist, so the owner stores the end first
		c.Close(reason)
		return
	}
	if reason != ClosePeer && reason != CloseMoved && reason != CloseRestarted {
		c.e.closed.tell(c, reason, out)
	}
	c.endSilently(reason)
}

// endSilently closes the connection for good and sends the peer nothing.
func (c *Conn) endSilently(reason CloseReason) {
	c.e.stats.Closes[reason]++
	c.e.event(c.handle, Event{Kind: EventClosed, Reason: reason})
	c.Abandon()
}

// An unreliableLane holds unreliable messages until the next Advance. When it is
// full, it drops the newest: the receiver may not rely on them anyway.
type unreliableLane struct {
	buf  []byte
	ends []int
}

// SendUnreliable queues an unreliable message of 1 to 65,499 bytes, which it
// copies, for the next Advance. It drops and counts the message if too many wait.
// Errors are ErrEmpty, ErrTooLarge and ErrClosed.
func (c *Conn) SendUnreliable(data []byte) error {
	switch l := &c.unreliable; {
	case len(data) == 0:
		return ErrEmpty
	case len(data) > datagramLimit:
		return ErrTooLarge
	case c.over():
		return ErrClosed
	case len(l.ends) >= laneMessages || len(l.buf)+len(data) > laneBytes:
		c.e.drop(DropLaneFull)
	default:
		l.buf = append(l.buf, data...)
		l.ends = append(l.ends, len(l.buf))
		c.wake()
	}
	return nil
}

// send sends the messages, or drops them before values have to wait longer for the budget.
func (l *unreliableLane) send(p *path, out Sender) {
	start := 0
	for _, end := range l.ends {
		data := l.buf[start:end]
		start = end
		if p.budget.overdrawn(p.core.clock.now) {
			p.core.drop(DropBudget)
			continue
		}
		p.emit(wire.AppendMessage(out.Datagram(1+len(data)), data), out)
	}
	l.ends = l.ends[:0]
	if l.buf = l.buf[:0]; cap(l.buf) > 4096 {
		l.buf = nil
	}
}

// A connecting is the client's side of the handshake, which began when liveness.heard says.
type connecting struct {
	next instant // when the next request is sent
}

// Connect asks the server at this address for a connection. EventConnected or
// EventClosed follows. Errors are ErrConnected and ErrConns.
func (e *Endpoint) Connect(now time.Time, to netip.AddrPort) (*Conn, error) {
	t := e.clock.advance(now)
	if e.byAddr[to] != nil {
		return nil, ErrConnected
	}
	if len(e.byAddr) >= connsMax {
		return nil, ErrConns
	}
	c := e.add(to, t)
	c.state, c.client, c.links.ids.connector = connConnecting, true, true
	c.send.long = longTaken // a server is not asked
	c.connect = connecting{next: t}
	c.wake()
	return c, nil
}

// until returns when to give up.
func (a *connecting) until(c *Conn) instant { return c.life.heard.add(c.e.cfg.ConnectTimeout) }

// advance asks the server again, or gives up.
func (a *connecting) advance(c *Conn, now instant, out Sender) {
	switch {
	case now >= a.until(c):
		c.endSilently(CloseTimeout)
	case now >= a.next:
		a.next = now.add(c.e.cfg.ConnectResend)
		c.emit(wire.AppendConnectionRequest(out.Datagram(5)), out)
	}
}

// receiveConnecting handles a datagram while the server has not answered. A client
// ignores everything but the answer (dnp/PROTOCOL.md, Connection and proof).
func (c *Conn) receiveConnecting(p []byte, now instant) {
	if wire.Command(p[0]) != wire.CommandConnectionAck {
		c.e.drop(DropUnexpected)
		return
	}
	m, err := wire.ParseConnectionAck(p[1:])
	switch {
	case err != nil:
		c.e.drop(DropTruncated)
	case m.Result == wire.Accepted && m.Protocol == wire.ProtocolDNP1:
		c.state = connEstablished
		c.e.established(c, now)
	case m.Result == wire.NoCommonProtocol, m.Result == wire.Accepted:
		c.endSilently(CloseNoProtocol)
	default: // unknown results mean rejected
		c.endSilently(CloseRejected)
	}
}

// A ConnSurvey says how a connection is, for people who look at it.
type ConnSurvey struct {
	Up, Offered, Queued int // links that we offer: the peer has them or seems to, it has not answered, it was not sent the offer
	Own                 int // links that the peer offered
	LinksMax, IDsLeft   int // links that we may offer, LinkIds that are left

	Waiting    int // links whose values wait for the budget
	OldestWait time.Duration

	Heard     time.Duration // since the last valid datagram
	Loss      float32       // share of datagrams of both sides that were lost lately
	RoundTrip time.Duration // 0 before the first sample
	Rate      int           // bytes a second that the peer is sent at most; 0 for no limit
	Slowed    float32       // 1, or by how much a crowded path lowers the rate
	Used      float32       // share of the saved budget that is spent
	Blocked   bool          // the way takes no bytes now (Endpoint.SetRoom)
}

// Survey looks at a connection and changes nothing. It takes time for each link.
func (e *Endpoint) Survey(now time.Time, c *Conn) ConnSurvey {
	t, at := &c.links, e.clock.advance(now)
	s := ConnSurvey{
		Own: len(t.peer), LinksMax: e.cfg.LinksMax, IDsLeft: t.ids.usable() - len(t.ids.index),
		Heard: at.sub(c.life.heard), Loss: c.loss.seen, RoundTrip: time.Duration(c.trip.mean) * time.Microsecond,
		Slowed: c.budget.crowd.price, Blocked: c.budget.crowd.room == 0,
	}
	for i := range t.slots {
		switch l := &t.slots[i]; {
		case l.has(linkByPeer):
		case l.phase == LinkQueued:
			s.Queued++
		case l.phase == LinkOffered:
			s.Offered++
		case l.phase >= LinkPresumed:
			s.Up++
		}
	}
	for _, w := range t.waiting {
		if t.slots[w.slot].has(linkWaiting) { // else the link was taken down
			s.Waiting++
			s.OldestWait = max(s.OldestWait, at.sub(w.since))
		}
	}
	if r := &e.rate; r.perByte > 0 {
		s.Rate = int(float64(time.Second) / r.perByte / float64(s.Slowed))
		saved := at.sub(max(c.budget.spent, at.add(-r.burst)))
		s.Used = 1 - float32(max(0, saved))/float32(r.burst)
	}
	return s
}

// SurveyCost returns how many entries Survey has to look at.
func (e *Endpoint) SurveyCost(c *Conn) int { return len(c.links.slots) + len(c.links.waiting) }
