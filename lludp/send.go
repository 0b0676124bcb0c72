package lludp

import (
	"errors"
	"time"

	"github.com/dnprelay/dnprelay/lludp/wire"
)

// What Send may answer.
var (
	ErrClosed   = errors.New("lludp: circuit has ended")
	ErrTooLarge = errors.New("lludp: message does not fit into a datagram")
	ErrNumber   = errors.New("lludp: message number has no frequency")
	ErrBacklog  = errors.New("lludp: too many reliable packets under way")
)

// A Message is what the owner of a circuit sends.
type Message struct {
	Number   wire.Number
	Body     []byte // not kept
	Reliable bool   // repeat it until it is acknowledged
	ZeroCode bool   // if that shrinks it; the template says which messages may be
	Token    uint64 // of a reliable one, for its EventDelivered or EventLost; 0 = neither
}

// Send sends a message at once, with the acknowledgements that fit. Nothing is
// queued: ErrBacklog says that the window is full, and the owner decides whether
// the message is worth another try.
func (c *Circuit) Send(now time.Time, m Message, out Sender) error {
	switch {
	case c.closed:
		return ErrClosed
	case m.Number.Frequency() == wire.NoFrequency:
		return ErrNumber
	case len(m.Body) > wire.ExpandedMax-wire.HeaderSize-4:
		return ErrTooLarge
	case m.Reliable && !c.room(wire.HeaderSize+4+len(m.Body)):
		c.drop(DropBacklog)
		return ErrBacklog
	}
	p := wire.Packet{Seq: c.last.Next(), Number: m.Number, Body: m.Body}
	if m.Reliable {
		p.Flags |= wire.FlagReliable
	}
	if m.ZeroCode {
		p.Flags |= wire.FlagZeroCoded
	}
	b := p.Append(out.Datagram(max(c.cfg.DatagramMax, wire.HeaderSize+2*(4+len(m.Body)))))
	if len(b) > c.cfg.DatagramMax {
		return ErrTooLarge
	}
	c.last = p.Seq
	if m.Reliable {
		due := now.Add(resendAfter(c.cfg.ResendAfter, c.pings.average))
		c.flight.add(outgoing{seq: p.Seq, packet: append([]byte(nil), b...), token: m.Token, due: due})
	}
	c.emit(c.appendAcks(b), out)
	return nil
}

// room reports whether another reliable packet may be under way. The numbers of
// two must never be so far apart that it is unclear which is the newer one.
func (c *Circuit) room(size int) bool {
	oldest, ok := c.flight.oldest()
	return len(c.flight.list()) < c.cfg.Window && c.flight.bytes+size <= c.cfg.WindowBytes &&
		(!ok || c.last.Since(oldest) < wire.SeqModulus/2)
}

// transmit sends an unreliable message of the circuit itself.
func (c *Circuit) transmit(n wire.Number, body []byte, out Sender) {
	c.last = c.last.Next()
	b := wire.Packet{Seq: c.last, Number: n, Body: body}.Append(out.Datagram(c.cfg.DatagramMax))
	if n != wire.PacketAck {
		b = c.appendAcks(b)
	}
	c.emit(b, out)
}

func (c *Circuit) emit(b []byte, out Sender) {
	c.stats.PacketsOut++
	c.stats.BytesOut += uint64(len(b))
	out.Send(b)
}
