package dnptest

import (
	"errors"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// Errors of what an application asks for.
var (
	ErrNotConnected = errors.New("dnptest: not connected")
	ErrEmpty        = errors.New("dnptest: the libraries refuse to send an empty message")
	ErrTooLong      = errors.New("dnptest: longer than the peer can send")
)

// datagramMax is the largest datagram that the libraries send.
const datagramMax = 65500

// A sender repeats reliable commands until they are acknowledged.
type sender struct {
	next  int // number of the command that is queued next
	queue []outgoing
}

type outgoing struct {
	number      int
	p           []byte
	sent, acked bool
	first, last time.Time
}

// Queued returns how many reliable commands are not done.
func (c *Client) Queued() int { return len(c.send.queue) }

// SendUnreliable sends data once. It is not split.
func (c *Client) SendUnreliable(now time.Time, data []byte) error {
	c.now = now
	switch {
	case c.phase != Connected:
		return ErrNotConnected
	case len(data) == 0:
		return ErrEmpty
	case 1+len(data) > datagramMax:
		return ErrTooLong
	}
	c.emit(wire.AppendMessage(nil, data))
	return nil
}

// Send sends data reliably, in parts if it is long and the peer knows how.
func (c *Client) Send(now time.Time, data []byte) error {
	c.now = now
	switch {
	case c.phase != Connected:
		return ErrNotConnected
	case len(data) == 0:
		return ErrEmpty
	case len(data) <= c.b.PartSize || c.b.LongMessage == LongUnknown && 3+len(data) <= datagramMax:
		c.queue(func(n wire.Seq) []byte { return wire.ReliableMessage{Seq: n, Data: data}.Append(nil) })
		return nil
	case c.b.LongMessage == LongUnknown:
		return ErrTooLong
	}
	c.queueParts(data)
	return nil
}

func (c *Client) queueParts(data []byte) {
	flags := wire.PartFirst
	for len(data) > 0 {
		part := data[:min(len(data), c.b.PartSize)]
		data = data[len(part):]
		if len(data) == 0 {
			flags |= wire.PartLast
		}
		m := wire.ReliableMessageLong{Flags: flags, Data: part}
		c.queue(func(n wire.Seq) []byte { m.Seq = n; return m.Append(nil) })
		flags = 0
	}
}

// queue gives a command the next number and sends it if the window has room.
func (c *Client) queue(command func(n wire.Seq) []byte) {
	s := &c.send
	window := c.b.Window
	if c.b.OneMore {
		window++
	}
	s.queue = append(s.queue, outgoing{number: s.next, p: command(wire.Seq(s.next))})
	s.next = (s.next + 1) % c.b.Modulus
	if len(s.queue) <= window {
		c.transmit(&s.queue[len(s.queue)-1])
	}
}

func (c *Client) transmit(o *outgoing) {
	if o.sent {
		c.Stats.Resends++
	} else {
		o.sent, o.first = true, c.now
	}
	o.last = c.now
	c.emit(o.p)
}

func (c *Client) handleReliableAck(body []byte) {
	m, err := wire.ParseReliableAck(body)
	if err != nil {
		c.bad("truncated ReliableAck")
		return
	}
	o := c.send.find(int(m.Seq))
	switch {
	case o == nil:
	case m.Code == wire.AckSuccess:
		o.acked = true
		c.slide()
	case int(m.Code) <= c.b.AckCodeResends:
		c.transmit(o)
	}
}

func (s *sender) find(number int) *outgoing {
	for i := range s.queue {
		if o := &s.queue[i]; o.number == number && o.sent {
			return o
		}
	}
	return nil
}

// slide removes what is done at the front and sends what has come into the
// window.
func (c *Client) slide() {
	s := &c.send
	for len(s.queue) > 0 && s.queue[0].acked {
		if c.b.DropsTail { // pops the wrong end while the front is done
			s.queue = nil
			return
		}
		s.queue = s.queue[1:]
	}
	for i := range min(len(s.queue), c.b.Window) {
		if o := &s.queue[i]; !o.sent {
			c.transmit(o)
		}
	}
}

// tickReliable repeats what is not acknowledged and gives up on what is too
// old: sends at 0, 0.5 … 3.0 s, then it closes (vectors,
// reliable_resend_schedule).
func (c *Client) tickReliable() {
	for i := range c.send.queue {
		o := &c.send.queue[i]
		if !o.sent || o.acked {
			continue
		}
		if c.now.Sub(o.first) > c.b.GiveUp {
			c.giveUp()
			return
		}
		if c.now.Sub(o.last) >= c.b.Resend {
			c.transmit(o)
		}
	}
}

func (c *Client) giveUp() {
	if c.b.ClosesOnGiveUp {
		c.emit(wire.AppendConnectionClose(nil))
	}
	c.closed("reliable command not acknowledged")
}

func (c *Client) repeatAll() {
	for i := range c.send.queue {
		if o := &c.send.queue[i]; o.sent && !o.acked {
			c.transmit(o)
		}
	}
}
