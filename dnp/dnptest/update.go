package dnptest

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/x448/float16"
)

// countMax is the largest count of links, and of values of a link, in a
// LinkUpdate of the libraries.
const countMax = 255

// Set writes value i of a link like the application of a library: also on a read-only
// link, which no library prevents. A change within the precision of the value last sent
// is not marked. Set reports whether it marked the value.
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

// due reports whether a change waits for the next tick.
func (t *linkTable) due() bool {
	return slices.ContainsFunc(t.modified, t.port.b.sendable)
}

func (b *Behaviour) sendable(l *Link) bool {
	return l.Phase == LinkIsUp && l.pending && !(b.EnforcesReadOnly && l.ReadOnly && !l.Own)
}

// flush sends the changes of all links in one datagram, however large.
func (t *linkTable) flush() {
	b, count := &t.port.b, 0
	for _, l := range t.modified {
		if b.sendable(l) {
			count++
		}
	}
	if count == 0 {
		return
	}
	count = min(count, countMax)
	p := append([]byte{byte(wire.CommandLinkUpdate)}, b.count(count)...)
	written := 0
	t.modified = slices.DeleteFunc(t.modified, func(l *Link) bool {
		if written == count || l.Phase != LinkIsUp {
			return false
		}
		if b.sendable(l) {
			p = b.appendLink(p, l)
			written++
		}
		return true
	})
	t.port.emit(p)
}

// appendLink appends the changed values of l. Values beyond the 255th stay marked, but
// the link leaves the list, so they are never sent.
func (b *Behaviour) appendLink(p []byte, l *Link) []byte {
	p = binary.LittleEndian.AppendUint16(p, uint16(l.ID))
	if l.State == nil {
		l.pending = false
		return p
	}
	if b.Profile == wire.Spec {
		return b.appendPrefix(p, l)
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
func (b *Behaviour) appendPrefix(p []byte, l *Link) []byte {
	n := 0
	for i, ok := l.changed.Next(0); ok; i, ok = l.changed.Next(i + 1) {
		n = i + 1
	}
	p = append(p, b.count(n)...)
	for i := range n {
		p = append(append(p, byte(l.State.Layout().Type(i))), l.State.Value(i)...)
	}
	l.changed.Reset()
	l.pending = false
	return p
}

// count encodes a count of links or values.
func (b *Behaviour) count(n int) []byte {
	if b.Profile == wire.Spec {
		return binary.LittleEndian.AppendUint16(nil, uint16(n))
	}
	return []byte{byte(n)}
}

// handleLinkUpdate applies values until the datagram ends or has an error. Values before
// the error stay applied.
func (c *Client) handleLinkUpdate(body []byte) {
	r := wire.NewReader(body)
	links, ok := c.b.readCount(&r)
	for ; links > 0 && ok && r.Err() == nil; links-- {
		id := wire.LinkID(r.Uint16())
		var values int
		values, ok = c.b.readCount(&r)
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
		c.Stats.Exceptions++ // the engine catches this exception
	}
}

// readCount reads a count. It reports false for one that Java reads as negative.
func (b *Behaviour) readCount(r *wire.Reader) (n int, ok bool) {
	if b.Profile == wire.Spec {
		return int(r.Uint16()), true
	}
	n = int(r.Uint8())
	return n, n < 128 || !b.SignedCounts
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
		if r.Err() == nil && c.b.CrashesOnNoData && !c.b.readableValue(types[index], value) {
			c.bad("data without bytes")
			return true
		}
		if r.Err() != nil || !c.b.readableValue(types[index], value) {
			return false
		}
		if c.b.EnforcesReadOnly && l.Own && l.ReadOnly {
			continue
		}
		c.apply(l, index, value)
	}
	return true
}

// apply stores a value from the peer. Java and Python leave a local change marked, so
// they send the peer's own value back.
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

// near reports whether a change from old to value is too small to be sent: no component
// of a floating point value moved by more than the precision. Values of other types must
// be equal.
func near(v netstate.Value, old, value []byte) bool {
	if bytes.Equal(old, value) {
		return true
	}
	if v.Type.Kind() != wire.KindFloat {
		return false
	}
	for w := v.Type.Width(); len(value) > 0; old, value = old[w:], value[w:] {
		if !(math.Abs(component(value[:w])-component(old[:w])) <= v.Precision) {
			return false
		}
	}
	return true
}

// component decodes one floating point number of 2, 4 or 8 bytes.
func component(p []byte) float64 {
	switch len(p) {
	case 4:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(p)))
	case 8:
		return math.Float64frombits(binary.LittleEndian.Uint64(p))
	}
	return float64(float16.Frombits(binary.LittleEndian.Uint16(p)).Float32())
}
