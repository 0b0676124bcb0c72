package dnp

import (
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// Replay applies changes that were stored behind the checkpoint from which c was
// restored. They have to come in the order of the log, before the first Advance. What
// the checkpoint has already is left out. The error is ErrSnapshot if they do not
// follow; the connection is of no use then. Messages of the peer are reported again
// as events, with the numbers that they had. What the last of the changes received is
// acknowledged again: who wrote it may not have come to it, and an owner that hands a
// session over never does.
func (c *Conn) Replay(now time.Time, ch Changes, resolve func(ref uint64) *Source) error {
	if c.log == nil || c.over() {
		return ErrClosed
	}
	t := c.e.clock.advance(now)
	c.log.again = c.log.again[:0]
	for _, r := range ch.Received {
		if !c.replayReceived(r) {
			return ErrSnapshot
		}
		c.log.again = append(c.log.again, r.Number)
	}
	c.deliverEarly(t)
	c.replayAcks(ch, t) // of what earlier changes sent, which made room for these
	for _, s := range ch.Sent {
		if !c.replaySent(s, resolve, t) {
			return ErrSnapshot
		}
	}
	for _, l := range ch.Links {
		c.replayLink(l, t)
	}
	c.log.sent, c.log.sentAsked = c.send.next, c.send.next
	c.settle(t)
	return nil
}

func (c *Conn) replayReceived(r ReceivedCommand) bool {
	w := &c.recv
	if r.Number < w.next || w.holds(r.Number) {
		return true
	}
	_, reason := checkReliable(r.Command, r.Body)
	if !isReliable(r.Command) || reason != dropNothing || r.Number >= w.next+recvAhead {
		return false
	}
	w.early = append(w.early, early{n: r.Number, cmd: r.Command, buf: append(c.e.buffer(), r.Body...), store: stored})
	return true
}

func (c *Conn) replaySent(s SentCommand, resolve func(uint64) *Source, now instant) bool {
	w := &c.send
	if s.Number < w.next {
		return true
	}
	if s.Number > w.next || len(w.flight) >= sendWindowMax || s.Kind > SentFrozen {
		return false
	}
	o := outgoing{
		kind: outgoingKind(s.Kind), flags: s.Flags, takeDown: s.TakeDown, link: s.Link, data: append([]byte(nil), s.Data...),
		sends: 1, first: now, last: now - instant(c.e.cfg.ReliableResend), // it may have been sent, and is due
	}
	if s.TakeDown {
		c.replayGone(s.Link, now)
	}
	if o.kind == outLinkState {
		slot, ok := c.replayOffer(s, resolve)
		switch {
		case ok:
			o.slot, o.data = uint16(slot), nil
		case len(s.Data) > 0:
			o.kind, o.takeDown = outFrozen, true
		default: // the state is gone; the peer takes one of the two meanings, and has no link behind either
			o.kind = outNoop
			c.startDown(s.Link)
		}
	}
	w.flight = append(w.flight, o)
	w.next++
	return true
}

// replayOffer makes the link that an offer in flight is about. It reports false if
// its Source does not exist any more.
func (c *Conn) replayOffer(s SentCommand, resolve func(uint64) *Source) (slot int, ok bool) {
	i, ours := c.ordinal(s.Link)
	if !ours {
		return 0, false
	}
	if slot, ok := c.slotOf(s.Link); ok { // queued in the checkpoint
		c.send.removeOffer(slot)
		c.links.l[slot].phase = LinkOffered
		return slot, true
	}
	for len(c.index) <= i {
		c.index = appendTight(c.index, 0)
	}
	var src *Source
	if s.HasRef {
		src = resolve(s.Ref)
	}
	if src == nil || src.removed {
		return 0, false
	}
	if old, linked := c.find(src); linked { // it moved to another id, because the peer took its own
		c.send.freeze(c, old, false)
		c.removeLink(old)
	}
	slot = c.newSlot()
	l := link{id: s.Link, phase: LinkOffered}
	if s.ReadOnly {
		l.flags |= linkReadOnly
	}
	c.attach(slot, l, src)
	c.links.ours++
	c.index[i] = uint16(slot + 1)
	return slot, true
}

// replayAcks takes note of what the peer acknowledged.
func (c *Conn) replayAcks(ch Changes, now instant) {
	w := &c.send
	for i := range w.flight {
		n := w.base() + uint64(i)
		if n < ch.Acked || n-ch.Acked < 32 && ch.AckedAhead>>(n-ch.Acked)&1 != 0 {
			c.acked(&w.flight[i])
		}
	}
	c.shift(now)
}

func (c *Conn) replayLink(ch LinkChange, now instant) {
	slot, ok := c.slotOf(ch.Link)
	switch {
	case ch.What == LinkTakenDown:
		c.replayGone(ch.Link, now)
	case !ok:
	case ch.What == LinkCameUp && c.links.l[slot].source != noSource:
		c.links.l[slot].flags |= linkProven
		if l := &c.links.l[slot]; l.phase < LinkUp && !l.has(linkByPeer) {
			l.phase, l.sent = LinkUp, 0 // who knows which values arrived
			c.answered(slot, now)
			c.mark(slot)
		}
	case ch.What == LinkRefused:
		c.removeLink(slot)
	}
}

// replayGone ends a link that we took down. Whether the peer heard so is not known.
func (c *Conn) replayGone(id wire.LinkID, now instant) {
	inFlight := false
	if slot, ok := c.slotOf(id); ok {
		inFlight = c.send.freeze(c, slot, true)
		c.removeLink(slot)
	}
	if !inFlight {
		c.downs.cancel(id)
		c.startDown(id)
	}
}

// Abandon drops a connection that Replay refused, without a word to the peer.
func (c *Conn) Abandon() {
	if c.state != connClosed {
		c.drop()
	}
}

// DropQueue forgets the messages that have no number yet. It is for a connection that
// was restored from a snapshot with some, behind which the log goes on.
func (c *Conn) DropQueue() {
	w := &c.send
	w.queue, w.bytes = nil, 0
	w.part, w.partAt = message{}, 0
}
