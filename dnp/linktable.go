package dnp

import (
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A LinkPhase is how far a link is.
type LinkPhase uint8

const (
	LinkQueued   LinkPhase = iota + 1 // we will offer it
	LinkOffered                       // offered, by us or the peer, and not answered
	LinkPresumed                      // we offered it, the peer acknowledged the offer and said nothing for half a second
	LinkUp                            // linked
)

// A link is 16 bytes, because a client has thousands. What few links have at a time is
// stored beside it: offers in the send window, repeats in schedules, values that the
// peer wrote in holds, ids of the peer in a map.
type link struct {
	source uint32 // handle of the Source
	sent   uint32 // the version of the Source up to which the peer was sent values
	ref    uint32 // place in the Source's list of links
	id     wire.LinkID
	phase  LinkPhase // 0 is a free slot
	flags  linkFlags
}

type linkFlags uint8

const (
	linkReadOnly    linkFlags = 1 << iota // the side that did not offer it must not write
	linkByPeer                            // the peer offered it
	linkProven                            // LinkUp or a LinkUpdate arrived: the peer has it
	linkHeld                              // some values may be in holds
	linkMarked                            // mark put it into pending; its bytes are in pendingBytes
	linkWaiting                           // it is in waiting
	linkChanged                           // it lacks a change, not only a repeat
	linkUnconfirmed                       // the peer offered it and has sent no LinkUpdate: it may not know that it is up
)

func (l *link) has(f linkFlags) bool { return l.flags&f != 0 }

// weSend reports whether our values go to the peer.
func (l *link) weSend() bool {
	return l.phase >= LinkPresumed && l.flags&(linkByPeer|linkReadOnly) != linkByPeer|linkReadOnly
}

// sends reports whether a link is sent values.
func (e *core) sends(l *link) bool { return l.weSend() && !e.sources[l.source].cfg.Silent }

func (l *link) peerWrites() bool { return l.has(linkByPeer) || !l.has(linkReadOnly) }

// A linkTable holds the links of a connection, and the state of the protocol that
// offers, answers, repeats and ends them. It queues offers in the connection's send
// window and reports changes to its journal.
type linkTable struct {
	core *core
	send *sendWindow
	log  *journal
	conn uint32 // handle of the connection

	flushing bool   // in core.flushing
	ordered  bool   // the peer orders its LinkUpdates
	silent   uint16 // links to Silent sources

	slots []link
	free  []uint16 // free slots

	ids   linkIDs
	peer  map[wire.LinkID]peerLink // links that the peer offered
	holds *holdTable

	question *question // nil before the first

	unanswered retrySchedule // links that are presumed up soon
	ups        retrySchedule // LinkUps being repeated
	downs      retrySchedule // LinkDowns being repeated; those rest that a silent peer may have missed
	catchUps   retrySchedule // values being repeated to links that were behind
	scrub      scrubber
	longAnswer instant // from when on a correction may be longer than the write

	pending      []uint16 // slots to flush
	pendingBytes int      // a bound on the bytes of those whose values did not change
	waiting      []waiter // links that wait for the budget
}

// A peerLink is the additional state of a link that the peer offered. Its first values
// came from the peer, so even the scrub sends only values newer than base.
type peerLink struct {
	slot uint16
	base uint32
}

func newLinkTable(e *core, send *sendWindow, conn uint32) linkTable {
	return linkTable{
		core: e, send: send, conn: conn, scrub: scrubber{at: never},
		unanswered: retrySchedule{steps: &presumeSteps}, ups: retrySchedule{steps: &linkUpSteps},
		downs: retrySchedule{steps: &linkDownSteps}, catchUps: retrySchedule{steps: &e.cfg.Refresh},
	}
}

// nextTimeout returns when a repeat, a presumption or the scrub is due. LinkDowns wait while the path takes nothing.
func (t *linkTable) nextTimeout(p *path) instant {
	at := min(t.unanswered.nextTimeout(), t.ups.nextTimeout(), t.catchUps.nextTimeout(), t.scrub.at)
	if p.budget.crowd.room == 0 {
		return at
	}
	return min(at, t.downs.nextTimeout())
}

// find returns the slot of the link to s. It searches the shorter of the two lists,
// the links of the connection or those of the Source; an index would take more memory
// than the links.
func (t *linkTable) find(s *Source) (slot int, ok bool) {
	if len(s.links) < len(t.slots) {
		for _, r := range s.links {
			if r.conn == t.conn {
				return int(r.slot), true
			}
		}
		return 0, false
	}
	for slot := range t.slots {
		if l := &t.slots[slot]; l.phase != 0 && l.source == s.handle {
			return slot, true
		}
	}
	return 0, false
}

// slotOf returns the slot of a link that exists.
func (t *linkTable) slotOf(id wire.LinkID) (slot int, ok bool) {
	if slot, ok := t.ids.slot(id); ok {
		return slot, true
	}
	p, ok := t.peer[id]
	return int(p.slot), ok
}

// slotNear is slotOf for a link that is probably in slot near: peers offer and update states in one order.
func (t *linkTable) slotNear(id wire.LinkID, near int) (slot int, ok bool) {
	if near < len(t.slots) {
		if l := &t.slots[near]; l.id == id && l.phase != 0 && l.has(linkByPeer) {
			return near, true
		}
	}
	return t.slotOf(id)
}

// asker returns what asks the peer.
func (t *linkTable) asker() *question {
	if t.question == nil {
		t.question = &question{links: t, again: never}
	}
	return t.question
}

// sourceAt returns the Source of the link in slot, or nil for an offer of the peer that
// was not accepted.
func (t *linkTable) sourceAt(slot int) *Source {
	if h := t.slots[slot].source; h != noSource {
		return t.core.sources[h]
	}
	return nil
}

func (t *linkTable) newSlot() int {
	if n := len(t.free); n > 0 {
		slot := t.free[n-1]
		t.free = t.free[:n-1]
		return int(slot)
	}
	t.slots = appendTight(t.slots, link{})
	return len(t.slots) - 1
}

// attach puts l into slot and binds it to s.
func (t *linkTable) attach(slot int, l link, s *Source) {
	l.source = s.handle
	l.ref = uint32(len(s.links))
	s.links = appendTight(s.links, linkRef{conn: t.conn, slot: uint32(slot)})
	if s.cfg.Silent {
		t.silent++
		t.core.stats.Silent++
	}
	t.slots[slot] = l
}

// addPeerLink notes that the peer offered the link in slot.
func (t *linkTable) addPeerLink(id wire.LinkID, slot int, base uint32) {
	if t.peer == nil {
		t.peer = make(map[wire.LinkID]peerLink)
	}
	t.peer[id] = peerLink{slot: uint16(slot), base: base}
}

// remove frees the slot. The id stays used up.
func (t *linkTable) remove(slot int) {
	l := &t.slots[slot]
	if l.phase == LinkQueued {
		t.send.removeOffer(slot)
	}
	if !l.has(linkByPeer) {
		t.ids.release(l.id)
	} else {
		delete(t.peer, l.id)
		t.ups.cancel(l.id)
	}
	if l.has(linkHeld) {
		t.holds.dropLink(slot)
	}
	if l.source != noSource {
		t.core.sources[l.source].detach(l.ref)
	}
	*l = link{}
	t.free = append(t.free, uint16(slot))
}

func (t *linkTable) detachAll() {
	for slot := range t.slots {
		if l := &t.slots[slot]; l.phase != 0 && l.source != noSource {
			t.core.sources[l.source].detach(l.ref)
		}
	}
}

// push makes the next Flush look at a link.
func (t *linkTable) push(slot uint16) {
	t.pending = append(t.pending, slot)
	t.core.flushNext(t)
}

// flushSoon makes it time for a Flush, which looks at the connection.
func (t *linkTable) flushSoon() {
	t.core.urgent = true
	t.core.flushNext(t)
}

// flushNext makes the next Flush look at a connection.
func (e *core) flushNext(t *linkTable) {
	if !t.flushing {
		t.flushing = true
		e.flushing = append(e.flushing, e.conns[t.conn])
	}
}

// mark makes the next Flush send values that the peer certainly lacks, although they
// did not change.
func (t *linkTable) mark(slot int) {
	t.slots[slot].flags |= linkChanged
	t.core.urgent = true
	t.markRepeat(slot)
}

// markRepeat makes the next Flush send values that the peer most likely has.
func (t *linkTable) markRepeat(slot int) {
	if l := &t.slots[slot]; !l.has(linkMarked) {
		l.flags |= linkMarked
		t.push(uint16(slot))
		t.core.repeatSoon()
		t.pendingBytes += t.core.sources[l.source].updateSize()
	}
}

// linkIDs are the ids of the links that we offer. An id is never used twice in a
// connection, because the libraries cannot link an id again that went down
// (dnp/PROTOCOL.md, Links). Both sides draw from one space. Libraries count up from 0
// and some skip only a single used id, so the listening side starts far away: at 0x8000
// upwards, then from 0x7FFF down to 0x1000. The connecting side counts from 0, as the
// libraries do.
//
// The place of an id in this order is its ordinal.
type linkIDs struct {
	index     []uint16 // by ordinal: slot+1, 0 if the link is gone
	hello     helloIDs // used by the proof of the address
	connector bool     // we connected
	recycled  bool     // EventRecycle was reported
}

const (
	listenerHigh = 0x7FFF // ids 0x8000 to 0xFFFE
	listenerLow  = 0x7000 // ids 0x7FFF down to 0x1000
	connectorIDs = 0xFFFF // ids 0 to 0xFFFE
)

// ordinals returns how many ids this side has.
func (d *linkIDs) ordinals() int {
	if d.connector {
		return connectorIDs
	}
	return listenerHigh + listenerLow
}

// usable returns how many ids links may have: all but those of questions.
func (d *linkIDs) usable() int {
	if d.connector {
		return connectorIDs
	}
	return listenerHigh + listenerLow - questionIDs
}

// few reports whether nine tenths of the ids are used up.
func (d *linkIDs) few() bool { return len(d.index)*10 >= d.usable()*9 }

func (d *linkIDs) id(ordinal int) wire.LinkID {
	switch {
	case d.connector:
		return wire.LinkID(ordinal)
	case ordinal < listenerHigh:
		return wire.LinkID(0x8000 + ordinal)
	default:
		return wire.LinkID(0x7FFF - (ordinal - listenerHigh))
	}
}

// ordinal is the inverse of id. It reports false for an id that is not ours.
func (d *linkIDs) ordinal(id wire.LinkID) (int, bool) {
	switch {
	case id == 0xFFFF:
		return 0, false
	case d.connector:
		return int(id), true
	case id >= 0x8000:
		return int(id) - 0x8000, true
	case id >= 0x1000:
		return listenerHigh + 0x7FFF - int(id), true
	}
	return 0, false
}

// slot returns the slot of a link that exists.
func (d *linkIDs) slot(id wire.LinkID) (slot int, ok bool) {
	if i, ours := d.ordinal(id); ours && i < len(d.index) && d.index[i] != 0 {
		return int(d.index[i]) - 1, true
	}
	return 0, false
}

// gone reports whether id is one of ours that was used up and has no link: its link
// ended, a hello had it, or it was skipped because the peer uses it.
func (d *linkIDs) gone(id wire.LinkID) bool {
	i, ours := d.ordinal(id)
	return ours && (i < len(d.index) && d.index[i] == 0 || d.hello.used(id))
}

// useTo uses up the id with an ordinal, and those before it.
func (d *linkIDs) useTo(ordinal int) {
	for len(d.index) <= ordinal {
		d.index = appendTight(d.index, 0)
	}
}

// useFrozen uses up the id of an offer whose link ended before the offer was stored: the peer was sent it, so
// another link of this id would be a second one to it. The ids of questions and of the proof of the address are not among
// those that links get in turn.
func (d *linkIDs) useFrozen(id wire.LinkID) {
	if i, ours := d.ordinal(id); ours && i < d.usable() && !d.hello.used(id) {
		d.useTo(i)
	}
}

func (d *linkIDs) release(id wire.LinkID) {
	i, _ := d.ordinal(id)
	d.index[i] = 0
}

// newID uses up the next free id and binds it to slot. It reports false if there is none.
func (t *linkTable) newID(slot int) (wire.LinkID, bool) {
	d := &t.ids
	for len(d.index) < d.usable() {
		id := d.id(len(d.index))
		if _, taken := t.peer[id]; taken || d.hello.used(id) {
			t.useID(0)
			continue
		}
		t.useID(uint16(slot + 1))
		return id, true
	}
	return 0, false
}

// useID notes what the next id stands for, and tells the owner when few ids are left, or none.
func (t *linkTable) useID(slot uint16) {
	d := &t.ids
	d.index = appendTight(d.index, slot)
	switch {
	case len(d.index) == d.usable():
		t.core.event(t.conn, Event{Kind: EventUsedUp})
	case !d.recycled && d.few():
		d.recycled = true
		t.core.event(t.conn, Event{Kind: EventRecycle})
	}
}

// appendTight appends and grows by an eighth. A connection has many tables that mostly
// stop growing, so doubling would cost more than the data.
func appendTight[T any](s []T, v T) []T {
	if len(s) == cap(s) {
		grown := make([]T, len(s), len(s)+len(s)/8+4)
		copy(grown, s)
		s = grown
	}
	return append(s, v)
}
