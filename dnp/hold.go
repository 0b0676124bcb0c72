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
// the next change on the wire would undo it (dnp/PROTOCOL.md, rule no-echo).
//
// The peer's write may have crossed a value that was sent to the peer. Then the peer
// shows that value, although its own write became the truth. Neither side can tell, so
// the value is sent back after all, a few times, when the peer has been quiet for so
// long that an echo undoes nothing: after its first write, and after one that may have
// crossed such an echo. A peer that goes on writing gets no echo.
type hold struct {
	value     []byte
	undecided bool    // neither released nor refused: what the peer wrote may become the truth
	echoes    uint8   // how often it is still to be sent back
	wrote     instant // when the peer wrote it last
	echoed    instant // when it was sent back last
}

// echoQuiet is how long after the peer's last write an echo waits, and for how long after
// an echo a write may have crossed it. It is well above a round trip, and below the last
// default step of Config.Refresh, because that refresh is what sends the echo.
const (
	echoQuiet  = time.Second
	echoCopies = 3
)

type holdKey uint32 // slot << 16 | index

func newHoldKey(slot, index int) holdKey { return holdKey(slot<<16 | index) }

// A holdTable holds what the peer wrote on all links of a connection, within bounds,
// because a snapshot contains it. A connection whose peer wrote nothing has a nil table.
type holdTable struct {
	byKey map[holdKey]*hold
	bytes int // of values
}

func (h *holdTable) all() map[holdKey]*hold {
	if h == nil {
		return nil
	}
	return h.byKey
}

// set holds a copy of a value. It reports false, and holds nothing, if there is no room.
func (h *holdTable) set(key holdKey, value []byte, now instant) (*hold, bool) {
	held := h.byKey[key]
	more := len(value)
	if held != nil {
		more -= len(held.value)
	}
	switch {
	case h.bytes+more > holdBytesMax, held == nil && len(h.byKey) >= holdsMax:
		h.drop(key)
		return nil, false
	case held == nil:
		held = &hold{echoes: echoCopies, echoed: now}
		h.byKey[key] = held
	}
	h.bytes += more
	held.value = append(held.value[:0], value...)
	return held, true
}

func (h *holdTable) drop(key holdKey) {
	if held := h.all()[key]; held != nil {
		h.bytes -= len(held.value)
		delete(h.byKey, key)
	}
}

// dropLink drops the holds of the link in slot.
func (h *holdTable) dropLink(slot int) {
	for key := range h.all() {
		if int(key>>16) == slot {
			h.drop(key)
		}
	}
}

// withhold reports whether value must not be sent to the peer, because it may be what
// the peer wrote. It counts an echo that is due, and ends a hold from which the state has
// moved on.
func (h *holdTable) withhold(key holdKey, value []byte, now instant) bool {
	held := h.all()[key]
	switch {
	case held == nil:
		return false
	case held.undecided:
		return true
	case bytes.Equal(held.value, value):
		return !held.echo(now)
	}
	h.drop(key)
	return false
}

// echo reports whether to send the value back, and counts it.
func (h *hold) echo(now instant) bool {
	if h.echoes == 0 || now.sub(h.wrote) < echoQuiet {
		return false
	}
	h.echoes--
	h.echoed = now
	return true
}

// Hold says that the peer wrote value, which is copied, to element index of a
// link. That element is not sent to the peer until Release or Refuse, and after Release
// not while the state has these very bytes.
func (c *Conn) Hold(id wire.LinkID, index int, value []byte) {
	t, now := &c.links, c.e.clock.now
	slot, ok := t.slotOf(id)
	if !ok || c.over() {
		return
	}
	key := newHoldKey(slot, index)
	if t.holds == nil {
		t.holds = &holdTable{byKey: make(map[holdKey]*hold)}
	}
	held, ok := t.holds.set(key, value, now)
	if !ok {
		c.e.drop(DropHoldsFull)
		return
	}
	if now.sub(held.echoed) < echoQuiet {
		held.echoes = echoCopies
	}
	held.undecided, held.wrote = true, now
	t.slots[slot].flags |= linkHeld
}

// A HeldValue is what the peer wrote to element Index of Link, without Release or Refuse
// since. Value belongs to the connection.
type HeldValue struct {
	Link  wire.LinkID
	Index int
	Value []byte
}

// Held returns what waits for Release or Refuse, in the order of links and indices. The
// owner of a restored connection has to release or refuse it.
func (c *Conn) Held() (list []HeldValue) {
	for _, key := range slices.Sorted(maps.Keys(c.links.holds.all())) {
		if h := c.links.holds.all()[key]; h.undecided {
			list = append(list, HeldValue{c.links.slots[key>>16].id, int(key & 0xFFFF), h.value})
		}
	}
	return list
}

// Release says that what the peer wrote has become the truth, for now.
func (c *Conn) Release(id wire.LinkID, index int) {
	if slot, ok := c.links.slotOf(id); ok {
		if h := c.links.holds.all()[newHoldKey(slot, index)]; h != nil {
			h.undecided = false
			c.links.resendValue(slot, index, h)
		}
	}
}

// Refuse says that what the peer wrote did not become the truth. The peer is sent
// the value that did.
func (c *Conn) Refuse(id wire.LinkID, index int) {
	if slot, ok := c.links.slotOf(id); ok {
		c.links.holds.drop(newHoldKey(slot, index))
		c.links.resendValue(slot, index, nil)
	}
}

// resendValue makes a value due that may have been withheld. The other values of its
// version are sent with it, which does no harm and needs no memory.
func (t *linkTable) resendValue(slot, index int, h *hold) {
	l := &t.slots[slot]
	if l.source == noSource || index >= len(t.core.sources[l.source].changed) {
		return
	}
	s := t.core.sources[l.source]
	if h != nil && bytes.Equal(h.value, s.value(index)) {
		return
	}
	l.sent = min(l.sent, s.changed[index]-1)
	t.mark(slot)
}

// valueFor returns what the peer is to have as value index, in profile spec, which cannot
// leave a value out: what the peer wrote, until the owner has judged that. Afterwards an
// echo is what any LinkUpdate is.
func (t *linkTable) valueFor(slot, index int, s *Source) []byte {
	key, value := newHoldKey(slot, index), s.value(index)
	held := t.holds.all()[key]
	switch {
	case held == nil:
	case held.undecided:
		return s.cfg.State.Layout().Type(index).Sendable(held.value)
	case !bytes.Equal(held.value, value):
		t.holds.drop(key)
	}
	return value
}
