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

// repeatWait is how long repeats wait for other values, so that a Flush with few of them does not send as many datagrams as
// one with all that changed. A state that changes 20 times a second is quiet for longer before it is repeated.
const repeatWait = 10 * time.Millisecond

// Pending reports whether it is time for a Flush. The owner asks again after the time of NextTimeout.
func (e *Endpoint) Pending() bool {
	return len(e.dirty)+len(e.flushing) > 0 && (e.urgent || e.repeatsBy <= e.clock.now)
}

// repeatSoon has Pending say within repeatWait that it is time for a Flush.
func (e *core) repeatSoon() { e.repeatsBy = min(e.repeatsBy, e.clock.now.add(repeatWait)) }

// Flush sends changed values to the peers that are linked to them.
//
// It encodes what changed once per Source. Then it builds each connection's datagrams
// in one go, so that they are as full as possible.
//
// A peer whose budget does not suffice is sent the most urgent part; NextTimeout tells
// when it can be sent more.
func (e *Endpoint) Flush(now time.Time, out Sender) {
	t := e.clock.advance(now)
	e.updateMax, e.urgent, e.repeatsBy = 0, false, never
	for i, s := range e.dirty {
		e.dirty[i] = nil
		if s.removed {
			continue
		}
		s.encode()
		s.flushed(t)
		e.updateMax = max(e.updateMax, s.flushSize())
		for _, r := range s.links {
			e.conns[r.conn].links.push(uint16(r.slot))
		}
	}
	e.dirty = e.dirty[:0]
	for i, c := range e.flushing {
		e.flushing[i] = nil
		c.flush(t, out)
	}
	e.flushing = e.flushing[:0]
}

// flush sends the values that the peer's links lack.
func (c *Conn) flush(now instant, out Sender) {
	t := &c.links
	t.flushing = false
	if c.state != connEstablished {
		return
	}
	if c.log.isMuted() {
		t.deferPending(now)
		return
	}
	most := t.pendingBytes + len(t.pending)*c.e.updateMax
	most = (most + most/8) * c.loss.copies() // with the heads of datagrams
	if len(t.waiting) > 0 || !c.budget.affords(&c.e.rate, most, now) {
		c.flushShort(now, out)
		return
	}
	w := updateWriter{c: c, out: out}
	w.order = t.holds.ordering() // in the literal, the compiler would build the writer twice
	w.write(t.pending)
	w.finish()
	if w.order != nil {
		w.order.sendAcks(c, out)
	}
	t.pending, t.pendingBytes = t.pending[:0], 0
	if c.budget.crowd.sent == crowdedDatagrams { // it is time to ask the peer
		c.settle(now)
	}
}

// flushShort sends the most urgent of the links that wait, until the budget is used up.
func (c *Conn) flushShort(now instant, out Sender) {
	t, cfg := &c.links, &c.e.cfg
	t.deferPending(now)
	if allowed := c.budget.allowance(&c.e.rate, c.budget.batch(&c.e.rate, len(t.waiting)), cfg.DatagramMax, now); allowed > 0 {
		t.rank(now)
		w := updateWriter{c: c, out: out, order: t.holds.ordering()}
		for len(t.waiting) > 0 && w.paid+len(w.b) < allowed {
			w.write([]uint16{t.mostUrgent()})
		}
		w.finish()
	}
	if len(t.waiting) == 0 {
		t.waiting = nil // it may be as long as the link table
	}
	t.holds.ordering().sendAcks(c, out)
	c.settle(now)
}

// flushAt returns when the budget allows values of the links that wait, or acknowledgements have waited for long enough.
func (t *linkTable) flushAt(b *budget) instant {
	switch {
	case t.flushing:
		return never
	case len(t.waiting) == 0:
		return t.holds.ordering().flushAt()
	}
	r := &t.core.rate
	return min(t.holds.ordering().flushAt(), b.allowedAt(r, b.batch(r, len(t.waiting)), t.core.cfg.DatagramMax))
}

// An updateWriter builds the LinkUpdates of one connection.
type updateWriter struct {
	c      *Conn
	out    Sender
	b      []byte // nil between datagrams
	links  int
	values int         // of the open link
	count  int         // place of the open link's number of values in b; 0 if none is open
	repeat bool        // the link that is being written is sent values again
	again  bool        // the open datagram has such a link
	single bool        // one datagram is all
	full   bool        // it is full
	link   wire.LinkID // that is open; of value
	paid   int         // bytes of the budget that were spent

	order   *ordering // of the datagrams; nil if they have no trailers
	sizeMax int       // of a datagram, without its trailer
}

// write writes what the links in these slots lack, if anything.
func (w *updateWriter) write(slots []uint16) {
	e, t := w.c.e, &w.c.links
	for _, slot := range slots {
		l := &t.slots[slot]
		l.flags &^= linkMarked | linkWaiting | linkChanged
		if !l.weSend() {
			continue
		}
		s := e.sources[l.source]
		w.repeat = s.repeated || l.sent == 0 // the scrub is a repeat, too
		switch {
		case l.sent == s.version: // it lacks nothing
		case l.sent == s.version-1 && s.encodedVersion == s.version && l.phase != LinkPresumed && !l.has(linkHeld): // it lacks what most links lack
			w.copy(l.id, s.encoded)
		case s.cfg.Silent: // checked here because such a source has nothing encoded
			continue
		case l.phase == LinkPresumed: // the peer drops what follows a link that it does not know
			w.finish()
			w.encode(int(slot), s)
			w.finish()
		default: // it is further behind, or values are withheld
			w.encode(int(slot), s)
		}
		l.sent = s.version
	}
}

// copy writes a link whose count and values are encoded.
func (w *updateWriter) copy(id wire.LinkID, encoded []byte) {
	if len(w.b)+2+len(encoded) > w.sizeMax || w.links == updateLinksMax || w.b == nil {
		w.start(2 + len(encoded))
	}
	w.addLink()
	w.b = append(append(w.b, byte(id), byte(id>>8)), encoded...)
}

// addLink counts a link of the open datagram.
func (w *updateWriter) addLink() {
	w.links++
	w.again = w.again || w.repeat
}

// encode writes the values that a link lacks.
func (w *updateWriter) encode(slot int, s *Source) {
	l, p := &w.c.links.slots[slot], w.c.e.cfg.Profile
	if p == wire.Spec {
		w.encodePrefix(slot, s)
		return
	}
	layout := s.cfg.State.Layout()
	for i, version := range s.changed {
		if version <= l.sent {
			continue
		}
		v := s.value(i)
		if l.has(linkHeld) && w.c.links.holds.withhold(newHoldKey(slot, i), v, w.c.e.clock.now) || !w.open(l.id, len(v)) {
			continue
		}
		w.values++
		w.b = p.AppendUpdateValue(w.b, i, layout.Type(i), v)
	}
	w.close()
}

// value writes a value of the link in slot into the only datagram. It reports false if it has no room.
func (w *updateWriter) value(slot int, s *Source, index int) bool {
	l, v := &w.c.links.slots[slot], s.value(index)
	if w.link != l.id {
		w.close()
	}
	if !w.open(l.id, len(v)) {
		return !w.full // no datagram has so much
	}
	w.link = l.id
	w.values++
	w.b = w.c.e.cfg.Profile.AppendUpdateValue(w.b, index, s.cfg.State.Layout().Type(index), v)
	return true
}

// open makes room for a value of size bytes of a link. It reports false if no
// datagram has so much.
func (w *updateWriter) open(id wire.LinkID, size int) bool {
	p := w.c.e.cfg.Profile
	need := p.UpdateValueSize(size)
	if w.count > 0 && w.values < updateValuesMax && len(w.b)+need <= w.sizeMax {
		return true
	}
	if need > w.sizeMax && p.UpdateHeadSize()+p.UpdateLinkSize()+need+w.order.room() > datagramLimit {
		w.c.e.drop(DropOversize)
		return false
	}
	w.close()
	need += p.UpdateLinkSize()
	if w.b == nil || w.links == updateLinksMax || len(w.b)+need > w.sizeMax {
		if w.full = w.single && w.b != nil; w.full {
			return false
		}
		w.start(need)
	}
	w.addLink()
	w.b = p.AppendUpdateLink(w.b, id, 0)
	w.count = len(w.b) - (p.UpdateLinkSize() - 2)
	return true
}

func (w *updateWriter) close() {
	if w.count > 0 {
		w.c.e.cfg.Profile.PutUpdateCount(w.b[w.count:], w.values)
		w.count, w.values = 0, 0
	}
}

// encodePrefix writes the values of a link up to the last that it lacks, in one
// piece: profile spec has no other way. For a value that is withheld the peer gets its
// own bytes.
func (w *updateWriter) encodePrefix(slot int, s *Source) {
	l, p, layout := &w.c.links.slots[slot], w.c.e.cfg.Profile, s.cfg.State.Layout()
	n, need := s.lastNewer(l.sent)+1, p.UpdateLinkSize()
	for i := range n {
		need += p.UpdateValueSize(len(w.c.links.valueFor(slot, i, s)))
	}
	if p.UpdateHeadSize()+need+w.order.room() > datagramLimit {
		w.c.e.drop(DropOversize)
		return
	}
	if w.b == nil || len(w.b)+need > w.sizeMax {
		w.start(need)
	}
	w.addLink()
	w.b = p.AppendUpdateLink(w.b, l.id, n)
	for i := range n {
		w.b = p.AppendUpdateValue(w.b, i, layout.Type(i), w.c.links.valueFor(slot, i, s))
	}
}

// start sends the open datagram and begins one with room for need more bytes.
func (w *updateWriter) start(need int) {
	w.finish()
	p, size := w.c.e.cfg.Profile, w.c.e.cfg.DatagramMax
	trailer := 0
	if w.order != nil {
		trailer = w.order.room()
	}
	if !w.single {
		w.sizeMax = size - trailer
	}
	w.b = p.AppendUpdateHead(w.out.Datagram(max(size, p.UpdateHeadSize()+need+trailer)), 0)
}

// finish sends the open datagram, several times if it repeats values on a path with loss.
func (w *updateWriter) finish() {
	if w.b == nil {
		return
	}
	e, p := w.c.e, &w.c.path
	e.cfg.Profile.PutUpdateLinks(w.b, w.links)
	if w.order != nil {
		w.b = w.order.append(w.b)
	}
	e.stats.UpdatesOut += uint64(w.links)
	p.budget.updated = e.clock.now
	w.paid += p.size(len(w.b))
	if copies := p.loss.copies(); w.again && copies > 1 {
		w.paid += (copies - 1) * p.size(len(w.b))
		e.scratch = append(e.scratch[:0], w.b...)
		for range copies - 1 {
			p.emit(w.b, w.out)
			w.b = append(w.out.Datagram(len(e.scratch)), e.scratch...)
		}
	}
	p.emit(w.b, w.out)
	w.b, w.links, w.again = nil, 0, false
}
