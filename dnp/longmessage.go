package dnp

import (
	"bytes"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

const (
	longPartSlack = 10   // a part leaves this much of DatagramMax free: 1,190 of 1,200
	partlessMax   = 1357 // libraries send as much in one command 4
	longLinkMax   = 64 << 10
)

// partless returns the bytes of the longest message that goes as one command 4.
// Java cannot receive command 10, so a peer that is not known to understand it is
// spared as long as the libraries would spare it.
func (c *Conn) partless() int {
	switch {
	case !c.e.cfg.Profile.Long():
		return specMessageLimit
	case c.speaksLong:
		return c.e.cfg.DatagramMax - 3
	}
	return max(partlessMax, c.e.cfg.DatagramMax-3)
}

// takePart returns the next part of the long message.
func (w *sendWindow) takePart(c *Conn) outgoing {
	size := min(c.e.cfg.DatagramMax-longPartSlack, len(w.part.data)-w.partAt)
	o := outgoing{kind: outPart, data: w.part.data[w.partAt : w.partAt+size]}
	if w.partAt == 0 {
		o.flags |= wire.PartFirst
	}
	if w.partAt += size; w.partAt == len(w.part.data) {
		o.flags |= wire.PartLast
		o.token, o.takeDown, o.link = w.part.token, w.part.takeDown, w.part.link
		w.part, w.partAt = message{}, 0
	}
	return o
}

// A longReceive puts parts together.
type longReceive struct {
	open bool
	buf  []byte

	linkOpen bool
	link     wire.LinkStateLong // Message and Values are ours
}

// receivePart handles a command 10. Without flags it is nothing but a probe,
// unless a message is open.
func (c *Conn) receivePart(n uint64, m wire.ReliableMessageLong) {
	r := &c.long
	if m.Flags&wire.PartFirst != 0 {
		r.open, r.buf = true, r.buf[:0]
	}
	if !r.open {
		return
	}
	if len(r.buf)+len(m.Data) > c.e.cfg.LongMax {
		c.e.drop(DropTooLarge)
		c.Close(CloseTooLarge)
		return
	}
	r.buf = append(r.buf, m.Data...)
	if m.Flags&wire.PartLast == 0 {
		return
	}
	data := r.buf
	r.open, r.buf = false, nil // the event has the buffer
	if len(data) > 0 {
		c.e.event(Event{Kind: EventMessage, Conn: c, Reliable: true, Number: n, Data: data})
	}
}

// receiveLinkPart handles a command 11, which only tests and the engine know.
func (c *Conn) receiveLinkPart(m wire.LinkStateLong, now instant) {
	r := &c.long
	if m.Flags&wire.LinkStateFirst != 0 {
		r.linkOpen = true
		r.link = wire.LinkStateLong{Link: m.Link, Flags: m.Flags}
	}
	if !r.linkOpen || r.link.Link != m.Link {
		return
	}
	if len(r.link.Message)+len(m.Message)+len(r.link.Values)+len(m.Values) > longLinkMax {
		c.e.drop(DropTooLarge)
		c.Close(CloseTooLarge)
		return
	}
	r.link.Message = append(r.link.Message, m.Message...)
	r.link.Values = append(r.link.Values, m.Values...)
	if m.Flags&wire.LinkStateLast == 0 {
		return
	}
	whole := r.link
	r.linkOpen, r.link = false, wire.LinkStateLong{}
	values, err := wire.ParseValues(whole.Values)
	if err != nil {
		c.e.drop(DropBadValue)
		c.takeDown(whole.Link)
		return
	}
	readOnly := whole.Flags&wire.LinkStateReadOnly != 0
	c.receiveOffer(wire.LinkState{Link: whole.Link, ReadOnly: readOnly, Message: bytes.Clone(whole.Message), Values: values}, now)
}
