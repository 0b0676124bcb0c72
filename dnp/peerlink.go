package dnp

import (
	"bytes"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// receiveOffer handles a LinkState, which was acknowledged. The answer is LinkUp or
// LinkDown, never silence and never both.
func (t *linkTable) receiveOffer(m wire.LinkState, now instant) {
	if p, ok := t.peer[m.Link]; ok {
		t.repeatLinkUp(int(p.slot), now)
		return
	}
	if slot, ok := t.slotOf(m.Link); ok && !t.yield(slot) {
		// Ours is up at the peer, which then has two links of this id, as Java and
		// Python can. LinkDown would hit ours, so there is no answer.
		t.core.drop(DropLinkTaken)
		return
	}
	refusal := dropNothing
	switch cfg := &t.core.cfg; {
	case m.Link == 0xFFFF || t.ids.hello.used(m.Link):
		refusal = DropLinkTaken
	case len(t.peer) >= cfg.PeerLinksMax:
		refusal = DropLinksFull
	case m.Values.Len() > cfg.PeerValuesMax:
		refusal = DropTooManyValues
	}
	if refusal != dropNothing {
		t.core.drop(refusal)
		t.takeDown(m.Link)
		return
	}
	t.downs.cancel(m.Link) // the engine links an id again
	slot := t.newSlot()
	l := link{source: noSource, id: m.Link, phase: LinkOffered, flags: linkByPeer | linkProven | linkUnconfirmed}
	if m.ReadOnly {
		l.flags |= linkReadOnly
	}
	t.slots[slot] = l
	t.addPeerLink(m.Link, slot, 0)
	t.core.event(t.conn, Event{Kind: EventLinkOffered, Link: m.Link, ReadOnly: m.ReadOnly, Data: m.Message, Values: m.Values})
}

// yield makes our link give up its id to an offer of the peer. An offer under this id
// shows that the peer lacks our link, unless the peer has proven to have it: then yield
// reports false.
func (t *linkTable) yield(slot int) bool {
	l := &t.slots[slot]
	if l.has(linkProven) {
		return false
	}
	id, source := l.id, t.sourceAt(slot)
	if !t.changeID(slot) {
		t.remove(slot)
		t.core.event(t.conn, Event{Kind: EventLinkDown, Link: id, Source: source})
	}
	return true
}

// repeatLinkUp answers the repeated offer of a link that exists.
func (t *linkTable) repeatLinkUp(slot int, now instant) {
	t.core.drop(DropLinkTaken)
	if l := &t.slots[slot]; l.phase == LinkUp {
		t.ups.cancel(l.id)
		t.ups.start(retry{link: l.id, start: now})
	}
}

// offeredByPeer returns the slot of an offer of the peer that was not answered.
func (t *linkTable) offeredByPeer(id wire.LinkID) (slot int, ok bool) {
	p, ok := t.peer[id]
	return int(p.slot), ok && t.slots[p.slot].phase == LinkOffered
}

// Accept answers EventLinkOffered: it links the state of s, whose layout must fit the
// values offered. The peer has sent the initial values, so s should have them. Errors
// are ErrClosed, ErrNoLink and ErrLinked.
func (c *Conn) Accept(id wire.LinkID, s *Source) error {
	if c.over() {
		return ErrClosed
	}
	t := &c.links
	slot, ok := t.offeredByPeer(id)
	if !ok {
		return ErrNoLink
	}
	if _, linked := t.find(s); linked {
		return ErrLinked
	}
	l := t.slots[slot]
	l.phase, l.sent = LinkUp, s.settled()
	t.attach(slot, l, s)
	t.addPeerLink(id, slot, l.sent)
	t.ups.start(retry{link: id, start: c.e.clock.now})
	c.wake()
	return nil
}

// Reject answers EventLinkOffered with LinkDown.
func (c *Conn) Reject(id wire.LinkID) {
	slot, ok := c.links.offeredByPeer(id)
	if !ok || c.over() {
		return
	}
	c.links.remove(slot)
	c.links.takeDown(id)
	c.wake()
}

// receiveUpdate handles a LinkUpdate. Lengths follow from layouts only, so nothing
// behind an unknown link can be read. Links before it count: libraries send link
// counts that are too high (dnp/PROTOCOL.md, What real peers do). It reports whether
// the values of any link are valid, or the LinkUpdate is a keep-alive.
//
// A LinkUpdate with the number of a write counts as a whole or not at all, because the write is acknowledged as a whole.
func (t *linkTable) receiveUpdate(p []byte, order wire.Order, now instant) (valid bool) {
	r := t.core.cfg.Profile.UpdateReader(p)
	if r.KeepAlive() {
		return true
	}
	var write uint32
	if t.holds.ordering() != nil {
		var ok bool
		if write, ok = readWrite(t, r); !ok {
			return false
		}
	}
	for next := 0; ; {
		id, ok := r.NextLink()
		if !ok {
			break
		}
		slot, known := t.slotNear(id, next)
		next = slot + 1
		switch {
		case !known:
			t.core.drop(DropUnknownLink)
			return valid
		case t.slots[slot].phase < LinkOffered, t.slots[slot].source == noSource:
			t.core.drop(DropLinkNotUp)
			return valid
		}
		if !t.receiveValues(slot, &r, write, order, now) {
			break
		}
		valid = true
	}
	if reason := parseReason(r.Err()); reason != dropNothing {
		t.core.drop(reason)
	}
	return valid
}

// readWrite returns the number behind a LinkUpdate, 0 for none. It is not ok if the LinkUpdate has bytes behind what can
// be read, and is no whole write.
func readWrite(t *linkTable, r wire.UpdateReader) (write uint32, ok bool) {
	values := 0
	for {
		id, more := r.NextLink()
		if !more {
			break
		}
		slot, known := t.slotOf(id)
		if !known || t.slots[slot].phase < LinkOffered || t.slots[slot].source == noSource {
			t.core.drop(DropUnknownLink)
			return 0, false
		}
		types := t.core.sources[t.slots[slot].source].cfg.State.Layout().Types()
		for _, _, ok := r.NextValue(types); ok; _, _, ok = r.NextValue(types) {
			values++
		}
	}
	write = r.WriteNumber()
	if reason := parseReason(r.Err()); reason != dropNothing {
		t.core.drop(reason)
		return 0, false
	}
	if write != 0 && values > wire.WriteValuesMax {
		t.core.drop(DropTooManyValues)
		return 0, false
	}
	return write, true
}

// receiveValues reads the values of one link. It reports false if they are damaged.
func (t *linkTable) receiveValues(slot int, r *wire.UpdateReader, write uint32, order wire.Order, now instant) bool {
	l := &t.slots[slot]
	source := t.core.sources[l.source]
	layout := source.cfg.State.Layout()
	u := Update{r: *r, layout: layout}
	values := 0
	for _, _, ok := r.NextValue(layout.Types()); ok; _, _, ok = r.NextValue(layout.Types()) {
		values++
	}
	if r.Err() != nil {
		return false
	}
	if l.has(linkByPeer) {
		l.flags &^= linkUnconfirmed // the peer knows that the link is up
		t.ups.cancel(l.id)
	} else {
		t.prove(slot, now)
	}
	switch {
	case !l.peerWrites():
		t.core.drop(DropReadOnly)
		t.forbid(slot, u)
	case values > 0:
		t.core.stats.UpdatesIn++
		t.core.event(t.conn, Event{Kind: EventUpdate, Link: l.id, Source: source, Update: u, Number: uint64(write), Order: order})
	}
	return true
}

// longAnswerPause is how long a peer waits for another correction that is longer than its write.
const longAnswerPause = time.Second

// forbid notes the values of an update of a link that the peer may not write, so that correct
// answers them, unless they are the values of the state: a library may send back what the edge sent. In
// profile spec an answer also needs the values before the last that differs.
func (t *linkTable) forbid(slot int, u Update) {
	list, source := t.core.forbidden, t.core.sources[t.slots[slot].source]
	end := len(list)
	for index, v, ok := u.Next(); ok; index, v, ok = u.Next() {
		differs := !bytes.Equal(v, source.value(index))
		if !differs && t.core.cfg.Profile != wire.Spec {
			continue
		}
		if len(list) == updateValuesMax {
			t.core.drop(DropCorrection)
			break
		}
		if list = append(list, newHoldKey(slot, index)); differs {
			end = len(list)
		}
	}
	t.core.forbidden = list[:end]
}

// correct answers a LinkUpdate of size bytes with the true values of what the peer must not write:
// libraries show their application what it wrote until another value comes. The answer is sent
// once and is not longer than the write, so that it amplifies nothing; once a second it may fill a
// datagram, because a string may be longer than what was written over it. The scrub
// corrects what does not fit, and what gets lost.
func (c *Conn) correct(size int, now instant, out Sender) {
	t, list, room := &c.links, c.e.forbidden, c.e.cfg.DatagramMax
	c.e.forbidden = list[:0]
	if now < t.longAnswer {
		room = min(room, size)
	}
	switch {
	case len(list) == 0:
		return
	case t.log.isMuted(), c.budget.overdrawn(now), t.answerSize(list[0]) > room:
		c.e.drop(DropCorrection)
		return
	}
	w := updateWriter{c: c, out: out, order: t.holds.ordering(), sizeMax: room, single: true}
	for _, key := range list {
		slot, index := int(key>>16), int(key&0xFFFF)
		if !w.value(slot, t.core.sources[t.slots[slot].source], index) {
			c.e.drop(DropCorrection)
			break
		}
	}
	w.close()
	c.e.cfg.Profile.PutUpdateLinks(w.b, w.links)
	if len(w.b) > size {
		t.longAnswer = now.add(longAnswerPause)
	}
	c.e.stats.UpdatesOut += uint64(w.links)
	c.emit(w.order.append(w.b), out)
}

// answerSize returns the size of a LinkUpdate that has one value.
func (t *linkTable) answerSize(key holdKey) int {
	p, source := t.core.cfg.Profile, t.core.sources[t.slots[key>>16].source]
	return p.UpdateHeadSize() + p.UpdateLinkSize() + p.UpdateValueSize(len(source.value(int(key&0xFFFF))))
}
