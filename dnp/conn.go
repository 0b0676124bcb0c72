package dnp

import (
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

type connState uint8

const (
	connConnecting  connState = iota // Connect waits for a ConnectionAck
	connEstablished                  // the peer proved its address, or accepted ours
	connClosed                       // EventClosed was reported
)

// A Conn is a connection with one peer. Its methods only queue; the next Advance
// sends. After EventClosed they do nothing or return ErrClosed.
type Conn struct {
	e      *Endpoint
	addr   netip.AddrPort
	data   any
	handle uint32 // place in the Endpoint's list
	timer  timer

	state      connState
	client     bool        // we asked for the connection
	queued     bool        // in the Endpoint's list of connections that have something to send
	flushing   bool        // in the Endpoint's list of connections that have values to send
	speaksLong bool        // the peer understands command 10
	talked     bool        // the peer sent something else than requests
	recycled   bool        // EventRecycle was reported
	closing    bool        // Close was called
	joining    bool        // in the Endpoint's lane for offers
	reason     CloseReason // of closing
	loss       float32     // share of our commands that had to be sent again, lately
	lossWeight uint8       // sendings that loss was made from, the prior included

	heard      instant // when something sensible arrived
	peerClosed instant // when a ConnectionClose arrived that nothing contradicted; never
	restart    instant // when a request arrived that nothing contradicted; never
	connect    connecting
	rate       rateLimit
	suspicion  suspicion

	send sendWindow
	recv recvWindow
	long longReceive
	lane lane

	links    linkTable
	free     []uint16                 // slots of links
	index    []uint16                 // by ordinal of a LinkID of ours: slot+1, 0 if the link is gone
	peer     map[wire.LinkID]peerLink // links that the peer offered
	hello    helloIDs
	presumed []presumption
	ups      ladder // LinkUps being repeated
	downs    ladder // LinkDowns being repeated
	catchUps ladder // values being repeated to links that were behind
	holds    map[holdKey]*hold
	pending  []uint16 // slots of links to flush
	waiting  []waiter // links that wait for the budget
	budget   budget

	pendingBytes int // that those of pending take at most that did not change
	scrub        scrubber
	log          *logState // nil if the connection does not wait for a log
}

// Addr returns the address of the peer.
func (c *Conn) Addr() netip.AddrPort { return c.addr }

// Data returns what SetData was given.
func (c *Conn) Data() any { return c.data }

// SetData keeps something for the owner.
func (c *Conn) SetData(data any) { c.data = data }

// Established reports whether the connection is made and not closed.
func (c *Conn) Established() bool { return c.state == connEstablished && !c.closing }

// SpeaksLong reports whether the peer is known to understand command 10.
func (c *Conn) SpeaksLong() bool { return c.speaksLong }

// LastHeard returns when a datagram that made sense arrived last.
func (c *Conn) LastHeard() time.Time { return c.e.clock.time(c.heard) }

// over reports whether nothing may be queued any more.
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

// wake has the next Advance look at c.
func (c *Conn) wake() {
	if !c.queued && c.state != connClosed {
		c.queued = true
		c.e.ready = append(c.e.ready, c)
	}
}

// hear notes a datagram that only a living peer of this session sends. It clears
// all suspicion that the session is over.
func (c *Conn) hear(now instant) {
	c.heard, c.talked = now, true
	c.peerClosed, c.restart = never, never
}

// What a peer is taken for before there is anything to go by: one sending in four
// was lost. Five that were not change that; a peer with fewer gets its repeats twice,
// which costs little and is needed where the path turns out to be bad.
const (
	lossPrior       = 0.25
	lossPriorWeight = 4
	lossMemory      = 16 // sendings
)

// lost keeps the share of reliable commands that had to be sent again.
func (c *Conn) lost(again bool) {
	var sample float32
	if again {
		sample = 1
	}
	c.lossWeight = min(c.lossWeight+1, lossMemory)
	c.loss += (sample - c.loss) / float32(c.lossWeight)
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
		c.receiveClose(now)
	case wire.CommandMessage:
		c.receiveMessage(body, now)
	case wire.CommandReliableMessage, wire.CommandReliableLinkState:
		c.receiveReliable(cmd, body, now, out)
	case wire.CommandReliableAck:
		c.receiveAck(body, now)
	case wire.CommandLinkUp:
		c.receiveLinkUp(body, now)
	case wire.CommandLinkDown:
		c.receiveLinkDown(body, now)
	case wire.CommandLinkUpdate:
		c.receiveUpdate(body, now)
	case wire.CommandReliableMessageLong, wire.CommandReliableLinkStateLong:
		if !c.e.cfg.Profile.Long() {
			c.e.drop(DropUnknownCommand)
			return
		}
		c.receiveReliable(cmd, body, now, out)
	default:
		c.e.drop(DropUnknownCommand)
	}
}

func (c *Conn) receiveMessage(data []byte, now instant) {
	if len(data) == 0 {
		c.e.drop(DropTruncated)
		return
	}
	c.hear(now)
	c.e.event(Event{Kind: EventMessage, Conn: c, Data: data})
}

// pump sends what is ready and does what is due.
func (c *Conn) pump(now instant, out Sender) {
	c.queued = false
	switch {
	case c.state == connClosed:
		return
	case c.awaitsEnd():
		c.unstored(needNow)
	case c.closing:
		c.end(c.reason, out)
	case c.muted():
	case c.state == connConnecting:
		c.pumpConnect(now, out)
	default:
		c.pumpEstablished(now, out)
	}
	c.settle(now)
}

func (c *Conn) pumpEstablished(now instant, out Sender) {
	if reason, over := c.overdue(now); over {
		c.end(reason, out)
		return
	}
	c.goOn(now, out)
	if !c.resend(now, out) {
		c.end(CloseTimeout, out)
		return
	}
	c.probe(now)
	c.presume(now)
	c.scrubSome(now)
	c.flushWaiting(now)
	c.fill(now, 0, out)
	c.lane.drain(c, out)
	c.climb(now, out)
}

// climb sends the LinkUps and LinkDowns that are due, and makes repeats of values due.
func (c *Conn) climb(now instant, out Sender) {
	for m, ok := c.ups.next(now); ok; m, ok = c.ups.next(now) {
		c.emit(wire.LinkUp{Link: m.link}.Append(out.Datagram(3)), out)
	}
	for m, ok := c.downs.next(now); ok; m, ok = c.downs.next(now) {
		for range repeatCopies(c.loss) { // nothing ever answers a LinkDown
			c.emit(wire.LinkDown{Link: m.link}.Append(out.Datagram(3)), out)
		}
	}
	for m, ok := c.catchUps.next(now); ok; m, ok = c.catchUps.next(now) {
		c.catchUp(m, now)
	}
}

// settle works out when c must be looked at next.
func (c *Conn) settle(now instant) {
	if c.state == connClosed {
		return
	}
	switch {
	case c.closing && !c.awaitsEnd():
		c.wake()
	case !c.closing && !c.muted() && c.state == connEstablished:
		switch c.choose(now) {
		case takeOther:
			c.wake()
		case takeOffer:
			c.join()
		}
	}
	c.e.timers.set(&c.timer, c.nextTimeout())
}

func (c *Conn) nextTimeout() instant {
	switch {
	case c.state == connConnecting:
		return c.connect.nextTimeout()
	case c.awaitsEnd(), c.muted():
		return never
	}
	at := min(c.send.nextTimeout(c), c.holeAt(), c.livenessTimeout(),
		c.ups.nextTimeout(), c.downs.nextTimeout(), c.catchUps.nextTimeout(), c.scrub.at, c.flushAt(), c.offersAt(c.e.clock.now))
	if len(c.presumed) > 0 {
		at = min(at, c.presumed[0].at)
	}
	return at
}

// end closes the connection for good and tells the peer, if that is of any use.
func (c *Conn) end(reason CloseReason, out Sender) {
	if c.log != nil && !c.closing { // a successor might exist, so the end has to be stored first
		c.Close(reason)
		return
	}
	if reason != ClosePeer && reason != CloseMoved && reason != CloseRestarted {
		c.emit(wire.AppendConnectionClose(out.Datagram(1)), out)
	}
	c.quietly(reason)
}

// quietly closes the connection for good without telling the peer.
func (c *Conn) quietly(reason CloseReason) {
	c.detachAll()
	c.e.remove(c)
	c.e.stats.Closes[reason]++
	c.e.event(Event{Kind: EventClosed, Conn: c, Reason: reason})
}

func (c *Conn) detachAll() {
	for slot := range c.links.l {
		if l := &c.links.l[slot]; l.phase != 0 && l.source != noSource {
			c.e.sources[l.source].detach(l.ref)
		}
	}
}
