package protocol

import (
	"bytes"
	"time"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/godot/variant"
	"github.com/dnprelay/dnprelay/replication/payload"
)

// A message is an Array that is being written. The bytes belong to the Core, until it begins another one.
type message struct {
	variant.Writer
	mark variant.Mark
}

// begin begins a message.
func (c *Core) begin(name string) message {
	m := message{Writer: variant.NewWriter(c.cfg.Dialect, c.scratch[:0])}
	m.mark = m.Begin(variant.Array)
	m.String(name)
	return m
}

// scratchMax is how much room a Core keeps for messages.
const scratchMax = 4 << 10

// end returns the bytes of a message of n elements. They are valid until the next message begins.
func (m *message) end(c *Core, n int) []byte {
	m.End(m.mark, n)
	if m.Err() != nil {
		panic("protocol: a message: " + m.Err().Error()) // payload.WriteVariant writes what the dialect has
	}
	b := m.Bytes()
	if c.scratch = b; cap(b) > scratchMax {
		c.scratch = nil
	}
	return b
}

// inOrder has the peer get a message of n elements in order.
func (c *Core) inOrder(m *message, n int) *item {
	x := &item{kind: itemReady, data: bytes.Clone(m.end(c, n))}
	c.order.push(x)
	return x
}

// A ticket says what is known once a message in order has arrived, and how to write it again.
type ticket struct {
	link *entry // whose link message it is
	set  *entry // of which it has the values in mask
	mask netstate.Mask
}

// partOverhead is how many bytes a part takes besides what it carries.
const partOverhead = 40

// ordered returns the next message in order, at most c.size bytes. It is valid until the next message begins.
func (c *Core) ordered() (p []byte, t ticket, ok bool) {
	if len(c.rest) == 0 {
		x := c.order.head
		if x == nil {
			return nil, ticket{}, false
		}
		c.order.remove(x)
		if p, t = c.encode(x); len(p) <= c.size {
			c.counts.Out++
			return p, t, true
		}
		c.rest, c.restOf = bytes.Clone(p), t
	}
	return c.part()
}

// part returns the next part of a message that is longer than a message may be.
func (c *Core) part() ([]byte, ticket, bool) {
	n := min(len(c.rest), c.size-partOverhead)
	last := n == len(c.rest)
	m := c.begin("part")
	m.Data(c.rest[:n])
	m.Bool(last)
	c.rest = c.rest[n:]
	var t ticket
	if last {
		t.link = c.restOf.link
		c.rest, c.restOf = nil, ticket{}
	}
	c.counts.Out++
	return m.end(c, 3), t, true
}

func (c *Core) encode(x *item) ([]byte, ticket) {
	switch x.kind {
	case itemLink:
		x.e.link = nil
		return c.linkMessage(x.e), ticket{link: x.e}
	case itemSet:
		x.e.set = nil
		return c.setMessage(x.e, x.mask), ticket{set: x.e, mask: x.mask}
	case itemUnlink:
		m := c.begin("unlink")
		m.Int(x.id)
		return m.end(c, 2), ticket{}
	}
	if x.backlog {
		c.backlog--
		c.backlogBytes -= len(x.data)
	}
	return x.data, ticket{}
}

// arrived notes that a message in order, and all before it, came to the peer.
func (c *Core) arrived(now time.Time, t ticket) {
	e := t.link
	if e == nil || e.gone {
		return
	}
	e.told = true
	if !e.dirty.Empty() {
		c.makeDirty(now, e)
	}
}

// again returns a message with values in order as they are now: an old value must not arrive after a newer one. It reports
// false if the message has to be sent as it was.
func (c *Core) again(t ticket) ([]byte, bool) {
	if t.set == nil || t.set.gone {
		return nil, false
	}
	p := c.setMessage(t.set, t.mask)
	return p, len(p) <= c.size
}

func (c *Core) linkMessage(e *entry) []byte {
	m := c.begin("link")
	m.Int(e.id)
	m.String(payload.VariantText(e.state.Key()))
	n := e.state.Len()
	named := 0
	for i := range n {
		if e.label(i) != "" {
			named = i + 1
		}
	}
	names := m.Begin(variant.Array)
	for i := range named {
		m.String(payload.VariantText(e.label(i)))
	}
	m.Writer.End(names, named)
	values := m.Begin(variant.Array)
	for i := range n {
		c.value(&m, e, i)
	}
	m.Writer.End(values, n)
	m.Bool(!e.state.ReadOnly())
	e.dirty.Reset()
	c.counts.Values += uint64(n)
	return m.end(c, 6)
}

// setMessage returns a message with some values, of any length.
func (c *Core) setMessage(e *entry, mask netstate.Mask) []byte {
	m := c.begin("set")
	m.Int(e.id)
	values, n := m.Begin(variant.Dictionary), 0
	for i, ok := mask.Next(0); ok; i, ok = mask.Next(i + 1) {
		c.pair(&m, e, i)
		n++
	}
	m.Writer.End(values, n)
	c.counts.Values += uint64(n)
	return m.end(c, 3)
}

// values returns a message with values of the first state that has changed ones, at most room bytes. It reports false if there
// are none, or no value of that state fits. It is valid until the next message begins.
func (c *Core) values(room int) (p []byte, ok bool) {
	for c.dirty.head != nil {
		e := c.dirty.head
		m := c.begin("set")
		m.Int(e.id)
		values, n := m.Begin(variant.Dictionary), 0
		size := len(m.Bytes())
		for i, more := e.dirty.Next(0); more; i, more = e.dirty.Next(i + 1) {
			c.pair(&m, e, i)
			if len(m.Bytes()) > room {
				break
			}
			size = len(m.Bytes())
			e.dirty.Clear(i)
			n++
		}
		switch first, more := e.dirty.Next(0); {
		case n == 0 && more && room < c.size:
			return nil, false
		case n == 0 && more: // it will be sent in parts, and the next one has its turn
			e.dirty.Clear(first)
			c.setInOrder(e, first)
			continue
		}
		c.dirty.remove(e)
		if !e.dirty.Empty() {
			c.dirty.push(e)
		}
		if n == 0 {
			continue
		}
		m.Writer.End(values, n)
		c.counts.Values += uint64(n)
		c.counts.Out++
		return m.end(c, 3)[:size], true
	}
	return nil, false
}

// pair writes a value with its name or index.
func (c *Core) pair(m *message, e *entry, i int) {
	if name := e.label(i); name != "" && !c.indices {
		m.String(payload.VariantText(name))
	} else {
		m.Int(int64(i))
	}
	c.value(m, e, i)
}

func (c *Core) value(m *message, e *entry, i int) {
	c.enc = e.state.Append(c.enc[:0], i)
	payload.WriteVariant(&m.Writer, e.state.Type(i), c.enc)
}

// looseMessage returns the next unreliable message, if it has at most room bytes.
func (c *Core) looseMessage(room int) (p []byte, ok bool) {
	if len(c.loose) == 0 || len(c.loose[0]) > room {
		return nil, false
	}
	p = c.loose[0]
	c.loose[0] = nil
	c.loose = c.loose[1:]
	c.looseSize -= len(p)
	if len(c.loose) == 0 {
		c.loose = nil
	}
	c.counts.Out++
	return p, true
}
