package dnp

import (
	"slices"
	"sort"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// presumeSteps has one step: how long after the acknowledgement of an offer a silent peer is
// presumed to have accepted it. A LinkUp can be lost and is never repeated
// (dnp/PROTOCOL.md, Links).
var presumeSteps = []time.Duration{500 * time.Millisecond}

// A LinkInfo describes a link of a connection.
type LinkInfo struct {
	ID       wire.LinkID
	ReadOnly bool // the side that did not offer it must not write
}

// Link offers the peer a link to s, as soon as the send window has room. Errors
// are ErrClosed, ErrLinked, and ErrLinks if LinksMax links exist or the LinkIds
// are used up.
func (c *Conn) Link(s *Source, readOnly bool) error {
	if c.over() {
		return ErrClosed
	}
	err := c.links.offer(s, readOnly)
	if err == nil {
		c.wake()
	}
	return err
}

// Unlink takes the link to s down, whichever side offered it, after the farewell of s
// if wanted. Without a link it does nothing.
func (c *Conn) Unlink(s *Source, farewell bool) {
	slot, ok := c.links.find(s)
	switch {
	case !ok:
	case farewell:
		c.unlink(slot, s.cfg.Farewell)
	default:
		c.unlink(slot, nil)
	}
}

// unlink takes down a link, after a farewell if it has any bytes. LinkDown follows the
// farewell, or the processing of an offer that is still in flight. A log has to learn
// from the farewell, too, that such an offer ended.
func (c *Conn) unlink(slot int, farewell []byte) {
	t := &c.links
	l := t.slots[slot]
	offered := l.phase >= LinkOffered // an offer in flight included
	inFlight := t.freezeOffer(slot, true)
	t.remove(slot)
	switch {
	case !offered: // the peer never learned of it
	case len(farewell) > 0 && c.Send(farewell, 0) == nil: // a peer that is limited gets LinkDown alone
		if !inFlight || c.log != nil {
			m := &c.send.queue[len(c.send.queue)-1]
			m.takeDown, m.link = true, l.id
		}
	case inFlight:
		c.log.linkChanged(l.id, LinkTakenDown)
	default:
		t.takeDown(l.id)
	}
	c.wake()
}

// SourceOf returns the Source of the link with this id.
func (c *Conn) SourceOf(id wire.LinkID) (*Source, bool) {
	slot, ok := c.links.slotOf(id)
	if !ok {
		return nil, false
	}
	s := c.links.sourceAt(slot)
	return s, s != nil
}

// LinkOf returns the link to s.
func (c *Conn) LinkOf(s *Source) (LinkInfo, bool) {
	slot, ok := c.links.find(s)
	if !ok {
		return LinkInfo{}, false
	}
	l := &c.links.slots[slot]
	return LinkInfo{ID: l.id, ReadOnly: l.has(linkReadOnly)}, true
}

// Relink binds the link to from to another Source of the same layout, which stands
// for the same state: the peer notices only that it is sent all values again. What the
// peer wrote stays held. Errors are ErrNoLink, also for a link that the peer offered,
// ErrLinked and ErrClosed.
func (c *Conn) Relink(from, to *Source) error {
	if c.over() {
		return ErrClosed
	}
	t := &c.links
	slot, ok := t.find(from)
	if !ok || t.slots[slot].has(linkByPeer) || !from.cfg.State.Layout().Equal(to.cfg.State.Layout()) {
		return ErrNoLink
	}
	if _, linked := t.find(to); linked {
		return ErrLinked
	}
	l := t.slots[slot]
	l.sent = 0
	from.detach(l.ref)
	t.attach(slot, l, to)
	if t.core.sends(&t.slots[slot]) {
		t.mark(slot)
		t.startCatchUp(slot)
	}
	c.wake()
	return nil
}

// ourLinks returns the number of links in a table that we offered.
func ourLinks(t *linkTable) int { return len(t.slots) - len(t.free) - len(t.peer) }

// offer makes a link to s and queues its offer.
func (t *linkTable) offer(s *Source, readOnly bool) error {
	if _, linked := t.find(s); linked {
		return ErrLinked
	}
	if ourLinks(t) >= t.core.cfg.LinksMax {
		return ErrLinks
	}
	slot := t.newSlot()
	id, ok := t.newID(slot)
	if !ok {
		t.free = append(t.free, uint16(slot))
		return ErrLinks
	}
	l := link{id: id, phase: LinkQueued}
	if readOnly {
		l.flags |= linkReadOnly
	}
	t.attach(slot, l, s)
	t.queueOffer(slot)
	return nil
}

// EndSilent makes room for another link of c: it takes a link to a Silent Source down, after its farewell.
// It reports false if there is none, or if the peer has fewer links than it may, so that this
// would not help.
func (e *Endpoint) EndSilent(c *Conn) bool {
	t := &c.links
	if t.silent == 0 || ourLinks(t) < e.cfg.LinksMax {
		return false
	}
	for i := range t.slots {
		slot := (len(t.ids.index) + i) % len(t.slots) // another beginning each time, because the new link takes an id
		if l := &t.slots[slot]; l.phase != 0 && l.source != noSource && e.sources[l.source].cfg.Silent {
			c.unlink(slot, e.sources[l.source].cfg.Farewell)
			return true
		}
	}
	return false
}

// queueOffer queues the offer of a link behind those of the same and of higher weights.
func (t *linkTable) queueOffer(slot int) {
	weight := func(slot uint16) float32 { return t.core.sources[t.slots[slot].source].weight }
	mine, offers := weight(uint16(slot)), t.send.offers
	place := sort.Search(len(offers), func(i int) bool { return weight(offers[i]) < mine })
	t.send.offers = slices.Insert(offers, place, uint16(slot))
}

// appendOutgoing appends a command in flight. The table does that, because the bytes of an
// offer are those that its link has at this moment.
func (t *linkTable) appendOutgoing(b []byte, n uint64, o *outgoing) []byte {
	seq := t.core.cfg.Profile.Seq(n)
	switch o.kind {
	case SentMessage:
		return wire.ReliableMessage{Seq: seq, Data: o.data}.Append(b)
	case SentPart, SentProbe:
		return wire.ReliableMessageLong{Seq: seq, Flags: o.flags, Data: o.data}.Append(b)
	case SentLink:
		return t.appendOffer(b, seq, int(o.slot))
	case SentFrozen:
		if o.tries() && t.send.long == longTried {
			return wire.ReliableMessageLong{Seq: seq, Flags: wire.PartFirst, Data: trialPart}.Append(b)
		}
		fallthrough
	default:
		return append(append(b, byte(wire.CommandReliableLinkState), byte(seq), byte(seq>>8)), o.data...)
	}
}

func (t *linkTable) appendOffer(b []byte, seq wire.Seq, slot int) []byte {
	l := &t.slots[slot]
	s := t.core.sources[l.source]
	head := wire.LinkState{Seq: seq, Link: l.id, ReadOnly: l.has(linkReadOnly), Message: s.cfg.Message}
	layout := s.cfg.State.Layout()
	b = wire.AppendLinkStateHead(b, head, layout.Len())
	for i, typ := range layout.Types() {
		b = wire.AppendTypedValue(b, typ, s.value(i))
	}
	return b
}

// offerBody returns what follows the number in the offer of a link.
func (t *linkTable) offerBody(slot int) []byte { return t.appendOffer(nil, 0, slot)[3:] }

// outgoingSize returns the size of a command in flight in bytes, or a little more.
func (t *linkTable) outgoingSize(o *outgoing) int {
	if o.kind != SentLink {
		return 4 + len(o.data)
	}
	s := t.core.sources[t.slots[o.slot].source]
	return 10 + len(s.cfg.Message) + s.typedSize()
}

// freezeOffer gives the unacknowledged offer of a link the bytes that it has at this moment, because the link ends,
// but the number of the offer must never mean anything else. It reports false if there is none.
func (t *linkTable) freezeOffer(slot int, takeDown bool) bool {
	o := t.send.offerInFlight(slot)
	if o == nil {
		return false
	}
	o.kind, o.size, o.data, o.takeDown = SentFrozen, 0, t.offerBody(slot), takeDown
	return true
}

// offerSent notes up to which version an offer carries the values. Only the first
// sending counts: the peer takes one of the copies, and we do not learn which. On a
// logged connection the link counts as offered from the moment its offer has a number.
func (t *linkTable) offerSent(slot int) {
	l := &t.slots[slot]
	l.phase = LinkOffered
	l.sent = t.core.sources[l.source].settled()
}

// commandsProcessed notes which commands the peer has processed. A LinkDown is ignored
// before the peer has processed the offer, so its repeats for a link that ended begin
// here, again if need be.
func (t *linkTable) commandsProcessed(now instant) {
	t.refuseLong() // whether or not commands before the trial are acknowledged
	done := t.send.processed()
	for i := range done {
		switch o := &done[i]; {
		case o.kind == SentLink && o.takeDown && !t.ids.gone(o.link):
			t.refused(o.link)
		case o.kind == SentLink && !t.ids.gone(o.link):
			t.awaitAnswer(o.link, now)
		case o.kind == SentLink, o.kind == SentFrozen && o.takeDown:
			t.takeDownAgain(o.link)
		}
	}
	t.send.forget(len(done), t.core.cfg.Profile, now)
}

// awaitAnswer starts the wait for a LinkUp that may have been lost.
func (t *linkTable) awaitAnswer(id wire.LinkID, now instant) {
	if slot, ok := t.ids.slot(id); ok && t.slots[slot].phase == LinkOffered {
		t.unanswered.start(retry{link: id, start: now})
	}
}

// presume brings links up whose peers are silent.
func (t *linkTable) presume(now instant) {
	for r, ok := t.unanswered.next(now); ok; r, ok = t.unanswered.next(now) {
		if slot, ours := t.ids.slot(r.link); ours && t.slots[slot].phase == LinkOffered {
			t.bringUp(slot, LinkPresumed)
		}
	}
}

// bringUp makes an offered link deliver values.
func (t *linkTable) bringUp(slot int, phase LinkPhase) {
	l, kind := &t.slots[slot], EventLinkUp
	if phase == LinkPresumed {
		kind = EventLinkPresumed
	}
	l.phase = phase
	t.core.event(t.conn, Event{Kind: kind, Link: l.id, Source: t.sourceAt(slot)})
	if l.sent != t.core.sources[l.source].version {
		t.mark(slot)
		t.startCatchUp(slot)
	}
}

// receiveLinkUp handles the peer's acceptance of an offer. It reports whether it is
// valid.
func (t *linkTable) receiveLinkUp(p []byte, w *sendWindow, now instant) bool {
	m, err := wire.ParseLinkUp(p)
	if err != nil {
		t.core.drop(DropTruncated)
		return false
	}
	slot, ok := t.slotOf(m.Link)
	switch {
	case !ok && t.ids.gone(m.Link): // the peer missed our LinkDown
		t.core.drop(DropUnknownLink)
		t.takeDownAgain(m.Link)
		return true
	case !ok:
		t.core.drop(DropUnknownLink)
		return false
	case t.slots[slot].has(linkByPeer), t.slots[slot].phase == LinkQueued:
		t.core.drop(DropUnexpected)
		return false
	}
	t.prove(slot, now)
	w.show(m.Link)
	return true
}

// prove notes that the peer certainly has a link that we offered.
func (t *linkTable) prove(slot int, now instant) {
	l := &t.slots[slot]
	if !l.has(linkProven) {
		t.log.linkChanged(l.id, LinkCameUp)
	}
	l.flags |= linkProven
	if l.phase != LinkUp {
		t.bringUp(slot, LinkUp)
	}
}

// receiveLinkDown handles the peer's refusal of an offer, or the end of a link. It
// reports whether it is valid. Neither LinkUp nor LinkDown stands for the acknowledgement of
// an offer: LinkIds can be guessed, and the peer would wait for the number for ever. So a
// refusal waits for it.
func (t *linkTable) receiveLinkDown(p []byte, now instant) bool {
	m, err := wire.ParseLinkDown(p)
	if err != nil {
		t.core.drop(DropTruncated)
		return false
	}
	slot, ok := t.slotOf(m.Link)
	if !ok || t.slots[slot].phase == LinkQueued {
		t.core.drop(DropUnknownLink)
		return false
	}
	if o := t.send.offerInFlight(slot); o != nil {
		o.takeDown = true
	} else {
		t.refused(m.Link)
	}
	return true
}

// refused ends a link that the peer does not want.
func (t *linkTable) refused(id wire.LinkID) {
	slot, ok := t.slotOf(id)
	if !ok {
		return
	}
	source := t.sourceAt(slot)
	t.log.linkChanged(id, LinkRefused)
	t.remove(slot)
	t.core.event(t.conn, Event{Kind: EventLinkDown, Link: id, Source: source})
}

// takeDown sends LinkDown, and repeats it a few times. On a logged connection this
// begins when the log has stored the end of the link.
func (t *linkTable) takeDown(id wire.LinkID) {
	if t.log != nil {
		t.log.linkChanged(id, LinkTakenDown)
		return
	}
	t.startDown(id)
}

// takeDownAgain sends LinkDown to a peer that cannot have understood an earlier one. If
// the end of the link is not stored yet, Stored sends the first.
func (t *linkTable) takeDownAgain(id wire.LinkID) {
	if t.log == nil || !slices.Contains(t.log.links, LinkChange{id, LinkTakenDown}) {
		t.downs.cancel(id)
		t.startDown(id)
	}
}

func (t *linkTable) startDown(id wire.LinkID) {
	if t.downs.n >= downsMax {
		t.core.drop(DropDownsFull)
		t.downs.dropOldest()
	}
	t.downs.start(retry{link: id, start: t.core.clock.now})
}

// changeID gives a link of ours that the peer does not have another id, because the peer
// offered a link under this one. An offer in flight keeps its bytes, so that its number
// keeps its meaning; the peer ignores it, because its own link has that id. changeID
// reports false if the ids are used up.
func (t *linkTable) changeID(slot int) bool {
	l := &t.slots[slot]
	t.freezeOffer(slot, false)
	id, ok := t.newID(slot)
	t.ids.release(l.id)
	if !ok {
		return false
	}
	l.id = id
	if l.phase != LinkQueued {
		l.phase = LinkQueued
		t.queueOffer(slot)
	}
	l.flags &^= linkProven
	return true
}

// A LinkSurvey says how far a link is, for people who ask what the peer has.
type LinkSurvey struct {
	LinkInfo
	Phase  LinkPhase
	Proven bool // the peer has said something about the link, or offered it
	Ahead  int  // offers that are sent before that of this link, if it is queued

	Held, Newest uint32 // the version up to which the peer was sent values, 0 if all are due; the newest one
	Lacks        int    // values that changed since and were not sent; values that are only repeated do not count

	Silent  bool // it is sent no values
	Waits   bool // for the budget
	Waiting time.Duration

	// Times of the values; less than 0 for never.
	Quiet   time.Duration // since the last change that was flushed
	Refresh time.Duration // until the last changes are repeated
	Scrub   time.Duration // until all values are sent again, about
}

// SurveyLink looks at the link of a connection to s and changes nothing.
func (e *Endpoint) SurveyLink(now time.Time, c *Conn, s *Source) (v LinkSurvey, ok bool) {
	t, at := &c.links, e.clock.advance(now)
	slot, ok := t.find(s)
	if !ok {
		return v, false
	}
	l := &t.slots[slot]
	v = LinkSurvey{
		LinkInfo: LinkInfo{ID: l.id, ReadOnly: l.has(linkReadOnly)}, Phase: l.phase, Proven: l.has(linkProven) || l.has(linkByPeer),
		Held: l.sent, Newest: s.version, Waits: l.has(linkWaiting), Quiet: -1, Refresh: -1, Scrub: t.scrubIn(slot, at),
		Silent: s.cfg.Silent,
	}
	if l.phase == LinkQueued {
		v.Ahead = max(0, slices.Index(t.send.offers, uint16(slot)))
	}
	switch {
	case !t.core.sends(l):
	case l.sent == 0 && l.has(linkChanged): // without the flag, the values are only repeated
		v.Lacks = len(s.changed)
	case l.sent != 0 && (l.sent < s.changedVersion || s.dirty && s.refresh.wanted):
		v.Lacks = s.newer(l.sent)
	}
	for _, w := range t.waiting {
		if v.Waits && int(w.slot) == slot {
			v.Waiting = at.sub(w.since)
		}
	}
	if s.changedAt != never {
		v.Quiet = at.sub(s.changedAt)
	}
	if s.refresh.timer.place != 0 {
		v.Refresh = max(0, s.refresh.timer.at.sub(at))
	}
	return v, true
}
