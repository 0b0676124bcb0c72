package dnptest

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// Bounds of the model. The implementations have none: they grow without limit.
const (
	heldMax = 1 << 17 // commands that are queued; further ones are acknowledged and lost
	longMax = 1 << 24 // bytes of a long message; further ones are lost
)

// A receiver delivers reliable commands in order.
type receiver struct {
	next  int // number of the command to process next
	count int // how many were processed
	held  []heldCommand
	long  []byte // of the long message that is being received
	open  bool   // one is
	link  longLink
}

type heldCommand struct {
	number int
	count  int // which command of the connection it is
	cmd    wire.Command
	body   []byte
}

// valid is the window rule of all implementations and of the text. It accepts any old number
// again, except near the wrap, where it does not even acknowledge repeats.
func valid(n, next int) bool {
	if n < next {
		return n < (next+windowSize)%65535 // 65535 in the text, too
	}
	return n < next+windowSize
}

// ahead returns the distance from next forward to n.
func (b *Behaviour) ahead(n, next int) int { return (n - next + b.Modulus) % b.Modulus }

func (c *Client) handleReliable(cmd wire.Command, body []byte) {
	if cmd == wire.CommandReliableMessageLong && c.b.LongMessage == LongUnknown ||
		cmd == wire.CommandReliableLinkStateLong && c.b.LongLink == LongLinkUnknown {
		return
	}
	m, err := wire.ParseReliableMessage(body)
	if err != nil {
		c.bad("truncated reliable number")
		return
	}
	n := int(m.Seq)
	if !valid(n, c.recv.next) {
		c.Stats.Refused++
		return
	}
	c.Stats.Acks++
	c.emit(wire.ReliableAck{Seq: m.Seq}.Append(nil))
	if n != c.recv.next {
		c.hold(n, cmd, m.Data)
		return
	}
	if c.process(cmd, m.Data) {
		c.recv.advance(c.b.Modulus)
		c.drain()
	}
}

func (r *receiver) advance(modulus int) {
	r.next = (r.next + 1) % modulus
	r.count++
}

// hold queues a command that is not the next one. The libraries do not check whether it
// is early, late or queued already.
func (c *Client) hold(n int, cmd wire.Command, body []byte) {
	h := heldCommand{number: n, count: c.recv.count + c.b.ahead(n, c.recv.next), cmd: cmd, body: bytes.Clone(body)}
	repeat := c.b.ahead(n, c.recv.next) > c.b.Modulus/2
	if repeat {
		h.count -= c.b.Modulus
	}
	if repeat = repeat || slices.ContainsFunc(c.recv.held, func(o heldCommand) bool { return o.count == h.count }); repeat {
		c.Stats.Repeats++
	}
	if repeat && !c.b.KeepsRepeats || len(c.recv.held) >= heldMax {
		return
	}
	c.recv.held = append(c.recv.held, h)
}

// drain processes queued commands while the next one is queued.
func (c *Client) drain() {
	for i := 0; i < len(c.recv.held) && c.phase == Connected; {
		h := c.recv.held[i]
		if h.number != c.recv.next {
			i++
			continue
		}
		if h.count != c.recv.count {
			c.Stats.Stale++
		}
		if !c.process(h.cmd, h.body) {
			return // the command stays queued, and next does not move
		}
		if i < len(c.recv.held) { // false if the application closed the connection
			c.recv.held = slices.Delete(c.recv.held, i, i+1)
		}
		c.recv.advance(c.b.Modulus)
		i = 0
	}
}

// process handles a reliable command. It reports false if the library raises,
// which leaves the stream stuck: the command is acknowledged, but next stays.
func (c *Client) process(cmd wire.Command, body []byte) bool {
	ok := false
	switch cmd {
	case wire.CommandReliableMessage:
		ok = len(body) > 0 || !c.b.ThrowsOnEmpty
		if ok {
			c.deliver(body, true)
		}
	case wire.CommandReliableLinkState:
		m, err := wire.ParseLinkState(append([]byte{0, 0}, body...))
		ok = err == nil && c.offered(m)
	case wire.CommandReliableMessageLong:
		ok = c.handlePart(body)
	case wire.CommandReliableLinkStateLong:
		ok = c.handleLinkPart(body)
	}
	if !ok {
		c.bad("command " + cmd.String() + " raises")
	}
	return ok
}

// handlePart handles one part of a long message. A part of no message is counted and has
// no other effect: it is the invisible probe.
func (c *Client) handlePart(body []byte) bool {
	if len(body) == 0 {
		return false
	}
	flags, data := wire.PartFlags(body[0]), body[1:]
	r := &c.recv
	if c.b.LongMessage == LongSticks && flags&wire.PartFirst != 0 {
		return false
	}
	if flags&wire.PartFirst != 0 {
		r.open, r.long = true, r.long[:0]
	}
	if !r.open {
		return true
	}
	if len(r.long)+len(data) <= longMax {
		r.long = append(r.long, data...)
	}
	if flags&wire.PartLast != 0 {
		r.open = false
		c.deliver(r.long, true)
	}
	return true
}

func (c *Client) deliver(data []byte, reliable bool) {
	m := Message{Data: bytes.Clone(data), Reliable: reliable}
	if c.cfg.App.Message != nil {
		c.cfg.App.Message(m)
		return
	}
	c.Messages = append(c.Messages, m)
}

// Errors of the calls of an application.
var (
	ErrNotConnected = errors.New("dnptest: not connected")
	ErrEmpty        = errors.New("dnptest: the libraries refuse to send an empty message")
	ErrTooLong      = errors.New("dnptest: longer than the peer can send")
)

// datagramMax is the largest datagram that the libraries send.
const datagramMax = 65500

// A sender repeats reliable commands until they are acknowledged.
type sender struct {
	port *port
	next int // number of the command that is added next
	list []outgoing
}

type outgoing struct {
	number      int
	p           []byte
	sent, acked bool
	first, last time.Time
}

// Queued returns how many reliable commands are not acknowledged.
func (c *Client) Queued() int { return len(c.queue.list) }

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

// Send sends data reliably, in parts if it is long and the behaviour has command 10.
func (c *Client) Send(now time.Time, data []byte) error {
	c.now = now
	switch {
	case c.phase != Connected:
		return ErrNotConnected
	case len(data) == 0:
		return ErrEmpty
	case len(data) <= partSize || c.b.LongMessage == LongUnknown && 3+len(data) <= datagramMax:
		c.queue.add(func(n wire.Seq) []byte { return wire.ReliableMessage{Seq: n, Data: data}.Append(nil) })
		return nil
	case c.b.LongMessage == LongUnknown:
		return ErrTooLong
	}
	c.queue.addParts(data)
	return nil
}

func (s *sender) addParts(data []byte) {
	flags := wire.PartFirst
	for len(data) > 0 {
		part := data[:min(len(data), partSize)]
		data = data[len(part):]
		if len(data) == 0 {
			flags |= wire.PartLast
		}
		m := wire.ReliableMessageLong{Flags: flags, Data: part}
		s.add(func(n wire.Seq) []byte { m.Seq = n; return m.Append(nil) })
		flags = 0
	}
}

// add gives a command the next number and sends it if the window has room.
func (s *sender) add(command func(n wire.Seq) []byte) {
	window := windowSize
	if s.port.b.OneMore {
		window++
	}
	s.list = append(s.list, outgoing{number: s.next, p: command(wire.Seq(s.next))})
	s.next = (s.next + 1) % s.port.b.Modulus
	if len(s.list) <= window {
		s.transmit(&s.list[len(s.list)-1])
	}
}

func (s *sender) transmit(o *outgoing) {
	if o.sent {
		s.port.Stats.Resends++
	} else {
		o.sent, o.first = true, s.port.now
	}
	o.last = s.port.now
	s.port.emit(o.p)
}

func (c *Client) handleReliableAck(body []byte) {
	m, err := wire.ParseReliableAck(body)
	if err != nil {
		c.bad("truncated ReliableAck")
		return
	}
	c.queue.acknowledge(m)
}

func (s *sender) acknowledge(m wire.ReliableAck) {
	i := slices.IndexFunc(s.list, func(o outgoing) bool { return o.number == int(m.Seq) && o.sent })
	switch {
	case i < 0:
	case m.Code == wire.AckSuccess:
		s.list[i].acked = true
		s.slide()
	case int(m.Code) <= s.port.b.AckCodeResends:
		s.transmit(&s.list[i])
	}
}

// slide removes the acknowledged commands at the front and sends those that enter the
// window.
func (s *sender) slide() {
	for len(s.list) > 0 && s.list[0].acked {
		if s.port.b.DropsTail { // pops the wrong end while the front is acknowledged
			s.list = nil
			return
		}
		s.list = s.list[1:]
	}
	for i := range min(len(s.list), windowSize) {
		if o := &s.list[i]; !o.sent {
			s.transmit(o)
		}
	}
}

// tick repeats unacknowledged commands: at 0, 0.5 … 3.0 s. It reports false if one is so old
// that the library gives up (vectors, reliable_resend_schedule).
func (s *sender) tick() bool {
	for i := range s.list {
		o := &s.list[i]
		switch {
		case !o.sent || o.acked:
		case s.port.now.Sub(o.first) > s.port.b.GiveUp:
			return false
		case s.port.now.Sub(o.last) >= resendTime:
			s.transmit(o)
		}
	}
	return true
}

func (c *Client) giveUp() {
	if c.b.ClosesOnGiveUp {
		c.emit(wire.AppendConnectionClose(nil))
	}
	c.closed("reliable command not acknowledged")
}

// repeat sends all unacknowledged commands again.
func (s *sender) repeat() {
	for i := range s.list {
		if o := &s.list[i]; o.sent && !o.acked {
			s.transmit(o)
		}
	}
}
