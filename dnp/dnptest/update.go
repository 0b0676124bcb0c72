package dnptest

import (
	"encoding/binary"
	"slices"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// countMax is the largest count of links, and of values of a link, in a
// LinkUpdate of the libraries.
const countMax = 255

// Set writes value i of a link, as the application of the library does: also
// on a link that is read-only, which nobody prevents. Within the precision of
// what was last sent nothing is marked. It reports whether something was.
func (c *Client) Set(l *Link, i int, value []byte) bool {
	l.State.Set(i, value)
	if near(l.State.Layout().Value(i), l.sent.Value(i), value) {
		return false
	}
	l.sent.Set(i, value)
	l.changed.Set(i)
	if !l.pending {
		l.pending = true
		if c.b.CountsTwice || !slices.Contains(c.links.modified, l) {
			c.links.modified = append(c.links.modified, l)
		}
	}
	return true
}

// Value returns value i of the newest link with this link message, or nil.
func (c *Client) Value(message string, i int) []byte {
	l := c.LinkNamed(message)
	if l == nil || l.State == nil || i >= l.State.Layout().Len() {
		return nil
	}
	return l.State.Value(i)
}

// Free lets go of the state of a link, which tells nobody. If values of it are
// waiting, the libraries send a LinkID without values.
func (c *Client) Free(l *Link) { l.State = nil }

func (c *Client) updatesPending() bool {
	return slices.ContainsFunc(c.links.modified, c.sendable)
}

func (c *Client) sendable(l *Link) bool {
	return l.Phase == LinkIsUp && l.pending && !(c.b.EnforcesReadOnly && l.ReadOnly && !l.Own)
}

// sendUpdates sends what changed on all links in one datagram, however large.
func (c *Client) sendUpdates() {
	t := &c.links
	count := 0
	for _, l := range t.modified {
		if c.sendable(l) {
			count++
		}
	}
	if count == 0 {
		return
	}
	count = min(count, countMax)
	p := append([]byte{byte(wire.CommandLinkUpdate)}, c.count(count)...)
	written := 0
	t.modified = slices.DeleteFunc(t.modified, func(l *Link) bool {
		if written == count || l.Phase != LinkIsUp {
			return false
		}
		if c.sendable(l) {
			p = c.appendLink(p, l)
			written++
		}
		return true
	})
	c.emit(p)
}

// appendLink appends the changed values of l. Values beyond the 255th stay
// marked, but the link is no longer in the list: it is never sent again.
func (c *Client) appendLink(p []byte, l *Link) []byte {
	p = binary.LittleEndian.AppendUint16(p, uint16(l.ID))
	if l.State == nil {
		l.pending = false
		return p
	}
	if c.b.Profile == wire.Spec {
		return c.appendPrefix(p, l)
	}
	n := min(l.changed.Count(), countMax)
	p = append(p, byte(n))
	for i, ok := l.changed.Next(0); ok && n > 0; i, ok = l.changed.Next(i + 1) {
		p = binary.LittleEndian.AppendUint16(p, uint16(i))
		p = append(p, l.State.Value(i)...)
		l.changed.Clear(i)
		n--
	}
	l.pending = !l.changed.Empty()
	return p
}

// appendPrefix appends values 0 to the last changed one, with their types: the
// text has no index.
func (c *Client) appendPrefix(p []byte, l *Link) []byte {
	n := 0
	for i, ok := l.changed.Next(0); ok; i, ok = l.changed.Next(i + 1) {
		n = i + 1
	}
	p = append(p, c.count(n)...)
	for i := range n {
		p = append(append(p, byte(l.State.Layout().Type(i))), l.State.Value(i)...)
	}
	l.changed.Reset()
	l.pending = false
	return p
}

// count encodes a count of links or values.
func (c *Client) count(n int) []byte {
	if c.b.Profile == wire.Spec {
		return binary.LittleEndian.AppendUint16(nil, uint16(n))
	}
	return []byte{byte(n)}
}

// handleLinkUpdate applies values until the datagram ends, or something in it
// is not as expected; what was applied stays.
func (c *Client) handleLinkUpdate(body []byte) {
	r := wire.NewReader(body)
	links, ok := c.readCount(&r)
	for ; links > 0 && ok && r.Err() == nil; links-- {
		id := wire.LinkID(r.Uint16())
		var values int
		values, ok = c.readCount(&r)
		l := c.links.byID[id]
		if r.Err() != nil {
			break
		}
		if l == nil || l.Phase != LinkIsUp || l.State == nil {
			c.Stats.Unknown++
			return
		}
		ok = ok && c.readValues(&r, l, values)
	}
	if r.Err() != nil || !ok {
		c.Stats.Exceptions++ // the engine catches this one
	}
}

// readCount reads a count. It reports false for one that Java takes for
// negative.
func (c *Client) readCount(r *wire.Reader) (n int, ok bool) {
	if c.b.Profile == wire.Spec {
		return int(r.Uint16()), true
	}
	n = int(r.Uint8())
	return n, n < 128 || !c.b.SignedCounts
}

func (c *Client) readValues(r *wire.Reader, l *Link, n int) bool {
	types := l.State.Layout().Types()
	for i := range n {
		index := i
		if c.b.Profile == wire.Spec {
			if t := wire.ValueType(r.Uint8()); i >= len(types) || t != types[i] {
				return false
			}
		} else {
			index = int(r.Uint16())
		}
		if r.Err() != nil || index >= len(types) {
			return false
		}
		value := r.Value(types[index])
		if r.Err() != nil || !c.readableValue(types[index], value) {
			return false
		}
		if c.b.EnforcesReadOnly && l.Own && l.ReadOnly {
			continue
		}
		c.apply(l, index, value)
	}
	return true
}

// apply stores a value that the peer sent. Java and Python leave a local change
// marked, and so send the peer's own value back.
func (c *Client) apply(l *Link, i int, value []byte) {
	l.State.Set(i, value)
	l.sent.Set(i, value)
	if c.b.RemoteClearsLocal && l.changed.Has(i) {
		l.changed.Clear(i)
		l.pending = !l.changed.Empty()
	}
	c.Stats.Updates++
	c.updated(l, i)
}

func (c *Client) updated(l *Link, i int) {
	if c.cfg.App.Updated != nil {
		c.cfg.App.Updated(l, i)
	}
}
