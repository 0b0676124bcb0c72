package dnp

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A hold remembers what the peer wrote to a value, so that it is not sent back:
// libraries clear a local change when a value arrives, so an echo that crosses
// the next change on the wire would undo it (dnp/PROTOCOL.md, Values).
//
// What the peer wrote may have crossed what it was sent: then it shows the latter,
// although the former became the truth. Nobody can tell, so a value is sent back
// after all, a few times, when the peer has been quiet for so long that an echo
// undoes nothing: after its first write, and after one that may have crossed such an
// echo. A value whose peer goes on writing is never in its way.
type hold struct {
	value  []byte
	open   bool    // not released: what the peer wrote is not the truth yet
	echoes uint8   // how often it is still to be sent back
	wrote  instant // when the peer wrote it last
	echoed instant // when it was sent back last
}

// An echo waits for echoQuiet after the last write, and a write within it after an
// echo may have crossed that. It is well above a round trip and below the last
// default step of Config.Refresh, which is what sends it.
const (
	echoQuiet  = time.Second
	echoCopies = 3
)

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
		h = &hold{echoes: echoCopies, echoed: c.e.clock.now}
		c.holds[key] = h
		c.links.l[slot].flags |= linkHeld
	}
	now := c.e.clock.now
	if now.sub(h.echoed) < echoQuiet {
		h.echoes = echoCopies
	}
	h.value, h.open, h.wrote = append(h.value[:0], value...), true, now
}

// A HeldValue is what the peer wrote to element Index of Link, without Release or Refuse
// since. Value is the connection's.
type HeldValue struct {
	Link  wire.LinkID
	Index int
	Value []byte
}

// Held returns what waits for Release or Refuse, in the order of links and indices. Whoever
// restored the connection has to go on with it.
func (c *Conn) Held() (list []HeldValue) {
	for _, key := range slices.Sorted(maps.Keys(c.holds)) {
		if h := c.holds[key]; h.open {
			list = append(list, HeldValue{c.links.l[key>>16].id, int(key & 0xFFFF), h.value})
		}
	}
	return list
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
	case h.open:
		return true
	case bytes.Equal(h.value, value):
		return !h.echo(c.e.clock.now)
	}
	delete(c.holds, key)
	return false
}

// echo reports whether the value is to be sent back, and counts it.
func (h *hold) echo(now instant) bool {
	if h.echoes == 0 || now.sub(h.wrote) < echoQuiet {
		return false
	}
	h.echoes--
	h.echoed = now
	return true
}

// dropHolds forgets all holds of a link.
func (c *Conn) dropHolds(slot int) {
	for key := range c.holds {
		if int(key>>16) == slot {
			delete(c.holds, key)
		}
	}
}
