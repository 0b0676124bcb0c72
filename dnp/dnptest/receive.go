package dnptest

import (
	"bytes"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// Bounds of the model. The implementations have none: they grow until the
// process dies.
const (
	heldMax = 1 << 17 // commands that are queued; further ones are acknowledged and lost
	longMax = 1 << 24 // bytes of a long message; further ones are lost
)

// windowSize is the number of reliable commands that may come early.
const windowSize = 10

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

// Next returns the reliable number that the client expects.
func (c *Client) Next() int { return c.recv.next }

// Held returns how many reliable commands are queued, repeats included.
func (c *Client) Held() int { return len(c.recv.held) }

// valid is the window rule.
func (c *Client) valid(n int) bool {
	next := c.recv.next
	switch {
	case !c.b.OddWindow:
		d := c.ahead(n)
		return n < c.b.Modulus && (d < windowSize || d >= c.b.Modulus-windowSize)
	case n < next:
		return n < (next+windowSize)%65535 // 65535 in the text, too
	}
	return n < next+windowSize
}

// ahead returns the distance from next forward to n.
func (c *Client) ahead(n int) int {
	return (n - c.recv.next + c.b.Modulus) % c.b.Modulus
}

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
	if !c.valid(n) {
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

// hold queues a command that is not the next one. The libraries do not look
// whether it is early or late, or there already.
func (c *Client) hold(n int, cmd wire.Command, body []byte) {
	h := heldCommand{number: n, count: c.recv.count + c.ahead(n), cmd: cmd, body: bytes.Clone(body)}
	repeat := c.ahead(n) > c.b.Modulus/2
	if repeat {
		h.count -= c.b.Modulus
	}
	for i := range c.recv.held {
		repeat = repeat || c.recv.held[i].count == h.count
	}
	if repeat {
		c.Stats.Repeats++
	}
	if repeat && !c.b.KeepsRepeats || len(c.recv.held) >= heldMax {
		return
	}
	c.recv.held = append(c.recv.held, h)
}

// drain processes queued commands as long as the next one is there.
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
			return // it stays queued, and next stays where it is
		}
		if i < len(c.recv.held) { // not if the application closed
			c.recv.held = append(c.recv.held[:i], c.recv.held[i+1:]...)
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
		ok = c.handleLinkState(body)
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

// handlePart takes one part of a long message. A part that belongs to no
// message is counted and has no other effect: the invisible probe.
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
