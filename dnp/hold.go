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
	write     uint32  // the number of the write, of an ordered connection; 0 for none
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
	bytes int       // of values
	order *ordering // nil if the peer did not ask for it
}

// made returns h, or a new table if there is none.
func (h *holdTable) made() *holdTable {
	if h == nil {
		return &holdTable{byKey: make(map[holdKey]*hold)}
	}
	return h
}

// ordering returns how LinkUpdates to the peer are ordered; nil if they are not.
func (h *holdTable) ordering() *ordering {
	if h == nil {
		return nil
	}
	return h.order
}

func (h *holdTable) all() map[holdKey]*hold {
	if h == nil {
		return nil
	}
	return h.byKey
}

// set holds a copy of a value. It reports false, and holds nothing, if there is no room.
func (h *holdTable) set(key holdKey, write uint32, value []byte, now instant) (*hold, bool) {
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
		held = &hold{echoed: now}
		h.byKey[key] = held
	}
	h.bytes += more
	held.write = write
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

// Writes has the values that the peer wrote. The owner holds, releases, refuses and acknowledges them by it.
type Writes struct{ c *Conn }

// Writes returns what the peer wrote.
func (c *Conn) Writes() Writes { return Writes{c} }

// Hold says that the peer wrote value, which is copied, to element index of a
// link. That element is not sent to the peer until Release or Refuse, and after Release
// not while the state has these very bytes. write is the number of the write, 0 if it has
// none; a value with a number needs no echo, because the peer is told when the write ends. Hold reports whether the peer
// replaces what it wrote a moment ago, as a peer does that moves.
func (w Writes) Hold(id wire.LinkID, index int, write uint32, value []byte) (again bool) {
	c := w.c
	t, now := &c.links, c.e.clock.now
	slot, ok := t.slotOf(id)
	if !ok || c.over() {
		return false
	}
	key := newHoldKey(slot, index)
	t.holds = t.holds.made()
	before := t.holds.byKey[key]
	if before != nil && before.write != write { // a repeat replaces nothing, and its peer waits
		again = now.sub(before.wrote) < streamPause
		t.holds.order.replaced(before.write)
	}
	held, ok := t.holds.set(key, write, value, now)
	switch {
	case !ok:
		c.e.drop(DropHoldsFull)
		return false
	case write != 0:
		held.echoes = 0
	case before == nil, now.sub(held.echoed) < echoQuiet:
		held.echoes = echoCopies
	}
	held.undecided, held.wrote = true, now
	t.slots[slot].flags |= linkHeld
	return again
}

// A HeldValue is what the peer wrote to element Index of Link, without Release or Refuse
// since. Value belongs to the connection.
type HeldValue struct {
	Link  wire.LinkID
	Index int
	Write uint32 // the number of the write; 0 for none
	Value []byte
}

// Held returns what waits for Release or Refuse, in the order of links and indices. The
// owner of a restored connection has to release or refuse it.
func (w Writes) Held() (list []HeldValue) {
	c := w.c
	for _, key := range slices.Sorted(maps.Keys(c.links.holds.all())) {
		if h := c.links.holds.all()[key]; h.undecided {
			list = append(list, HeldValue{c.links.slots[key>>16].id, int(key & 0xFFFF), h.write, h.value})
		}
	}
	return list
}

// Release says that what the peer wrote has become the truth, for now.
func (w Writes) Release(id wire.LinkID, index int) {
	c := w.c
	if slot, ok := c.links.slotOf(id); ok {
		if h := c.links.holds.all()[newHoldKey(slot, index)]; h != nil {
			h.undecided = false
			c.links.resendValue(slot, index, h)
		}
	}
}

// Refuse says that what the peer wrote did not become the truth. The peer is sent
// the value that did.
func (w Writes) Refuse(id wire.LinkID, index int) {
	c := w.c
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

// An ordering numbers the LinkUpdates to a peer that asked for it (wire.Trailer): the peer takes no value from a
// datagram that an earlier one overtook, and hears which of its writes have ended. Values in the datagram that says so,
// and in later ones, are not older than the write. The edge says it once; a client that does not hear it repeats the write.
type ordering struct {
	generation, counter uint64

	acks   []wire.WriteAck // to be sent
	values []int           // by ack: how many values of its write the peer has not written again
	due    instant         // when acks are sent although no values are
}

// A peer that moves writes the same values many times a second. It would be sent a datagram for each of its writes, which
// no program waits for. So the acknowledgement of a write to a value that the peer had written less than streamPause before waits
// for a LinkUpdate with values, for ackWait at most: longer than such a peer waits between two writes. It is not sent at all if the
// peer writes all of these values again meanwhile, because a later write ends an earlier one.
const (
	streamPause = 250 * time.Millisecond
	ackWait     = 80 * time.Millisecond
)

// replaced notes that the peer wrote a value of a write again.
func (o *ordering) replaced(write uint32) {
	if o == nil {
		return
	}
	i := slices.IndexFunc(o.acks, func(a wire.WriteAck) bool { return a.Number == write })
	if i < 0 || len(o.acks[i].Refused) > 0 {
		return
	}
	if o.values[i]--; o.values[i] == 0 {
		o.acks, o.values = slices.Delete(o.acks, i, i+1), slices.Delete(o.values, i, i+1)
	}
}

// flushAt returns when acknowledgements have waited for long enough.
func (o *ordering) flushAt() instant {
	if o == nil || len(o.acks) == 0 {
		return never
	}
	return o.due
}

// acksMax bounds the acknowledgements that wait for a Flush. One beyond it is dropped, and the client repeats its write.
const acksMax = 1024

// room returns the bytes that the next LinkUpdate needs for its trailer.
func (o *ordering) room() int {
	if o == nil {
		return 0
	}
	n := wire.NewOrder(o.generation, o.counter+1).Size()
	for i := range o.acks {
		if n += o.acks[i].Size(); n >= wire.TrailerMax {
			return wire.TrailerMax
		}
	}
	return n
}

// append ends a LinkUpdate with its trailer.
func (o *ordering) append(b []byte) []byte {
	if o == nil {
		return b
	}
	o.counter++
	b, n := wire.AppendTrailer(b, wire.NewOrder(o.generation, o.counter), o.acks)
	if o.acks, o.values = slices.Delete(o.acks, 0, n), slices.Delete(o.values, 0, n); len(o.acks) == 0 {
		o.acks, o.values = nil, nil
	}
	return b
}

// Order begins to number the LinkUpdates to the peer, and to read the numbers of its writes. The generation is
// higher than that of any other node that has had the connection. Such a peer keeps no repeats (PeerForgets).
func (w Writes) Order(generation uint64) {
	PeerForgets(w.c)
	t := &w.c.links
	if t.holds = t.holds.made(); t.holds.order == nil {
		t.holds.order = &ordering{generation: generation}
	}
}

// Acknowledge tells the peer that its write has ended, of which so many values were applied. The values that the peer may
// not have are due already (Release, Refuse). Unless wait is set, the peer is told in the next Flush.
func (w Writes) Acknowledge(a wire.WriteAck, values int, wait bool) {
	c := w.c
	o, now := c.links.holds.ordering(), c.e.clock.now
	switch {
	case o == nil || c.over():
		return
	case len(o.acks) >= acksMax:
		c.e.drop(DropAcksFull)
		return
	}
	due := now
	if wait {
		due = now.add(ackWait)
	}
	if len(o.acks) == 0 || due < o.due {
		o.due = due
	}
	o.acks, o.values = append(o.acks, a), append(o.values, values)
	if wait {
		c.wake() // for its timer
	} else {
		c.links.flushSoon()
	}
}

// sendAcks sends the acknowledgements that have waited for long enough, and those behind them.
func (o *ordering) sendAcks(c *Conn, out Sender) {
	for c.e.clock.now >= o.flushAt() {
		p := c.e.cfg.Profile
		c.emit(o.append(p.AppendUpdateHead(out.Datagram(p.UpdateHeadSize()+o.room()), 0)), out)
	}
}

// ExpectOrder begins to read the trailers of the peer's LinkUpdates: events have their order, and EventWriteEnded
// tells which writes have ended. Such a peer keeps no repeats (PeerForgets).
func (c *Conn) ExpectOrder() {
	c.links.ordered = true
	PeerForgets(c)
}

// readTrailer takes the trailer off a LinkUpdate, and tells of the writes that it ends.
func (e *core) readTrailer(conn uint32, p []byte) (links []byte, order wire.Order) {
	links, trailer, ok := wire.ParseTrailer(p)
	if !ok {
		return p, 0
	}
	for a, more := trailer.Next(); more; a, more = trailer.Next() {
		e.event(conn, Event{Kind: EventWriteEnded, Number: uint64(a.Number), Order: trailer.Order, Refused: a.Refused})
	}
	return links, trailer.Order
}

// A ValueRef names a value of a Source.
type ValueRef struct {
	Source *Source
	Index  int
}

// SendValues sends the first of these values, as many as one LinkUpdate takes, with the number of a write behind
// them, and returns how many those are: none if the budget is used up. Each Source needs a link that is up. Number 0 stands
// for none.
func (c *Conn) SendValues(number uint32, refs []ValueRef, out Sender) (n int) {
	if c.state != connEstablished || c.closing || c.budget.overdrawn(c.e.clock.now) {
		return 0
	}
	w := updateWriter{c: c, out: out, order: c.links.holds.ordering(), sizeMax: c.e.cfg.DatagramMax - wire.WriteNumberMax, single: true}
	for n < len(refs) && n < wire.WriteValuesMax && !w.full {
		slot, ok := c.links.find(refs[n].Source)
		if ok && !w.value(slot, refs[n].Source, refs[n].Index) {
			break
		}
		n++
	}
	w.close()
	if w.b != nil && number != 0 {
		w.b = wire.AppendWriteNumber(w.b, number)
	}
	w.finish()
	return n
}
