package dnp

import (
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// Java reads both counts of a LinkUpdate as signed bytes, so 127 is the most.
const (
	updateLinksMax  = 127
	updateValuesMax = 127
)

// Pending reports whether Flush has something to look at.
func (e *Endpoint) Pending() bool { return len(e.dirty)+len(e.flushing) > 0 }

// Flush sends changed values to the peers that are linked to them.
//
// What changed is encoded once per Source. Then each connection's datagrams are
// put together in one go, so that they are as full as possible.
//
// A peer whose budget does not reach for all of it is sent the most urgent part;
// NextTimeout tells when it can be sent more.
func (e *Endpoint) Flush(now time.Time, out Sender) {
	t := e.clock.advance(now)
	e.updateMax = 0
	for i, s := range e.dirty {
		e.dirty[i] = nil
		if s.removed {
			continue
		}
		s.encode()
		s.flushed(t)
		e.updateMax = max(e.updateMax, s.flushSize())
		for _, r := range s.links {
			e.conns[r.conn].push(uint16(r.slot))
		}
	}
	e.dirty = e.dirty[:0]
	for i, c := range e.flushing {
		e.flushing[i] = nil
		c.flush(t, out)
	}
	e.flushing = e.flushing[:0]
}

// push has the next Flush look at a link.
func (c *Conn) push(slot uint16) {
	c.pending = append(c.pending, slot)
	if !c.flushing {
		c.flushing = true
		c.e.flushing = append(c.e.flushing, c)
	}
}

// mark does so for values that the peer certainly lacks, although they did not
// change.
func (c *Conn) mark(slot int) {
	c.links.l[slot].flags |= linkChanged
	c.markRepeat(slot)
}

// markRepeat does so for values that the peer most likely has.
func (c *Conn) markRepeat(slot int) {
	if l := &c.links.l[slot]; !l.has(linkMarked) {
		l.flags |= linkMarked
		c.push(uint16(slot))
		c.pendingBytes += c.e.sources[l.source].updateSize()
	}
}

// flushSize returns how many bytes a link takes that lacks the newest version only.
func (s *Source) flushSize() int {
	if s.encodedVersion == s.version {
		return 2 + len(s.encoded)
	}
	return s.updateSize()
}

// encode writes the values of the newest version as they follow a LinkId. Those
// that do not fit into a datagram together are left to each link.
func (s *Source) encode() {
	p := s.e.cfg.Profile
	room := s.e.cfg.DatagramMax - p.UpdateHeadSize() - 2
	s.encodedVersion = 0
	b := p.AppendUpdateCount(s.encoded[:0], 0)
	layout, values := s.cfg.State.Layout(), 0
	last := s.lastNewer(s.version - 1)
	for i := 0; i <= last; i++ {
		if s.changed[i] != s.version && p != wire.Spec { // profile spec has no index: all before the last go too
			continue
		}
		v := s.cfg.State.Value(i)
		if values++; values > updateValuesMax && p != wire.Spec || len(b)+p.UpdateValueSize(len(v)) > room {
			return
		}
		b = p.AppendUpdateValue(b, i, layout.Type(i), v)
	}
	p.PutUpdateCount(b, values)
	s.encoded, s.encodedVersion = b, s.version
}

// lastNewer returns the last value that is newer than version, or -1.
func (s *Source) lastNewer(version uint32) int {
	for i := len(s.changed) - 1; i >= 0; i-- {
		if s.changed[i] > version {
			return i
		}
	}
	return -1
}

// repeatCopies returns how many copies of a repeat of values go to a peer of which
// this share of reliable commands had to be sent again. That share counts the loss of
// both directions: 0.1 is 5 % each way, 0.51 is 30 %. There, the ten copies of the
// first half second leave less than one link in 100,000 wrong; with two copies each
// it is one in 5,000, which is too much for 99.9 % of 1,000 links in every run.
func repeatCopies(share float32) int {
	switch {
	case share > 0.3:
		return 3
	case share > 0.1:
		return 2
	}
	return 1
}

// An updateWriter puts the LinkUpdates of one connection together.
type updateWriter struct {
	c      *Conn
	out    Sender
	b      []byte // nil between datagrams
	links  int
	values int  // of the open link
	count  int  // place of the open link's number of values in b; 0 if none is open
	again  bool // the open datagram repeats values
	paid   int  // bytes of the budget that went
}

// flush sends the values that the peer's links lack.
func (c *Conn) flush(now instant, out Sender) {
	c.flushing = false
	if c.state != connEstablished {
		return
	}
	if c.muted() {
		c.await(now)
		return
	}
	most := c.pendingBytes + len(c.pending)*c.e.updateMax
	most = (most + most/8) * repeatCopies(c.loss) // with the heads of datagrams
	if len(c.waiting) > 0 || !c.budget.affords(&c.e.tariff, most, now) {
		c.flushShort(now, out)
		return
	}
	w := updateWriter{c: c, out: out}
	w.write(c.pending)
	w.finish()
	c.pending, c.pendingBytes = c.pending[:0], 0
}

// write writes what the links in these slots lack, if anything.
func (w *updateWriter) write(slots []uint16) {
	c := w.c
	for _, slot := range slots {
		l := &c.links.l[slot]
		l.flags &^= linkMarked | linkWaiting | linkChanged
		if !l.weSend() {
			continue
		}
		s := c.e.sources[l.source]
		again := s.refresh.repeated || l.sent == 0 // the scrub is a repeat, too
		switch {
		case l.sent == s.version:
		case l.phase == LinkPresumed: // the peer drops what follows a link that it does not know
			w.finish()
			w.again = again
			w.encode(int(slot), s)
			w.finish()
		case l.sent == s.version-1 && s.encodedVersion == s.version && !l.has(linkHeld):
			w.copy(l.id, s.encoded)
		default:
			w.encode(int(slot), s)
		}
		l.sent = s.version
		w.again = w.b != nil && (w.again || again)
	}
}

// copy writes a link whose count and values are encoded.
func (w *updateWriter) copy(id wire.LinkID, encoded []byte) {
	if len(w.b)+2+len(encoded) > w.c.e.cfg.DatagramMax || w.links == updateLinksMax || w.b == nil {
		w.start(2 + len(encoded))
	}
	w.links++
	w.b = append(append(w.b, byte(id), byte(id>>8)), encoded...)
}

// encode writes the values that a link lacks.
func (w *updateWriter) encode(slot int, s *Source) {
	c, l := w.c, &w.c.links.l[slot]
	if c.e.cfg.Profile == wire.Spec {
		w.encodePrefix(slot, s)
		return
	}
	layout := s.cfg.State.Layout()
	for i, version := range s.changed {
		if version <= l.sent {
			continue
		}
		v := s.cfg.State.Value(i)
		if l.has(linkHeld) && c.held(slot, i, v) {
			continue
		}
		if !w.open(l.id, len(v)) {
			continue
		}
		w.values++
		w.b = c.e.cfg.Profile.AppendUpdateValue(w.b, i, layout.Type(i), v)
	}
	w.close()
}

// open makes room for a value of size bytes of a link. It reports false if no
// datagram has so much.
func (w *updateWriter) open(id wire.LinkID, size int) bool {
	p := w.c.e.cfg.Profile
	need := p.UpdateValueSize(size)
	if p.UpdateHeadSize()+p.UpdateLinkSize()+need > datagramLimit {
		w.c.e.drop(DropOversize)
		return false
	}
	if w.count > 0 && w.values < updateValuesMax && len(w.b)+need <= w.c.e.cfg.DatagramMax {
		return true
	}
	w.close()
	need += p.UpdateLinkSize()
	if w.b == nil || w.links == updateLinksMax || len(w.b)+need > w.c.e.cfg.DatagramMax {
		w.start(need)
	}
	w.links++
	w.b = p.AppendUpdateLink(w.b, id, 0)
	w.count = len(w.b) - (p.UpdateLinkSize() - 2)
	return true
}

// close ends the open link.
func (w *updateWriter) close() {
	if w.count > 0 {
		w.c.e.cfg.Profile.PutUpdateCount(w.b[w.count:], w.values)
		w.count, w.values = 0, 0
	}
}

// encodePrefix writes the values of a link up to the last that it lacks, in one
// piece: profile spec has no other way. For a value that is held the peer gets its
// own bytes.
func (w *updateWriter) encodePrefix(slot int, s *Source) {
	c, l := w.c, &w.c.links.l[slot]
	p, state := c.e.cfg.Profile, s.cfg.State
	n, need := s.lastNewer(l.sent)+1, p.UpdateLinkSize()
	for i := range n {
		need += p.UpdateValueSize(len(c.valueFor(slot, i, state.Value(i))))
	}
	if p.UpdateHeadSize()+need > datagramLimit {
		c.e.drop(DropOversize)
		return
	}
	if w.b == nil || len(w.b)+need > c.e.cfg.DatagramMax {
		w.start(need)
	}
	w.links++
	w.b = p.AppendUpdateLink(w.b, l.id, n)
	for i := range n {
		w.b = p.AppendUpdateValue(w.b, i, state.Layout().Type(i), c.valueFor(slot, i, state.Value(i)))
	}
}

// valueFor returns what the peer is to have as value index.
func (c *Conn) valueFor(slot, index int, value []byte) []byte {
	if c.links.l[slot].has(linkHeld) && c.held(slot, index, value) {
		return c.holds[newHoldKey(slot, index)].value
	}
	return value
}

// start sends the open datagram and begins one with room for need more bytes.
func (w *updateWriter) start(need int) {
	w.finish()
	p := w.c.e.cfg.Profile
	w.b = p.AppendUpdateHead(w.out.Datagram(max(w.c.e.cfg.DatagramMax, p.UpdateHeadSize()+need)), 0)
}

// finish sends the open datagram.
func (w *updateWriter) finish() {
	if w.b == nil {
		return
	}
	c, e := w.c, w.c.e
	e.cfg.Profile.PutUpdateLinks(w.b, w.links)
	e.stats.UpdatesOut += uint64(w.links)
	c.budget.updated = e.clock.now
	w.paid += len(w.b) + c.budget.headers
	if copies := repeatCopies(c.loss); w.again && copies > 1 {
		w.paid += (copies - 1) * (len(w.b) + c.budget.headers)
		e.scratch = append(e.scratch[:0], w.b...)
		for range copies - 1 {
			c.emit(w.b, w.out)
			w.b = append(w.out.Datagram(len(e.scratch)), e.scratch...)
		}
	}
	c.emit(w.b, w.out)
	w.b, w.links, w.again = nil, 0, false
}
