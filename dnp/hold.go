package dnp

import (
	"bytes"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A hold remembers what the peer wrote to a value, so that it is not sent back:
// libraries clear a local change when a value arrives, so an echo that crosses
// the next change on the wire would undo it (dnp/PROTOCOL.md, Values).
type hold struct {
	value []byte
	open  bool // not released: what the peer wrote is not the truth yet
}

type holdKey uint32 // slot << 16 | index

func newHoldKey(slot, index int) holdKey { return holdKey(slot<<16 | index) }

// Hold says that the peer wrote value, which is copied, to element index of a
// link. That element is not sent to the peer until Release or Refuse, nor
// afterwards for as long as the state has these very bytes.
func (c *Conn) Hold(id wire.LinkID, index int, value []byte) {
	slot, ok := c.slotOf(id)
	if !ok || c.over() {
		return
	}
	key := newHoldKey(slot, index)
	h := c.holds[key]
	if h == nil {
		if len(c.holds) >= c.e.cfg.HoldsMax {
			c.e.drop(DropHoldsFull)
			return
		}
		if c.holds == nil {
			c.holds = make(map[holdKey]*hold)
		}
		h = new(hold)
		c.holds[key] = h
		c.links.l[slot].flags |= linkHeld
	}
	h.value, h.open = append(h.value[:0], value...), true
}

// Release says that what the peer wrote has become the truth, for now.
func (c *Conn) Release(id wire.LinkID, index int) {
	if slot, ok := c.slotOf(id); ok {
		if h := c.holds[newHoldKey(slot, index)]; h != nil {
			h.open = false
			c.resendValue(slot, index, h)
		}
	}
}

// Refuse says that what the peer wrote did not become the truth. The peer is sent
// the value that did.
func (c *Conn) Refuse(id wire.LinkID, index int) {
	if slot, ok := c.slotOf(id); ok {
		delete(c.holds, newHoldKey(slot, index))
		c.resendValue(slot, index, nil)
	}
}

// resendValue makes a value due that may have been passed over. The other values
// of its version go with it, which does no harm and needs no memory.
func (c *Conn) resendValue(slot, index int, h *hold) {
	l := &c.links.l[slot]
	if l.source == noSource || index >= len(c.e.sources[l.source].changed) {
		return
	}
	s := c.e.sources[l.source]
	if h != nil && bytes.Equal(h.value, s.cfg.State.Value(index)) {
		return
	}
	l.sent = min(l.sent, s.changed[index]-1)
	c.mark(slot)
}

// held reports whether value index must not be sent to the peer. When the state
// has moved on from what the peer wrote, the hold has done its work.
func (c *Conn) held(slot, index int, value []byte) bool {
	key := newHoldKey(slot, index)
	h := c.holds[key]
	switch {
	case h == nil:
		return false
	case h.open || bytes.Equal(h.value, value):
		return true
	}
	delete(c.holds, key)
	return false
}

// dropHolds forgets all holds of a link.
func (c *Conn) dropHolds(slot int) {
	for key := range c.holds {
		if int(key>>16) == slot {
			delete(c.holds, key)
		}
	}
}
