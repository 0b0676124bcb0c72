package dnp

import (
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// receiveOffer handles a LinkState. It was acknowledged; the answer is LinkUp or
// LinkDown, never silence and never both.
func (c *Conn) receiveOffer(m wire.LinkState, now instant) {
	if p, ok := c.peer[m.Link]; ok {
		c.repeatLinkUp(int(p.slot), now)
		return
	}
	if slot, ok := c.slotOf(m.Link); ok && !c.yield(slot) {
		// Ours is up at the peer, which then has two links of this id, as Java and
		// Python can. LinkDown would hit ours, so there is no answer.
		c.e.drop(DropLinkTaken)
		return
	}
	switch {
	case m.Link == 0xFFFF || c.hello.used(m.Link):
		c.e.drop(DropLinkTaken)
		c.takeDown(m.Link)
		return
	case len(c.peer) >= c.e.cfg.PeerLinksMax:
		c.e.drop(DropLinksFull)
		c.takeDown(m.Link)
		return
	case m.Values.Len() > c.e.cfg.PeerValuesMax:
		c.e.drop(DropTooManyValues)
		c.takeDown(m.Link)
		return
	}
	c.downs.cancel(m.Link) // the engine links an id again
	c.offeredByPeer(m)
}

func (c *Conn) offeredByPeer(m wire.LinkState) {
	slot := c.newSlot()
	l := link{source: noSource, id: m.Link, phase: LinkOffered, flags: linkByPeer | linkProven | linkUnheard}
	if m.ReadOnly {
		l.flags |= linkReadOnly
	}
	c.links.l[slot] = l
	if c.peer == nil {
		c.peer = make(map[wire.LinkID]peerLink)
	}
	c.peer[m.Link] = peerLink{slot: uint16(slot)}
	c.e.event(Event{Kind: EventLinkOffered, Conn: c, Link: m.Link, ReadOnly: m.ReadOnly, Data: m.Message, Values: m.Values})
}

// yield makes our link give up its id, because the peer offers a link under it,
// so cannot have ours. It reports false if the peer does have ours.
func (c *Conn) yield(slot int) bool {
	l := &c.links.l[slot]
	if l.has(linkProven) {
		return false
	}
	id, source := l.id, c.sourceAt(slot)
	if !c.moveLink(slot) {
		c.removeLink(slot)
		c.e.event(Event{Kind: EventLinkDown, Conn: c, Link: id, Source: source})
	}
	c.wake()
	return true
}

// repeatLinkUp answers the repeated offer of a link that exists.
func (c *Conn) repeatLinkUp(slot int, now instant) {
	c.e.drop(DropLinkTaken)
	if l := &c.links.l[slot]; l.phase == LinkUp {
		c.ups.cancel(l.id)
		c.ups.start(climber{link: l.id, start: now})
		c.wake()
	}
}

// Accept answers EventLinkOffered: the state of s, whose layout must fit the
// values offered, is linked. Its initial values are those that the peer sent, so
// s should have them. Errors are ErrClosed, ErrNoLink and ErrLinked.
func (c *Conn) Accept(id wire.LinkID, s *Source) error {
	if c.over() {
		return ErrClosed
	}
	p, ok := c.peer[id]
	if !ok || c.links.l[p.slot].phase != LinkOffered {
		return ErrNoLink
	}
	if _, linked := c.find(s); linked {
		return ErrLinked
	}
	l := c.links.l[p.slot]
	l.phase, l.sent = LinkUp, s.version
	c.attach(int(p.slot), l, s)
	c.peer[id] = peerLink{slot: p.slot, base: s.version}
	c.ups.start(climber{link: id, start: c.e.clock.now})
	c.wake()
	return nil
}

// Reject answers EventLinkOffered with LinkDown.
func (c *Conn) Reject(id wire.LinkID) {
	p, ok := c.peer[id]
	if !ok || c.over() || c.links.l[p.slot].phase != LinkOffered {
		return
	}
	c.removeLink(int(p.slot))
	c.takeDown(id)
}

// receiveLinkUp handles the peer's yes to an offer.
func (c *Conn) receiveLinkUp(p []byte, now instant) {
	m, err := wire.ParseLinkUp(p)
	if err != nil {
		c.e.drop(DropTruncated)
		return
	}
	slot, ok := c.slotOf(m.Link)
	switch {
	case !ok && c.gone(m.Link): // it missed our LinkDown
		c.hear(now)
		c.e.drop(DropUnknownLink)
		c.takeDownAgain(m.Link)
	case !ok:
		c.e.drop(DropUnknownLink)
	case c.links.l[slot].has(linkByPeer), c.links.l[slot].phase == LinkQueued:
		c.e.drop(DropUnexpected)
	default:
		c.hear(now)
		c.prove(slot, now)
	}
}

// prove notes that the peer certainly has a link that we offered.
func (c *Conn) prove(slot int, now instant) {
	l := &c.links.l[slot]
	if !l.has(linkProven) {
		c.linkChanged(l.id, LinkCameUp)
	}
	l.flags |= linkProven
	if l.phase != LinkUp {
		c.bringUp(slot, LinkUp) // first, or answered starts a wait for LinkUp
		c.answered(slot, now)
	}
}

// receiveLinkDown handles the peer's no to an offer, or the end of a link.
func (c *Conn) receiveLinkDown(p []byte, now instant) {
	m, err := wire.ParseLinkDown(p)
	if err != nil {
		c.e.drop(DropTruncated)
		return
	}
	slot, ok := c.slotOf(m.Link)
	if !ok || c.links.l[slot].phase == LinkQueued {
		c.e.drop(DropUnknownLink)
		return
	}
	c.hear(now)
	ours, source := !c.links.l[slot].has(linkByPeer), c.sourceAt(slot)
	c.linkChanged(m.Link, LinkRefused)
	c.removeLink(slot)
	if ours {
		c.answered(slot, now)
	}
	c.e.event(Event{Kind: EventLinkDown, Conn: c, Link: m.Link, Source: source})
}

// receiveUpdate handles a LinkUpdate. Lengths come only from layouts, so nothing
// behind an unknown link can be read. Links before it count: libraries send link
// counts that are too high (dnp/PROTOCOL.md, Malformed input).
func (c *Conn) receiveUpdate(p []byte, now instant) {
	r := c.e.cfg.Profile.UpdateReader(p)
	for {
		id, ok := r.NextLink()
		if !ok {
			break
		}
		slot, known := c.slotOf(id)
		switch {
		case !known:
			c.e.drop(DropUnknownLink)
			return
		case c.links.l[slot].phase < LinkOffered, c.links.l[slot].source == noSource:
			c.e.drop(DropLinkNotUp)
			return
		}
		if !c.receiveValues(slot, &r, now) {
			break
		}
	}
	if reason := parseReason(r.Err()); reason != dropNothing {
		c.e.drop(reason)
	}
}

// receiveValues reads the values of one link. It reports false if they are damaged.
func (c *Conn) receiveValues(slot int, r *wire.UpdateReader, now instant) bool {
	l := &c.links.l[slot]
	source := c.e.sources[l.source]
	layout := source.cfg.State.Layout()
	u := Update{r: *r, layout: layout}
	values := 0
	for {
		if _, _, ok := r.NextValue(layout.Types()); !ok {
			break
		}
		values++
	}
	if r.Err() != nil {
		return false
	}
	c.hear(now)
	if l.has(linkByPeer) {
		l.flags &^= linkUnheard // the peer knows that the link is up
		c.ups.cancel(l.id)
	} else {
		c.prove(slot, now)
	}
	switch {
	case !l.peerWrites():
		c.e.drop(DropReadOnly)
	case values > 0:
		c.e.stats.UpdatesIn++
		c.e.event(Event{Kind: EventUpdate, Conn: c, Link: l.id, Source: source, Update: u})
	}
	return true
}
