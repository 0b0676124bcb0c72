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
	if c.acks.full() && !c.closed {
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
