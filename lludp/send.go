package lludp

import (
	"errors"
	"sort"
	"time"

	"github.com/dnprelay/dnprelay/lludp/wire"
)

// Errors of Send.
var (
	ErrClosed   = errors.New("lludp: circuit has ended")
	ErrTooLarge = errors.New("lludp: message does not fit into a datagram")
	ErrNumber   = errors.New("lludp: message number has no frequency")
	ErrBacklog  = errors.New("lludp: too many reliable packets under way")
)

// A Message is a message for the peer.
type Message struct {
	Number   wire.Number
	Body     []byte // not kept
	Reliable bool   // repeat it until it is acknowledged
	ZeroCode bool   // zero-code it if that shrinks it; the template says which messages may be
	Once     bool   // if it is reliable, report EventLost instead of repeating it: something newer replaces it
	Token    uint64 // identifies a reliable message in EventDelivered or EventLost; 0 for no event
}

// Send sends a message at once, with the acknowledgements that fit. Nothing is queued:
// ErrBacklog says that the window is full, and the owner decides whether to try again.
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
		o := outgoing{seq: p.Seq, packet: once, size: len(b), token: m.Token, due: due}
		if !m.Once {
			o.packet = append([]byte(nil), b...)
		}
		c.flight.add(o)
	}
	c.emit(c.appendAcks(b), out)
	return nil
}

// room reports whether another reliable packet may be in flight. Two packets in flight must not
// be so far apart that it is unclear which of their numbers is newer.
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

// once stands for the bytes of a packet that is not repeated.
var once = []byte{}

// An outgoing is a reliable packet in flight.
type outgoing struct {
	seq     wire.Seq
	packet  []byte // without appended acknowledgements, or once; nil once acknowledged or given up
	size    int
	token   uint64
	due     time.Time // when it is repeated or given up
	resends int
}

// A flight holds the reliable packets in flight, in the order of sending. The first one has no
// acknowledgement.
type flight struct {
	l     []outgoing
	first int
	bytes int
	due   time.Time // not later than the earliest in l; zero if l is empty
}

func (f *flight) list() []outgoing { return f.l[f.first:] }

// oldest returns the number of the oldest packet without an acknowledgement.
func (f *flight) oldest() (wire.Seq, bool) {
	if len(f.list()) == 0 {
		return 0, false
	}
	return f.l[f.first].seq, true
}

func (f *flight) add(o outgoing) {
	if f.due.IsZero() || o.due.Before(f.due) {
		f.due = o.due
	}
	f.l = append(f.l, o)
	f.bytes += o.size
}

// find returns the packet with this number, or nil if it is not in flight.
func (f *flight) find(s wire.Seq) *outgoing {
	l := f.list()
	if len(l) == 0 {
		return nil
	}
	base := l[0].seq
	i := sort.Search(len(l), func(i int) bool { return l[i].seq.Since(base) >= s.Since(base) })
	if i == len(l) || l[i].seq != s || l[i].packet == nil {
		return nil
	}
	return &l[i]
}

// end marks a packet as acknowledged or given up. trim removes it.
func (f *flight) end(o *outgoing) {
	f.bytes -= o.size
	o.packet = nil
}

// trim removes the ended packets at the front.
func (f *flight) trim() {
	for f.first < len(f.l) && f.l[f.first].packet == nil {
		f.first++
	}
	if f.first == len(f.l) {
		f.l, f.first, f.due = f.l[:0], 0, time.Time{}
	} else if f.first >= 64 && f.first*2 >= len(f.l) {
		n := copy(f.l, f.l[f.first:])
		clear(f.l[n:])
		f.l, f.first = f.l[:n], 0
	}
}

// acknowledged processes the acknowledgement of a packet.
func (c *Circuit) acknowledged(s wire.Seq) {
	o := c.flight.find(s)
	if o == nil {
		c.drop(DropUnknownAck)
		return
	}
	token := o.token
	c.flight.end(o)
	c.flight.trim()
	c.stats.Delivered++
	if token != 0 {
		c.events = append(c.events, Event{Kind: EventDelivered, Token: token})
	}
}

// resend repeats the packets that are due, and gives up those without retries left.
func (c *Circuit) resend(now time.Time, out Sender) {
	if c.flight.due.IsZero() || now.Before(c.flight.due) {
		return
	}
	wait := resendAfter(c.cfg.ResendAfter, c.pings.average)
	c.flight.due = time.Time{}
	for i := c.flight.first; i < len(c.flight.l); i++ {
		o := &c.flight.l[i]
		if o.packet == nil {
			continue
		}
		if !now.Before(o.due) && (len(o.packet) == 0 || c.cfg.Retries >= 0 && o.resends >= c.cfg.Retries) {
			c.lost(o)
			continue
		}
		if !now.Before(o.due) {
			o.resends++
			o.due = now.Add(wait)
			c.repeat(o, out)
		}
		if c.flight.due.IsZero() || o.due.Before(c.flight.due) {
			c.flight.due = o.due
		}
	}
	c.flight.trim()
}

// lost gives up a packet.
func (c *Circuit) lost(o *outgoing) {
	c.flight.end(o)
	c.stats.Lost++
	if o.token != 0 {
		c.events = append(c.events, Event{Kind: EventLost, Token: o.token})
	}
}

// repeat sends a packet again: the same number, the same bytes, and nothing appended, because
// the reference implementations repeat packets in that form.
func (c *Circuit) repeat(o *outgoing, out Sender) {
	b := append(out.Datagram(len(o.packet)), o.packet...)
	wire.SetFlags(b, wire.Flags(b[0])|wire.FlagResent)
	c.stats.Resends++
	c.emit(b, out)
}
