package dnp

import "github.com/dnprelay/dnprelay/dnp/wire"

// A LinkID is never used twice in a connection, because the libraries cannot link
// an id again that went down (dnp/PROTOCOL.md, Links). Both sides draw from one
// space. Libraries count up from 0 and some skip only a single taken id, so the
// listening side starts far away: at 0x8000 upwards, then from 0x7FFF down to
// 0x1000. The connecting side counts from 0, as the libraries do.
//
// The place of an id in this order is its ordinal.

const (
	listenerHigh = 0x7FFF // ids 0x8000 to 0xFFFE
	listenerLow  = 0x7000 // ids 0x7FFF down to 0x1000
	connectorIDs = 0xFFFF // ids 0 to 0xFFFE
)

// ordinals returns how many ids this side has.
func (c *Conn) ordinals() int {
	if c.client {
		return connectorIDs
	}
	return listenerHigh + listenerLow
}

func (c *Conn) linkID(ordinal int) wire.LinkID {
	switch {
	case c.client:
		return wire.LinkID(ordinal)
	case ordinal < listenerHigh:
		return wire.LinkID(0x8000 + ordinal)
	default:
		return wire.LinkID(0x7FFF - (ordinal - listenerHigh))
	}
}

// ordinal is the inverse of linkID. It reports false for an id that is not ours.
func (c *Conn) ordinal(id wire.LinkID) (int, bool) {
	switch {
	case id == 0xFFFF:
		return 0, false
	case c.client:
		return int(id), true
	case id >= 0x8000:
		return int(id) - 0x8000, true
	case id >= 0x1000:
		return listenerHigh + 0x7FFF - int(id), true
	}
	return 0, false
}

// newLinkID uses up the next free id and reserves its place in the index.
func (c *Conn) newLinkID(slot int) (wire.LinkID, bool) {
	for len(c.index) < c.ordinals() {
		id := c.linkID(len(c.index))
		if _, taken := c.peer[id]; taken || c.hello.used(id) {
			c.index = appendTight(c.index, 0)
			continue
		}
		c.index = appendTight(c.index, uint16(slot+1))
		if !c.recycled && len(c.index)*10 >= c.ordinals()*9 {
			c.recycled = true
			c.e.event(Event{Kind: EventRecycle, Conn: c})
		}
		return id, true
	}
	return 0, false
}

// slotOf returns the slot of a link that exists.
func (c *Conn) slotOf(id wire.LinkID) (slot int, ok bool) {
	if i, ours := c.ordinal(id); ours && i < len(c.index) && c.index[i] != 0 {
		return int(c.index[i]) - 1, true
	}
	if p, ok := c.peer[id]; ok {
		return int(p.slot), true
	}
	return 0, false
}

// gone reports whether id was ours and its link is no more.
func (c *Conn) gone(id wire.LinkID) bool {
	i, ours := c.ordinal(id)
	return ours && (i < len(c.index) && c.index[i] == 0 || c.hello.used(id))
}

// appendTight appends and grows by an eighth, because a connection's tables are
// many and mostly stop growing: doubling would cost more than the data.
func appendTight[T any](s []T, v T) []T {
	if len(s) == cap(s) {
		grown := make([]T, len(s), len(s)+len(s)/8+4)
		copy(grown, s)
		s = grown
	}
	return append(s, v)
}
