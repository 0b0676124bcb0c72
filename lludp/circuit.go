package lludp

import (
	"time"

	"github.com/dnprelay/dnprelay/lludp/wire"
)

// A Sender sends the datagrams of one circuit.
type Sender interface {
	// Datagram returns an empty buffer with room for size bytes. The circuit owns it until Send
	// or the next Datagram.
	Datagram(size int) []byte

	// Send sends a datagram that was built in that buffer. It does not block, and may lose the
	// datagram.
	Send(b []byte)
}

// A Circuit is one end of a circuit. One goroutine owns it.
type Circuit struct {
	cfg    Config
	last   wire.Seq // of the newest packet sent
	heard  time.Time
	closed bool

	flight     flight
	acks       ackList
	reliable   recent
	unreliable recent
	pings      pinging

	events []Event
	body   [1 + 4*wire.AppendedMax]byte // of the message being built
	stats  Stats
}

// New returns an open circuit. Its first packet has number 1.
func New(now time.Time, cfg Config) (*Circuit, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Circuit{cfg: cfg, heard: now, pings: pinging{at: now}}, nil
}

// Receive processes a datagram of the peer. It answers pings at once.
func (c *Circuit) Receive(now time.Time, datagram []byte, out Sender) []Event {
	c.events = c.events[:0]
	if c.closed {
		c.drop(DropClosed)
		return nil
	}
	m, err := wire.Parse(datagram, c.cfg.Scratch)
	if err != nil {
		c.drop(parseReason(err))
		return nil
	}
	c.heard = now
	c.stats.PacketsIn++
	c.stats.BytesIn += uint64(len(datagram))
	for i := range m.Acks.Len() {
		c.acknowledged(m.Acks.At(i))
	}
	if c.accept(now, &m) {
		c.dispatch(now, &m, out)
	}
	if (c.acks.full() || m.Number == wire.UseCircuitCode) && !c.closed { // a peer waits for the latter before it sends more
		c.flushAcks(out)
	}
	return c.events
}

// accept reports whether a packet is received for the first time. It acknowledges a reliable
// packet each time, because the previous acknowledgement may be lost. FlagResent does not
// matter: the network repeats packets too.
func (c *Circuit) accept(now time.Time, m *wire.Packet) bool {
	if m.Flags&wire.FlagReliable == 0 {
		if !c.unreliable.add(m.Seq, dedupeUnreliable) {
			c.drop(DropDuplicate)
			return false
		}
		return true
	}
	c.acks.add(m.Seq, now.Add(c.cfg.AckDelay))
	if !c.reliable.add(m.Seq, dedupeReliable) {
		c.drop(DropRepeat)
		return false
	}
	return true
}

// dispatch handles the messages of the circuit and passes the others to its owner.
func (c *Circuit) dispatch(now time.Time, m *wire.Packet, out Sender) {
	switch m.Number {
	case wire.PacketAck:
		c.receiveAckList(m.Body)
	case wire.StartPingCheck:
		ping, err := wire.ParseStartPing(m.Body)
		if err != nil {
			c.drop(DropTruncated)
			return
		}
		c.transmit(wire.CompletePingCheck, wire.CompletePing{ID: ping.ID}.Append(c.body[:0]), out)
	case wire.CompletePingCheck:
		c.receivePong(now, m.Body)
	case wire.CloseCircuit:
		c.end(ClosedByPeer)
	default:
		c.events = append(c.events, Event{Kind: EventPacket, Packet: *m})
	}
}

func (c *Circuit) receivePong(now time.Time, body []byte) {
	m, err := wire.ParseCompletePing(body)
	switch {
	case err != nil:
		c.drop(DropTruncated)
	case !c.pings.complete(now, m.ID, c.cfg.PingInterval):
		c.drop(DropUnknownPing)
	}
}

// Advance does what is due: it repeats packets, sends pings and delayed acknowledgements, and
// ends a circuit whose peer is silent.
func (c *Circuit) Advance(now time.Time, out Sender) []Event {
	c.events = c.events[:0]
	if c.closed {
		return nil
	}
	if !now.Before(c.heard.Add(c.cfg.Timeout)) {
		c.end(ClosedByTimeout)
		return c.events
	}
	c.resend(now, out)
	if !now.Before(c.pings.at.Add(c.cfg.PingInterval)) {
		c.sendPing(now, out)
	}
	if len(c.acks.l) > 0 && !now.Before(c.acks.due) {
		c.flushAcks(out)
	}
	return c.events
}

// NextTimeout returns when the owner must call Advance. It reports false once the circuit has
// ended.
func (c *Circuit) NextTimeout() (time.Time, bool) {
	if c.closed {
		return time.Time{}, false
	}
	next := c.heard.Add(c.cfg.Timeout)
	if at := c.pings.at.Add(c.cfg.PingInterval); at.Before(next) {
		next = at
	}
	if len(c.acks.l) > 0 && c.acks.due.Before(next) {
		next = c.acks.due
	}
	if !c.flight.due.IsZero() && c.flight.due.Before(next) {
		next = c.flight.due
	}
	return next, true
}

// Close ends the circuit and tells the peer. It causes no event, and nothing is sent
// afterwards.
func (c *Circuit) Close(out Sender) {
	if c.closed {
		return
	}
	c.transmit(wire.CloseCircuit, nil, out)
	c.end(ClosedByOwner)
	c.events = c.events[:0]
}

func (c *Circuit) end(why Reason) {
	c.closed = true
	c.flight, c.acks = flight{}, ackList{}
	c.events = append(c.events, Event{Kind: EventClosed, Reason: why})
}

// Closed reports whether the circuit has ended.
func (c *Circuit) Closed() bool { return c.closed }

// Ping returns the average round-trip time of pings, from 0.1 to 2 s; 0 before the first
// answer.
func (c *Circuit) Ping() time.Duration { return c.pings.average }

// Blocked reports whether so many pings are unanswered that the owner should send only what is
// needed.
func (c *Circuit) Blocked() bool { return c.pings.blocked }

// InFlight returns the number of reliable packets since the oldest without an acknowledgement,
// and the bytes of those without one.
func (c *Circuit) InFlight() (packets, bytes int) { return len(c.flight.list()), c.flight.bytes }

// Stats returns the counters, which the Circuit keeps updating.
func (c *Circuit) Stats() *Stats { return &c.stats }

func (c *Circuit) drop(r DropReason) { c.stats.Drops[r]++ }

// An EventKind says what happened.
type EventKind uint8

const (
	EventPacket    EventKind = iota + 1 // a packet arrived
	EventDelivered                      // the reliable message with Token was acknowledged
	EventLost                           // the reliable message with Token was given up
	EventClosed                         // the circuit ended; packets in flight get no event of their own
)

// An Event reports to the owner of a circuit. It is valid until the next Receive or Advance.
type Event struct {
	Kind   EventKind
	Packet wire.Packet // its slices alias the datagram, or the scratch
	Token  uint64
	Reason Reason
}

// A Reason says why a circuit ended.
type Reason uint8

const (
	ClosedByPeer Reason = iota + 1
	ClosedByOwner
	ClosedByTimeout // the peer was silent
)

// A DropReason says why a datagram, or a part of one, was ignored, or which bound took effect.
// Input from the network is counted by reason, and never logged.
type DropReason uint8

const (
	DropTruncated   DropReason = iota // the datagram ends inside a field
	DropTooLarge                      // more than wire.ReceiveMax
	DropAcks                          // more appended acknowledgements than the packet has room for
	DropExpansion                     // zero-coding beyond wire.ExpandedMax
	DropNumber                        // message number 0
	DropClosed                        // the circuit had ended
	DropRepeat                        // a reliable packet received before; it was acknowledged again
	DropDuplicate                     // an unreliable packet received before
	DropUnknownAck                    // acknowledges no packet in flight
	DropUnknownPing                   // answers no ping in flight
	DropBacklog                       // a reliable message that found no room in the window

	NumDropReasons = int(iota)
)

var dropNames = [...]string{
	DropTruncated: "truncated", DropTooLarge: "too_large", DropAcks: "acks", DropExpansion: "expansion",
	DropNumber: "number", DropClosed: "closed", DropRepeat: "repeat", DropDuplicate: "duplicate",
	DropUnknownAck: "unknown_ack", DropUnknownPing: "unknown_ping", DropBacklog: "backlog",
}

// String returns the name of r in metrics.
func (r DropReason) String() string {
	if int(r) < len(dropNames) {
		return dropNames[r]
	}
	return "drop?"
}

// parseReason returns the reason for an error of the parser.
func parseReason(err error) DropReason {
	switch err {
	case wire.ErrTooLarge:
		return DropTooLarge
	case wire.ErrAcks:
		return DropAcks
	case wire.ErrExpansion:
		return DropExpansion
	case wire.ErrNumber:
		return DropNumber
	}
	return DropTruncated
}

// Stats are the counters of a Circuit.
type Stats struct {
	PacketsIn, BytesIn   uint64
	PacketsOut, BytesOut uint64
	Resends              uint64 // reliable packets sent again
	Delivered            uint64 // reliable packets that were acknowledged
	Lost                 uint64 // reliable packets that were given up
	Drops                [NumDropReasons]uint64
}

// Rules of the reference viewer (llcircuit.cpp, llcircuit.h).
const (
	pingMin      = 100 * time.Millisecond // least average
	pingMax      = 2 * time.Second        // greatest average
	pingBlocked  = 3                      // a circuit with more unanswered pings is blocked
	pingReleased = 2                      // until no more than these are unanswered
	resendFactor = 5                      // times the average ping, before a packet is repeated
)

// pinging is the state of a circuit's own pings.
type pinging struct {
	id         uint8 // of the newest
	at         time.Time
	unanswered int
	blocked    bool
	average    time.Duration // 0 before the first answer
}

// start notes a new ping and returns its id.
func (p *pinging) start(now time.Time) uint8 {
	p.id++
	p.at = now
	p.unanswered = min(p.unanswered+1, 255)
	p.blocked = p.blocked || p.unanswered > pingBlocked
	return p.id
}

// complete processes the answer to a ping, and reports false if no such ping is unanswered. The
// answer to an older ping took one interval longer for each ping since.
func (p *pinging) complete(now time.Time, id uint8, interval time.Duration) bool {
	since := int(p.id - id)
	if since >= p.unanswered {
		return false
	}
	p.unanswered = since
	p.blocked = p.blocked && since > pingReleased
	p.average = averagePing(p.average, time.Duration(since)*interval+now.Sub(p.at))
	return true
}

// averagePing follows a longer ping at once and a shorter one by a fifth.
func averagePing(average, ping time.Duration) time.Duration {
	if average > 0 {
		ping = max(ping, (4*average+ping)/5)
	}
	return min(max(ping, pingMin), pingMax)
}

// resendAfter returns how long a packet waits for its acknowledgement.
func resendAfter(least, average time.Duration) time.Duration {
	return max(least, resendFactor*average)
}

// sendPing sends a ping, which also reports the oldest packet without an acknowledgement.
func (c *Circuit) sendPing(now time.Time, out Sender) {
	oldest, ok := c.flight.oldest()
	if !ok {
		oldest = c.last
	}
	m := wire.StartPing{ID: c.pings.start(now), Oldest: oldest}
	c.transmit(wire.StartPingCheck, m.Append(c.body[:0]), out)
}
