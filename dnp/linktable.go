package dnp

import "github.com/dnprelay/dnprelay/dnp/wire"

// A LinkPhase is how far a link is.
type LinkPhase uint8

const (
	LinkQueued   LinkPhase = iota + 1 // we will offer it
	LinkOffered                       // offered, by us or the peer, and not answered
	LinkPresumed                      // we offered it, the peer acknowledged the offer and said nothing for half a second
	LinkUp                            // linked
)

// A LinkInfo describes a link of a connection.
type LinkInfo struct {
	ID       wire.LinkID
	Phase    LinkPhase
	ReadOnly bool // the side that did not offer it must not write
	ByPeer   bool // the peer offered it
}

// Link offers the peer a link to s, as soon as the send window has room. Errors
// are ErrClosed, ErrLinked, and ErrLinks if LinksMax links exist or the LinkIds
// are used up.
func (c *Conn) Link(s *Source, readOnly bool) error {
	if c.over() {
		return ErrClosed
	}
	if _, linked := c.find(s); linked {
		return ErrLinked
	}
	return c.offerLink(s, readOnly)
}

// Unlink takes the link to s down, whoever offered it, and sends the farewell of
// s before if wanted. Without a link it does nothing.
func (c *Conn) Unlink(s *Source, farewell bool) {
	slot, ok := c.find(s)
	if !ok || c.state == connClosed {
		return
	}
	if farewell {
		c.unlink(slot, s.cfg.Farewell)
		return
	}
	c.unlink(slot, nil)
}

// SourceOf returns the state that is linked as id.
func (c *Conn) SourceOf(id wire.LinkID) (*Source, bool) {
	slot, ok := c.slotOf(id)
	if !ok || c.links.l[slot].source == noSource || c.state == connClosed {
		return nil, false
	}
	return c.e.sources[c.links.l[slot].source], true
}

// LinkOf returns the link to s.
func (c *Conn) LinkOf(s *Source) (LinkInfo, bool) {
	slot, ok := c.find(s)
	if !ok {
		return LinkInfo{}, false
	}
	l := &c.links.l[slot]
	return LinkInfo{ID: l.id, Phase: l.phase, ReadOnly: l.has(linkReadOnly), ByPeer: l.has(linkByPeer)}, true
}

// find returns the slot of the link to s. It looks through the shorter of the two
// lists, the links of the connection or those of the source; an index would cost
// more memory than the links.
func (c *Conn) find(s *Source) (slot int, ok bool) {
	if c.state == connClosed {
		return 0, false
	}
	if len(s.links) < len(c.links.l) {
		for _, r := range s.links {
			if r.conn == c.handle {
				return int(r.slot), true
			}
		}
		return 0, false
	}
	for slot := range c.links.l {
		if l := &c.links.l[slot]; l.phase != 0 && l.source == s.handle {
			return slot, true
		}
	}
	return 0, false
}

// Relink binds the link to from to another Source of the same layout, which stands
// for the same state: the peer notices nothing but its values, all of which it is
// sent. What the peer wrote stays held. Errors are ErrNoLink, also for a link that
// the peer offered, ErrLinked and ErrClosed.
func (c *Conn) Relink(from, to *Source) error {
	if c.over() {
		return ErrClosed
	}
	slot, ok := c.find(from)
	if !ok || c.links.l[slot].has(linkByPeer) || !from.cfg.State.Layout().Equal(to.cfg.State.Layout()) {
		return ErrNoLink
	}
	if _, linked := c.find(to); linked {
		return ErrLinked
	}
	l := c.links.l[slot]
	from.detach(l.ref)
	c.attach(slot, l, to)
	c.links.l[slot].sent = 0
	if l.weSend() {
		c.mark(slot)
		c.startCatchUp(slot)
	}
	return nil
}
