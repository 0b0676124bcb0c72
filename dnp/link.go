package dnp

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// presumeAfter is how long after the acknowledgement of an offer a silent peer is
// taken to have accepted it: a LinkUp can be lost and is never repeated
// (dnp/PROTOCOL.md, Links).
const presumeAfter = 500 * time.Millisecond

// A link is 16 bytes, because a client has thousands. What few links have at a
// time is kept beside: offers in the send window, repeats in ladders, values that
// the peer wrote in holds, ids of the peer in a map.
type link struct {
	source uint32 // handle of the Source
	sent   uint32 // the version of the Source up to which the peer was sent
	ref    uint32 // place in the Source's list of links
	id     wire.LinkID
	phase  LinkPhase // 0 is a free slot
	flags  linkFlags
}

type linkFlags uint8

const (
	linkReadOnly linkFlags = 1 << iota // the side that did not offer must not write
	linkByPeer                         // the peer offered it
	linkProven                         // LinkUp or a LinkUpdate was heard: the peer has it
	linkHeld                           // some values are in holds
	linkMarked                         // it is in the list of links to flush
	linkWaiting                        // it waits for the budget
	linkChanged                        // and lacks a change, not only a repeat
	linkUnheard                        // the peer offered it and has sent no LinkUpdate: it may not know that it is up
)

func (l *link) has(f linkFlags) bool { return l.flags&f != 0 }

// weSend reports whether our values go to the peer.
func (l *link) weSend() bool {
	return l.phase >= LinkPresumed && l.flags&(linkByPeer|linkReadOnly) != linkByPeer|linkReadOnly
}

// peerWrites reports whether the peer may write.
func (l *link) peerWrites() bool { return l.has(linkByPeer) || !l.has(linkReadOnly) }

// A linkTable is the links of a connection by slot.
type linkTable struct {
	l    []link
	ours int // links that we offered
}

// A peerLink is what a link that the peer offered needs besides. Its first values
// came from the peer, so even the scrub sends only what is newer than base.
type peerLink struct {
	slot uint16
	base uint32
}

// A presumption is a link whose offer was acknowledged.
type presumption struct {
	slot uint16
	id   wire.LinkID
	at   instant
}

// offerLink queues an offer.
func (c *Conn) offerLink(s *Source, readOnly bool) error {
	if c.links.ours >= c.e.cfg.LinksMax {
		return ErrLinks
	}
	slot := c.newSlot()
	id, ok := c.newLinkID(slot)
	if !ok {
		c.free = append(c.free, uint16(slot))
		return ErrLinks
	}
	l := link{id: id, phase: LinkQueued}
	if readOnly {
		l.flags |= linkReadOnly
	}
	c.attach(slot, l, s)
	c.links.ours++
	c.send.offers = append(c.send.offers, uint16(slot))
	c.wake()
	return nil
}

// newSlot returns a free place in the link table.
func (c *Conn) newSlot() int {
	if n := len(c.free); n > 0 {
		slot := c.free[n-1]
		c.free = c.free[:n-1]
		return int(slot)
	}
	c.links.l = appendTight(c.links.l, link{})
	return len(c.links.l) - 1
}

func (c *Conn) attach(slot int, l link, s *Source) {
	l.source = s.handle
	l.ref = uint32(len(s.links))
	s.links = appendTight(s.links, linkRef{conn: c.handle, slot: uint32(slot)})
	c.links.l[slot] = l
}

// sourceAt returns what the link in slot is bound to, nil for an offer of the peer
// that nobody accepted.
func (c *Conn) sourceAt(slot int) *Source {
	if h := c.links.l[slot].source; h != noSource {
		return c.e.sources[h]
	}
	return nil
}

// removeLink frees the slot. The id stays used up.
func (c *Conn) removeLink(slot int) {
	l := &c.links.l[slot]
	if l.phase == LinkQueued {
		c.send.removeOffer(slot)
	}
	if !l.has(linkByPeer) {
		i, _ := c.ordinal(l.id)
		c.index[i] = 0
		c.links.ours--
	} else {
		delete(c.peer, l.id)
		c.ups.cancel(l.id)
	}
	if l.has(linkHeld) {
		c.dropHolds(slot)
	}
	if l.source != noSource {
		c.e.sources[l.source].detach(l.ref)
	}
	*l = link{}
	c.free = append(c.free, uint16(slot))
}

// unlink takes a link down that we want no more.
func (c *Conn) unlink(slot int, farewell []byte) {
	l := c.links.l[slot]
	offered := l.phase >= LinkOffered
	inFlight := c.send.freeze(c, slot, true)
	c.removeLink(slot)
	switch {
	case !offered && !inFlight: // the peer never heard of it
	case inFlight && len(farewell) == 0:
		c.linkChanged(l.id, LinkTakenDown)
	case len(farewell) > 0:
		c.sendFarewell(farewell, l.id, !inFlight)
	case !inFlight:
		c.takeDown(l.id)
	}
	c.wake()
}

// takeDown sends LinkDown, now and a few times more.
func (c *Conn) takeDown(id wire.LinkID) {
	if c.log != nil {
		c.linkChanged(id, LinkTakenDown)
		return
	}
	c.startDown(id)
}

// takeDownAgain sends LinkDown to a peer that cannot have understood an earlier one. If
// the end is not stored yet, Stored sends the first.
func (c *Conn) takeDownAgain(id wire.LinkID) {
	if c.log == nil || !slices.Contains(c.log.links, LinkChange{id, LinkTakenDown}) {
		c.downs.cancel(id)
		c.startDown(id)
	}
}

func (c *Conn) startDown(id wire.LinkID) {
	if c.downs.n >= downsMax {
		c.e.drop(DropDownsFull)
		c.downs.dropOldest()
	}
	c.downs.start(climber{link: id, start: c.e.clock.now})
	c.wake()
}

// moveLink gives a link that the peer does not have another id, because the peer
// offered a link under this one. An offer in flight keeps its bytes, so that its
// number keeps its meaning; the peer ignores it, its own link being there.
func (c *Conn) moveLink(slot int) bool {
	l := &c.links.l[slot]
	c.send.freeze(c, slot, false)
	id, ok := c.newLinkID(slot)
	i, _ := c.ordinal(l.id)
	c.index[i] = 0
	if !ok {
		return false
	}
	l.id = id
	if l.phase != LinkQueued {
		l.phase = LinkQueued
		c.send.offers = append(c.send.offers, uint16(slot))
	}
	l.flags &^= linkProven
	return true
}

// offerSent notes up to which version an offer carries the values. Only the first
// sending counts: the peer takes one of the copies, and nobody knows which.
func (c *Conn) offerSent(slot int) {
	l := &c.links.l[slot]
	l.phase = LinkOffered
	l.sent = c.e.sources[l.source].settled()
}

// offerAcked starts the wait for a LinkUp that may have been lost.
func (c *Conn) offerAcked(slot int, id wire.LinkID, now instant) {
	if l := &c.links.l[slot]; l.id == id && l.phase == LinkOffered {
		c.presumed = append(c.presumed, presumption{uint16(slot), id, now.add(presumeAfter)})
	}
}

// presume brings links up whose peers are silent.
func (c *Conn) presume(now instant) {
	for len(c.presumed) > 0 && c.presumed[0].at <= now {
		p := c.presumed[0]
		c.presumed = c.presumed[1:]
		if l := &c.links.l[p.slot]; l.id == p.id && l.phase == LinkOffered {
			c.bringUp(int(p.slot), LinkPresumed)
		}
	}
	if len(c.presumed) == 0 {
		c.presumed = nil
	}
}

// bringUp makes an offered link deliver values.
func (c *Conn) bringUp(slot int, phase LinkPhase) {
	l := &c.links.l[slot]
	known := l.phase >= LinkPresumed
	l.phase = phase
	if !known {
		c.e.event(Event{Kind: EventLinkUp, Conn: c, Link: l.id, Source: c.sourceAt(slot)})
	}
	if l.sent != c.e.sources[l.source].version {
		c.mark(slot)
		c.startCatchUp(slot)
	}
}
