package lludp

import (
	"time"

	"github.com/dnprelay/dnprelay/lludp/wire"
)

// A Sender takes the datagrams of one circuit.
type Sender interface {
	// Datagram returns an empty buffer with room for size bytes. It is the
	// circuit's until Send or the next Datagram.
	Datagram(size int) []byte

	// Send takes a datagram that was built in that buffer. It does not block, and
	// may lose it.
	Send(b []byte)
}

// A Circuit is one end of a circuit. It is owned by one goroutine.
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

// New returns a circuit that is open. Its first packet has number 1.
func New(now time.Time, cfg Config) (*Circuit, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Circuit{cfg: cfg, heard: now, pings: pinging{at: now}}, nil
}

// Receive takes a datagram of the peer. Pings are answered at once.
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

// accept reports whether a packet came for the first time. What wants an
// acknowledgement gets one each time, because the one before may be lost. Whether
// FlagResent is set does not matter: the network repeats packets too.
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

// dispatch handles the messages of the circuit and passes the others up.
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

// Advance does what is due: repeats, pings, acknowledgements that waited long
// enough, and the end of a circuit that nothing is heard from.
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

// NextTimeout returns when Advance must be called, and false once the circuit has
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

// Close ends the circuit and tells the peer. There is no event, and nothing is
// sent afterwards.
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

// Ping returns the average time between a ping and its answer, within 0.1 and 2 s;
// 0 before the first answer.
func (c *Circuit) Ping() time.Duration { return c.pings.average }

// Blocked reports whether so many pings are unanswered that it is better to send
// nothing but what is needed.
func (c *Circuit) Blocked() bool { return c.pings.blocked }

// InFlight returns how many reliable packets are under way, counted from the
// oldest that was not acknowledged, and the bytes of those that were not.
func (c *Circuit) InFlight() (packets, bytes int) { return len(c.flight.list()), c.flight.bytes }

// Stats returns the counters, which go on counting.
func (c *Circuit) Stats() *Stats { return &c.stats }

func (c *Circuit) drop(r DropReason) { c.stats.Drops[r]++ }
