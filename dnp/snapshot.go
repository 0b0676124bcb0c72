package dnp

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// snapshotVersion is the first byte of a snapshot. Restore refuses every other version.
const snapshotVersion = 1

// AppendSnapshot appends all that Restore needs to continue this connection elsewhere:
// both windows with what they hold, the link table, and what is being repeated. It
// leaves out unreliable messages, values (Restore sends those of our links again), and offers
// of the peer that were not answered (Restore takes them down).
func (c *Conn) AppendSnapshot(b []byte) []byte {
	return appendSnapshot(b, c, true)
}

// AppendCheckpoint appends a snapshot without the messages that have no number yet: a
// log does not promise them to the peer. Links whose farewells are among them are taken
// down without.
func (c *Conn) AppendCheckpoint(b []byte) []byte {
	return appendSnapshot(b, c, false)
}

func appendSnapshot(b []byte, c *Conn, queue bool) []byte {
	w := snapshotWriter{b: append(b, snapshotVersion, byte(c.e.cfg.Profile))}
	w.bool(c.client)
	w.bool(c.send.peerLong)
	w.bool(c.life.spoke)
	w.bool(c.links.ids.recycled)
	w.recv(&c.recv, c.log != nil)
	w.links(&c.links, queue)
	w.send(&c.send, &c.links, queue)
	w.repeats(&c.send)
	return w.b
}

// A snapshotWriter appends the fields of a snapshot: integers as varints, byte
// strings behind their length.
type snapshotWriter struct{ b []byte }

func (w *snapshotWriter) uint(v uint64) { w.b = binary.AppendUvarint(w.b, v) }

func (w *snapshotWriter) int(v int) { w.uint(uint64(v)) }

func (w *snapshotWriter) bytes(p []byte) {
	w.int(len(p))
	w.b = append(w.b, p...)
}

func (w *snapshotWriter) bool(v bool) {
	if v {
		w.b = append(w.b, 1)
		return
	}
	w.b = append(w.b, 0)
}

// recv leaves out what no log has: the peer has no acknowledgement, and repeats it.
func (w *snapshotWriter) recv(r *recvWindow, logged bool) {
	w.uint(r.next)
	w.int(r.count(logged))
	for i := range r.early {
		if e := &r.early[i]; e.bound(logged) {
			w.uint(e.n)
			w.uint(uint64(e.cmd))
			w.bytes(e.buf)
		}
	}
	message, link := cmp.Or(r.long.message, &longPart{}), cmp.Or(r.long.link, &longPart{})
	w.bool(message.due != 0)
	w.bytes(message.whole.Values)
	w.bool(link.due != 0)
	w.uint(uint64(link.whole.Link))
	w.uint(uint64(link.whole.Flags))
	w.bytes(link.whole.Message)
	w.bytes(link.whole.Values)
}

func (w *snapshotWriter) links(t *linkTable, queue bool) {
	w.uint(uint64(t.ids.hello.first))
	w.int(int(t.ids.hello.n))
	w.int(len(t.ids.index))
	w.int(len(t.slots) - len(t.free))
	for slot := range t.slots {
		l := &t.slots[slot]
		if l.phase == 0 {
			continue
		}
		w.uint(uint64(l.id))
		w.uint(uint64(l.phase))
		w.uint(uint64(l.flags & (linkReadOnly | linkByPeer | linkProven)))
		w.bool(l.source != noSource)
		if l.source != noSource {
			w.uint(t.core.sources[l.source].cfg.Ref)
		}
	}
	downs := slices.Collect(t.downs.each)
	if !queue {
		t.send.queuedTakeDowns(func(id wire.LinkID) { downs = append(downs, id) })
	}
	w.ids(slices.Collect(t.ups.each))
	w.ids(downs)
	w.int(len(t.holds.all()))
	for key, h := range t.holds.all() {
		w.uint(uint64(t.slots[key>>16].id))
		w.uint(uint64(key & 0xFFFF))
		w.uint(h.snapshotFlags())
		if h.write != 0 {
			w.uint(uint64(h.write))
		}
		w.bytes(h.value)
	}
}

// Flags of a hold in a snapshot.
const (
	heldUndecided = 1 << iota
	heldNumbered  // the number of the write follows
)

func (h *hold) snapshotFlags() (flags uint64) {
	if h.undecided {
		flags |= heldUndecided
	}
	if h.write != 0 {
		flags |= heldNumbered
	}
	return flags
}

func (w *snapshotWriter) ids(ids []wire.LinkID) {
	w.int(len(ids))
	for _, id := range ids {
		w.uint(uint64(id))
	}
}

func (w *snapshotWriter) send(s *sendWindow, t *linkTable, queue bool) {
	w.uint(s.next)
	w.int(len(s.flight))
	room := flightBytesMax // for offers
	for i := range s.flight {
		o := &s.flight[i]
		w.uint(uint64(o.kind))
		w.uint(uint64(o.flags))
		w.bool(o.acked)
		w.bool(o.takeDown)
		w.uint(uint64(o.sends))
		w.uint(uint64(o.link))
		data := o.data
		if o.kind == SentLink && !o.acked { // for a Restore that does not find the Source
			data = t.offerBody(int(o.slot))
		}
		if room -= len(data); room < 0 && (o.kind == SentLink || o.kind == SentFrozen) {
			room += len(data)
			data = standIn(o.link)
		}
		w.bytes(data)
	}
	if !queue {
		w.int(0)
		w.int(0)
		w.message(&outgoing{})
	} else {
		w.int(len(s.queue))
		for i := range s.queue {
			w.message(&s.queue[i])
		}
		w.int(int(s.partAt))
		w.message(cmp.Or(s.part, &outgoing{}))
	}
	w.int(len(s.offers))
	for _, slot := range s.offers {
		w.uint(uint64(t.slots[slot].id))
	}
}

func (w *snapshotWriter) repeats(s *sendWindow) {
	r := s.repeats()
	w.bool(s.peerForgets)
	w.uint(r.First)
	w.int(len(r.NoOps))
	for _, place := range r.NoOps {
		w.uint(uint64(place))
	}
}

// standIn returns the body of an offer without values. A snapshot has it instead of offers for
// which it has no room: their states may have grown since they were sent. If Restore does not
// find the Source, the peer takes one of the two offers, and LinkDown ends the link either way.
func standIn(id wire.LinkID) []byte {
	return wire.LinkState{Link: id, ReadOnly: true, Message: helloMessage}.Append(nil)[3:]
}

func (w *snapshotWriter) message(m *outgoing) {
	w.bytes(m.data)
	w.uint(m.token)
	w.bool(m.takeDown)
	w.uint(uint64(m.link))
}

// Restore makes the connection that a snapshot describes, with the peer at addr.
// resolve finds the Source with a SourceConfig.Ref; for nil the link is taken down.
// The peer is sent all values of its links again, and what was in flight. Of links that
// it offered it is sent later changes only, because the snapshot does not tell which
// values came from the peer. There is no EventConnected. The error is ErrSnapshot,
// ErrConnected or ErrConns.
func (e *Endpoint) Restore(now time.Time, addr netip.AddrPort, snapshot []byte, resolve func(ref uint64) *Source) (*Conn, error) {
	t := e.clock.advance(now)
	switch {
	case e.byAddr[addr] != nil:
		return nil, ErrConnected
	case len(e.byAddr) >= connsMax:
		return nil, ErrConns
	}
	e.unproven.forget(addr)
	c := e.add(addr, t)
	r := snapshotReader{wire.NewReader(snapshot)}
	if r.Uvarint(0xFF) != snapshotVersion || r.Uvarint(0xFF) != uint64(e.cfg.Profile) {
		r.Fail(ErrSnapshot)
	}
	c.client, c.send.peerLong, c.life.spoke, c.links.ids.recycled = r.bool(), r.bool(), r.bool(), r.bool()
	c.links.ids.connector = c.client
	if e.startJournal(c); c.log != nil {
		c.log.restored = t
		c.life.restored(t, &e.cfg)
	}
	r.recv(&c.recv, c.log != nil, t)
	r.links(c, resolve, t)
	r.send(&c.send, &c.links, t)
	r.repeats(&c.send, e.cfg.Profile)
	if r.Err() != nil || len(r.Rest()) > 0 {
		c.Abandon()
		return nil, ErrSnapshot
	}
	c.log.storedUpTo(c.send.next)
	c.links.startScrub(t)
	c.wake()
	c.settle(t)
	return c, nil
}

// LoggedNumbers returns what [Conn.NextNumbers] would for the connection that a snapshot
// and the changes behind it describe. It stops at a change that does not follow, and
// returns zeros if the snapshot cannot be read. It tells an owner that cannot continue a
// connection how far the log knows it.
func LoggedNumbers(snapshot []byte, changes []Changes) (received, sent uint64) {
	if c := loggedConn(snapshot, changes, unresolved); c != nil {
		return c.NextNumbers()
	}
	return 0, 0
}

// LoggedRefs returns the SourceConfig.Ref of each Source to which the connection that a snapshot and the
// changes behind it describe has a link, in the order of refs. It stops at a change that does not follow.
func LoggedRefs(snapshot []byte, changes []Changes) (refs []uint64) {
	layout, err := netstate.NewLayout(make([]netstate.Value, 1))
	if err != nil {
		panic("dnp: a layout of one value is refused")
	}
	state, sources := netstate.NewState(layout), make(map[uint64]*Source)
	c := loggedConn(snapshot, changes, func(e *Endpoint, ref uint64) *Source {
		if sources[ref] == nil {
			sources[ref] = e.NewSource(SourceConfig{State: state, Message: helloMessage, Ref: ref})
		}
		return sources[ref]
	})
	if c == nil {
		return nil
	}
	for i := range c.links.slots {
		if l := &c.links.slots[i]; l.phase != 0 && l.source != noSource {
			refs = append(refs, c.e.sources[l.source].cfg.Ref)
		}
	}
	slices.Sort(refs)
	return refs
}

// unresolved finds no Source.
func unresolved(*Endpoint, uint64) *Source { return nil }

// loggedConn makes the connection that a snapshot and the changes behind it describe, without a
// peer. It stops at a change that does not follow, and returns nil if the snapshot cannot be
// read.
func loggedConn(snapshot []byte, changes []Changes, resolve func(e *Endpoint, ref uint64) *Source) *Conn {
	if len(snapshot) < 2 {
		return nil
	}
	e, err := New(Config{Profile: wire.Profile(snapshot[1]), Logged: true, LongMax: longMaxMax})
	if err != nil {
		return nil
	}
	now, source := time.Unix(0, 0), func(ref uint64) *Source { return resolve(e, ref) }
	c, err := e.Restore(now, netip.AddrPort{}, snapshot, source)
	if err != nil {
		return nil
	}
	for _, ch := range changes {
		if c.Replay(now, ch, source) != nil {
			break
		}
	}
	return c
}

// A snapshotReader reads the fields of a snapshot. The first failure sticks and turns
// all that follows into zeros.
type snapshotReader struct{ wire.Reader }

// count reads a number of things that take at least a byte each.
func (r *snapshotReader) count() int { return int(r.Uvarint(uint64(len(r.Rest())))) }

func (r *snapshotReader) id() wire.LinkID { return wire.LinkID(r.Uvarint(0xFFFF)) }

func (r *snapshotReader) bool() bool { return r.Uvarint(1) == 1 }

// bytes returns a copy.
func (r *snapshotReader) bytes() []byte { return bytes.Clone(r.Counted()) }

const uintMax = 1<<63 - 1

func (r *snapshotReader) recv(w *recvWindow, logged bool, now instant) {
	w.next, w.hole = r.Uvarint(uintMax), now
	for range r.count() {
		e := early{n: r.Uvarint(uintMax), cmd: wire.Command(r.Uvarint(0xFF)), buf: r.bytes(), store: stored}
		if !w.restore(e, logged) {
			r.Fail(ErrSnapshot)
			return
		}
	}
	message, link := longPart{due: now.add(longPatience)}, longPart{due: now.add(longPatience)}
	open := r.bool()
	if message.whole.Values = r.bytes(); open {
		w.long.message = &message
	}
	if r.bool() {
		w.long.link = &link
	}
	link.whole = wire.LinkStateLong{Link: r.id(), Flags: wire.LinkStateFlags(r.Uvarint(0xFF)), Message: r.bytes(), Values: r.bytes()}
}

func (r *snapshotReader) links(c *Conn, resolve func(uint64) *Source, now instant) {
	t := &c.links
	t.ids.hello = helloIDs{first: r.id(), n: uint8(r.Uvarint(helloMax))}
	t.ids.index = make([]uint16, r.Uvarint(uint64(t.ids.ordinals())))
	for range r.count() {
		r.link(t, resolve, now)
		if r.Err() != nil {
			return
		}
	}
	r.schedule(&t.ups, now)
	r.schedule(&t.downs, now)
	for range r.count() {
		id, index, flags := r.id(), int(r.Uvarint(0xFFFF)), r.Uvarint(heldUndecided|heldNumbered)
		var write uint32
		if flags&heldNumbered != 0 {
			write = uint32(r.Uvarint(1<<32 - 1))
		}
		c.Writes().Hold(id, index, write, r.bytes())
		if flags&heldUndecided == 0 {
			c.Writes().Release(id, index)
		}
	}
}

func (r *snapshotReader) link(t *linkTable, resolve func(uint64) *Source, now instant) {
	l := link{id: r.id(), phase: LinkPhase(r.Uvarint(uint64(LinkUp))), flags: linkFlags(r.Uvarint(uint64(linkReadOnly | linkByPeer | linkProven))), source: noSource}
	var s *Source
	if r.bool() {
		s = resolve(r.Uvarint(1<<64 - 1))
	}
	_, twice := t.slotOf(l.id)
	ordinal, ours := t.ids.ordinal(l.id)
	if r.Err() != nil || twice || l.phase == 0 || !l.has(linkByPeer) && (!ours || ordinal >= len(t.ids.index)) {
		r.Fail(ErrSnapshot)
		return
	}
	if s == nil || s.removed {
		if l.phase != LinkQueued {
			t.downs.start(retry{link: l.id, start: now})
		}
		return
	}
	if _, linked := t.find(s); linked || l.has(linkByPeer) && l.phase != LinkUp {
		r.Fail(ErrSnapshot)
		return
	}
	slot := t.newSlot()
	if l.has(linkByPeer) {
		l.sent = s.settled()
		t.addPeerLink(l.id, slot, l.sent)
	} else {
		t.ids.index[ordinal] = uint16(slot + 1)
	}
	t.attach(slot, l, s)
	if t.core.sends(&t.slots[slot]) {
		t.mark(slot)
	}
}

func (r *snapshotReader) schedule(l *retrySchedule, now instant) {
	for range r.count() {
		l.start(retry{link: r.id(), start: now})
	}
}

func (r *snapshotReader) send(w *sendWindow, t *linkTable, now instant) {
	w.next = r.Uvarint(uintMax)
	for range r.count() {
		o := outgoing{
			kind: CommandKind(r.Uvarint(uint64(SentFrozen))), flags: wire.PartFlags(r.Uvarint(0xFF)),
			acked: r.bool(), takeDown: r.bool(), sends: uint16(r.Uvarint(0xFFFF)), link: r.id(), data: r.bytes(),
			first: now, last: now - instant(t.core.cfg.ReliableResend), // due at once
		}
		if o.sends == 0 && t.log == nil { // only a logged connection numbers before it sends
			r.Fail(ErrSnapshot)
			return
		}
		slot, ok := t.slotOf(o.link)
		switch {
		case o.kind != SentLink || o.acked:
		case ok && !t.slots[slot].has(linkByPeer) && t.slots[slot].phase != LinkQueued && w.offerInFlight(slot) == nil:
			o.slot, o.size, o.data = uint16(slot), uint32(len(o.data)), nil
		default:
			o.kind, o.takeDown = SentFrozen, true
		}
		w.flight = append(w.flight, o)
	}
	for range r.count() {
		w.enqueue(r.message())
	}
	w.partAt = int32(r.Uvarint(1<<31 - 1))
	if part := r.message(); w.partAt > 0 {
		w.part = &part
	}
	if t.ids.connector || w.partAt > 0 || slices.ContainsFunc(w.flight, func(o outgoing) bool { return o.kind == SentPart }) {
		w.long = longTaken
	}
	for range r.count() {
		if slot, ok := t.slotOf(r.id()); ok && t.slots[slot].phase == LinkQueued && !slices.Contains(w.offers, uint16(slot)) {
			w.offers = append(w.offers, uint16(slot))
		}
	}
	if uint64(len(w.flight)) > w.next || len(w.flight) > sendWindowMax || w.partAt > 0 && int(w.partAt) >= len(w.part.data) {
		r.Fail(ErrSnapshot)
		return
	}
	t.resumeWaits(now)
}

// repeats reads what the peer may keep. The former owner may have sent what had a number, too.
func (r *snapshotReader) repeats(w *sendWindow, p wire.Profile) {
	w.peerForgets = r.bool()
	kept := Repeats{First: r.Uvarint(uintMax)}
	for range r.count() {
		kept.NoOps = append(kept.NoOps, uint16(r.Uvarint(p.Modulus()-1)))
	}
	w.restoreRepeats(kept, p)
	for i := range w.flight {
		if o := &w.flight[i]; o.sends == 0 && !o.acked {
			w.keeps(w.base()+uint64(i), o.kind == SentProbe, p, nil)
		}
	}
}

func (r *snapshotReader) message() outgoing {
	return outgoing{data: r.bytes(), token: r.Uvarint(1<<64 - 1), takeDown: r.bool(), link: r.id()}
}

// resumeWaits waits anew for the answers to offers that were acknowledged.
func (t *linkTable) resumeWaits(now instant) {
	for slot := range t.slots {
		if l := &t.slots[slot]; l.phase == LinkOffered && !l.has(linkByPeer) && t.send.offerInFlight(slot) == nil {
			t.awaitAnswer(l.id, now)
		}
	}
	t.commandsProcessed(now)
}

// KnownSnapshot reports whether a snapshot has the format that [Endpoint.Restore] reads. One of
// another format is of another release, and not damaged.
func KnownSnapshot(snapshot []byte) bool {
	return len(snapshot) > 0 && snapshot[0] == snapshotVersion
}
