package dnp

import (
	"bytes"
	"math"
	"slices"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// Send queues a reliable message of 1 to LongMax bytes (60,000 in profile spec),
// which it copies. With a token that is not 0, EventSent reports its number. Whether a
// client takes messages of more than 1,357 bytes is found out when the first waits to be
// sent; if it does not, EventTooLarge reports those that wait, and Send refuses others. Errors
// are ErrEmpty, ErrTooLarge, ErrClosed, and ErrBacklog, which closes the
// connection, because a peer that misses a message must know.
func (c *Conn) Send(data []byte, token uint64) error {
	cfg := &c.e.cfg
	sizeMax := cfg.LongMax
	if !cfg.Profile.Long() || c.send.long == longLimited {
		sizeMax = min(sizeMax, c.send.partless(cfg))
	}
	switch {
	case len(data) == 0:
		return ErrEmpty
	case len(data) > sizeMax:
		return ErrTooLarge
	case c.over():
		return ErrClosed
	case c.send.full(len(data)):
		c.Close(CloseSlow)
		return ErrBacklog
	}
	c.send.enqueue(outgoing{data: bytes.Clone(data), token: token})
	c.wake()
	return nil
}

// choose decides what the send window sends next.
func (c *Conn) choose(now instant) choice {
	if !c.send.waiting() {
		return takeNothing
	}
	choice := c.send.choose(&c.e.cfg, c.offerAt(now) <= now, c.e.offers.mayOffer(now))
	if choice == takeOther && c.send.messageAt(&c.budget, now) > now {
		return takeNothing
	}
	return choice
}

// offerAt returns when the budget allows an offer: at once, unless values wait for the
// budget. Then offers get a part of it, and one is always in flight.
func (c *Conn) offerAt(now instant) instant {
	if c.budget.crowd.room == 0 {
		return never
	}
	if short := len(c.links.waiting) > 0 || c.budget.overdrawn(now); !short || len(c.send.flight) == 0 {
		return now
	}
	return c.budget.offerAt
}

// nextCommand removes the next command from the queues of the window. It returns an
// offer only if *offers is positive, and pays for it.
func (c *Conn) nextCommand(now instant, offers *int) (o outgoing, ok bool) {
	switch c.choose(now) {
	case takeOther:
		if o = c.send.nextOther(&c.e.cfg); o.tries() {
			c.links.asker().try(&o)
		}
		return o, true
	case takeOffer:
		if *offers == 0 {
			return o, false
		}
		*offers--
		slot := c.send.nextOffer()
		o = outgoing{kind: SentLink, slot: slot, link: c.links.slots[slot].id}
		o.size = uint32(c.links.outgoingSize(&o))
		size := c.size(int(o.size))
		c.e.offers.pay(size, now)
		c.budget.offerAt = now.add(offerShare * c.budget.cost(&c.e.rate, size))
		return o, true
	}
	return o, false
}

// fill sends new commands while the window has room, at most so many offers among them.
// pump sends no offers; each waits for its turn in the Endpoint's offer queue.
func (c *Conn) fill(now instant, offers int, out Sender) {
	for {
		o, ok := c.nextCommand(now, &offers)
		if !ok {
			break
		}
		o.past = len(c.send.flight) >= sendWindowSize+c.send.lead()
		n, sent := c.send.add(o)
		if o.kind == SentFrozen {
			c.links.question.numbered(o.link, n)
		}
		if c.log == nil {
			c.transmit(n, sent, now, out)
		} else if o.kind == SentLink { // the rest follows when it is stored
			c.links.offerSent(int(o.slot))
		}
	}
	if c.log != nil {
		c.sendStored(now, out)
	}
}

// sendStored sends the commands that are stored and were never sent.
func (c *Conn) sendStored(now instant, out Sender) {
	w := &c.send
	for n := w.base(); n < min(w.next, c.log.sent); n++ {
		if o := &w.flight[n-w.base()]; o.sends == 0 && !o.acked {
			c.transmit(n, o, now, out)
		}
	}
	if c.log.sentAsked < w.next {
		c.log.want(needNow)
	}
}

// resend repeats the commands that were not acknowledged in time. It reports false if
// the peer did not acknowledge a command for so long that the connection has to end.
func (c *Conn) resend(now instant, out Sender) bool {
	w, cfg := &c.send, &c.e.cfg
	if len(w.flight) == 0 {
		return true
	}
	r := c.path.pace(&c.life, now)
	for i := range w.flight {
		o := &w.flight[i]
		if o.acked || o.sends == 0 { // a command that was never sent waits for the log
			continue
		}
		if now >= c.life.givesUpAt(cfg, o.first) {
			return false
		}
		if w.rests(o) {
			continue
		}
		if now >= c.life.unansweredAt(o.first, r.trip) {
			c.life.alarmed = true
			c.e.event(c.handle, Event{Kind: EventUnanswered})
		}
		if now >= w.resendAt(cfg, r, o) && !w.beyond(i) {
			c.e.stats.Resends++
			if (!o.past || o.sends > 1) && !(o.tries() && w.long != longTried) { // otherwise the peer may have dropped it, or acknowledged it
				c.loss.add(true)
			}
			if o.overtook >= overtakersMin && c.disorder > 0 {
				c.disorder--
			}
			if c.life.sure <= o.last {
				c.budget.crowd.starved(o.sends, c.e.rate.priceMax)
			}
			c.transmit(w.base()+uint64(i), o, now, out)
			if i == 0 && !w.unsure(cfg) { // the others wait for it
				copies := r.copies
				if c.life.suspected() { // any answer refutes it
					copies = c.loss.copies()
				}
				for range copies - 1 {
					w.repeated()
					c.emit(c.links.appendOutgoing(out.Datagram(c.links.outgoingSize(o)), w.base(), o), out)
				}
			}
		}
	}
	if inferred := w.inferAgain(cfg.Profile, now); inferred > 0 {
		c.e.stats.Inferred += uint64(inferred)
		c.log.want(needSoon)
	}
	c.links.commandsProcessed(now)
	w.widen(cfg, now)
	return true
}

// transmit sends a command that is in flight.
func (c *Conn) transmit(n uint64, o *outgoing, now instant, out Sender) {
	first := o.sends == 0
	if first {
		o.first = now
		if o.kind == SentLink {
			c.links.offerSent(int(o.slot))
		}
	}
	if o.sends < 1<<16-1 {
		o.sends++
	}
	o.last, o.timed, o.overtook, o.passed, o.seen = now, first, 0, false, false
	if !first {
		c.send.repeated()
		c.send.keeps(n, o.kind == SentProbe, c.e.cfg.Profile, c.log)
	}
	c.limit.ExpectAnswers()
	c.emit(c.links.appendOutgoing(out.Datagram(c.links.outgoingSize(o)), n, o), out)
	if !first {
		return
	}
	if o.token != 0 && (o.kind == SentMessage || o.flags&wire.PartLast != 0) {
		c.e.event(c.handle, Event{Kind: EventSent, Token: o.token, Number: n})
	}
	switch {
	case !o.takeDown:
	case o.kind == SentFrozen: // LinkDown follows when the offer is processed
		c.life.questioned(now)
	default:
		c.links.startDown(o.link) // the record of this number says that the link is taken down
	}
}

// receiveAck handles the acknowledgement of one of our commands.
func (c *Conn) receiveAck(p []byte, now instant) {
	m, err := wire.ParseReliableAck(p)
	if err != nil {
		c.e.drop(DropTruncated)
		return
	}
	w, profile := &c.send, c.e.cfg.Profile
	n, ok := profile.Unwrap(m.Seq, w.next)
	o := w.awaits(n)
	switch {
	case !ok || o == nil:
		c.e.drop(DropUnknownAck)
		if !ok || !w.spare(n) {
			c.life.wrongAcks = min(c.life.wrongAcks+1, vagueAcks)
		}
		if ok && n < w.next {
			w.keepsAgain(n, profile, c.log)
		}
		if ok && n >= w.next && c.log.contradicted(now) {
			c.Ask()
		}
	case m.Code == wire.AckSuccess:
		c.life.prove(now, o.first)
		if !c.life.vague() {
			c.life.answered(now)
		}
		if o.sends == 1 {
			c.loss.add(false)
		}
		switch {
		case o.timed:
			if o.passed {
				c.disorder = disorderMemory
			}
			c.trip.sample(now.sub(o.first))
			w.overtaken(o)
		case o.sends == 2 && c.budget.crowd.early(now.sub(o.last)): // the repeat was needless
			c.trip.sample(now.sub(o.first))
			c.loss.forgive()
			c.disorder = disorderMemory
		case c.trip.late(now.sub(o.last)): // the way has become longer, or each command would be sent twice for good
			c.trip.sample(now.sub(o.last))
		}
		if c.budget.crowd.acknowledged(o, c.loss.seen > ackLoss, c.e.rate.priceMax, now) {
			c.e.stats.Crowded++
		}
		c.log.agree()
		if o.seen = o.tries(); !o.seen { // the peer may be stuck at a trial
			w.acknowledged(o)
		}
		c.log.want(needSoon)
		c.e.stats.Inferred += uint64(w.infer(profile, n))
		c.links.question.acknowledged(now)
		c.links.commandsProcessed(now)
	case now.sub(o.last) < hastyResend:
		c.e.drop(DropHastyResend)
	default:
		c.life.prove(now, o.first)
		o.last = now - instant(c.e.cfg.ReliableResend)
		c.wake()
	}
}

// receiveReliable handles commands 4, 5, 10 and 11. p is what follows the command
// byte.
func (c *Conn) receiveReliable(cmd wire.Command, p []byte, now instant, out Sender) {
	seq, reason := checkReliable(cmd, p)
	if reason != dropNothing {
		c.e.drop(reason)
		return
	}
	n, a := c.recv.judge(c.e.cfg.Profile, seq)
	if a == arrivalOutside {
		c.e.drop(DropOutsideWindow)
		if c.suspicion.miss(now) {
			c.e.stats.Alarms++
			c.e.event(c.handle, Event{Kind: EventSuspect})
		}
		if c.log.contradicted(now) {
			c.Ask()
		}
		return
	}
	switch {
	case a == arrivalRepeat && c.acks == nil && !c.client: // from now on it is known when commands were acknowledged
		c.acks = &ackRepeats{}
	case a == arrivalRepeat && c.acks.late(n, now):
		c.loss.observe(true)
	case a == arrivalRepeat:
	case a == arrivalDue && len(c.recv.early) > 0 && now.sub(c.recv.hole) >= lateRepeat: // its first copy got lost
		c.loss.observe(true)
	default:
		c.loss.observe(false)
	}
	if a == arrivalRepeat && (!c.recv.repeats(n, now) || c.life.suspected()) {
		c.life.hear(now)
	} else {
		c.life.prove(now, unprompted)
	}
	if a == arrivalEarly && !c.recv.fits(n, len(p)) {
		c.e.drop(DropEarlyFull)
		return
	}
	c.acknowledge(n, out)
	if c.log != nil && a == arrivalDue { // it is passed on when it is stored
		a = arrivalEarly
		if c.recv.has(n) {
			a = arrivalRepeat
		}
	}
	switch a {
	case arrivalRepeat:
		c.e.drop(DropRepeat)
	case arrivalEarly:
		c.recv.keep(early{n: n, cmd: cmd, buf: append(c.e.buffer(), p...)}, now)
		c.log.agree()
		if c.recv.reaches(n) {
			c.log.want(needNow)
		}
	case arrivalDue:
		c.recv.hole = now
		c.deliver(cmd, p, now)
		c.deliverEarly(now)
		for n++; n < c.recv.next && !c.client; n++ {
			c.acknowledge(n, out)
		}
	}
}

// acknowledge is the only place where a command of the peer is acknowledged. A command
// that waits for the log is not acknowledged, however often it arrives. Nor is one that waits for
// others, unless a server sent it: it may be forged.
func (c *Conn) acknowledge(n uint64, out Sender) {
	switch {
	case c.log != nil && (c.log.muted || !c.recv.mayAcknowledge(n)):
		return
	case c.log == nil && !c.client && n > c.recv.next:
		return
	}
	c.path.acknowledge(n, out)
	c.acks.sent(n, c.loss.seen > ackLoss, c.e.clock.now)
}

// deliverEarly passes on the held commands whose turn has come.
func (c *Conn) deliverEarly(now instant) {
	for !c.over() {
		e, ok := c.recv.pop(c.log != nil)
		if !ok {
			break
		}
		c.deliver(e.cmd, e.buf, now)
		if c.e.driven { // otherwise its events outlive the next begin, which recycles lent buffers
			c.e.lent = append(c.e.lent, e.buf) // events may alias it
		}
	}
}

// deliver passes on the command that is due. It has been checked.
func (c *Conn) deliver(cmd wire.Command, p []byte, now instant) {
	n := c.recv.next
	c.recv.next++
	c.recv.hole = now // what is missing now was not missing before
	switch cmd {
	case wire.CommandReliableMessage:
		m, _ := wire.ParseReliableMessage(p)
		c.e.event(c.handle, Event{Kind: EventMessage, Reliable: true, Number: n, Data: m.Data})
	case wire.CommandReliableLinkState:
		m, _ := wire.ParseLinkState(p)
		c.links.receiveOffer(m, now)
	case wire.CommandReliableMessageLong:
		c.deliverPart(n, p, now)
	case wire.CommandReliableLinkStateLong:
		c.deliverLinkPart(p, now)
	}
}

func (c *Conn) deliverPart(n uint64, p []byte, now instant) {
	c.send.peerLong = true
	m, _ := wire.ParseReliableMessageLong(p)
	data, ok := c.recv.long.addMessage(m, c.e.cfg.LongMax, now)
	if !ok {
		c.e.drop(DropTooLarge)
		c.Close(CloseTooLarge)
	} else if len(data) > 0 {
		c.e.event(c.handle, Event{Kind: EventMessage, Reliable: true, Number: n, Data: data})
	}
}

// deliverLinkPart handles a command 11, which only tests and the engine know.
func (c *Conn) deliverLinkPart(p []byte, now instant) {
	c.send.peerLong = true
	m, _ := wire.ParseLinkStateLong(p)
	whole, done, ok := c.recv.long.addLink(m, now)
	switch {
	case !ok:
		c.e.drop(DropTooLarge)
		c.Close(CloseTooLarge)
		return
	case !done:
		return
	}
	values, err := wire.ParseValues(whole.Values)
	if err != nil {
		c.e.drop(DropBadValue)
		slot, taken := c.links.slotOf(whole.Link)
		if !taken || !c.links.slots[slot].has(linkByPeer) && c.links.yield(slot) { // otherwise LinkDown would hit that link
			c.links.takeDown(whole.Link)
		}
		return
	}
	readOnly := whole.Flags&wire.LinkStateReadOnly != 0
	c.links.receiveOffer(wire.LinkState{Link: whole.Link, ReadOnly: readOnly, Message: whole.Message, Values: values}, now)
}

// The C++, Java and Python libraries and the engine keep each repeat of a reliable command that they had
// already, and process it instead of the true command when its number comes round, one lap of 65,535 later
// (dnp/PROTOCOL.md, The lap). Only another connection helps. So a connection remembers the lowest number that
// its peer may keep, and sends no command that would have the peer process it.

const (
	lapNearShare = 0.75 // of a lap, after which a new connection is due
	noOpsMax     = 128  // numbers of no-ops; a further one counts as that of any other command
)

// A lap knows which of our commands the peer may keep, because they were sent twice, or acknowledged twice as
// the network doubled them. A connection whose peer keeps none has no lap, and a nil lap forbids nothing.
type lap struct {
	modulus uint64
	first   uint64   // the lowest such number, plus one; 0 for none
	noOps   []uint16 // where in each lap the peer keeps only no-ops, ascending; a no-op goes there in each lap
	told    bool     // EventLap
	unasked bool     // what the log does not have
}

// Repeats are the numbers of ours that the peer of a connection may keep.
type Repeats struct {
	First uint64   // the lowest number, plus one; 0 for none
	NoOps []uint16 // numbers, modulo the lap, under which it keeps only no-ops; they do not count for First
}

// end returns the number from which on nothing may be sent. The peer looks for the command number n among those
// that it keeps when it has processed n-1, so already n-1 is not sent. Near the wrap the peer may not acknowledge a
// repeat, and only the acknowledgement of a number beyond shows that it has the command (see infer). So if there is
// no room for those, the end is before.
func (l *lap) end() uint64 {
	if l == nil || l.first == 0 {
		return math.MaxUint64
	}
	end := l.first - 1 + l.modulus - 1
	if beyond := (end + sendWindowSize + 1) % l.modulus; beyond < sendWindowSize+1+edgeDistance {
		end -= beyond
	}
	return end
}

// near reports whether the connection has only a quarter of a lap left.
func (l *lap) near(next uint64) bool {
	return l != nil && l.first > 0 && next >= l.first-1+uint64(lapNearShare*float64(l.modulus))
}

// reserves reports whether number n is for a no-op.
func (l *lap) reserves(n uint64) bool {
	if l == nil {
		return false
	}
	_, found := slices.BinarySearch(l.noOps, uint16(n%l.modulus))
	return found
}

// keep notes that the peer may keep number n, and reports whether that is news. Near the wrap libraries do not
// acknowledge what is behind, so a no-op that the peer keeps there would hold up the window a lap later.
func (l *lap) keep(n uint64, noOp bool) bool {
	place := uint16(n % l.modulus)
	i, found := slices.BinarySearch(l.noOps, place)
	if noOp && (found || len(l.noOps) < noOpsMax && uint64(place) < l.modulus-edgeDistance) {
		if !found {
			l.noOps = slices.Insert(l.noOps, i, place)
		}
		return !found
	}
	if l.first > 0 && l.first <= n+1 {
		return false
	}
	l.first = n + 1
	return true
}

// keeps notes that the peer may keep our command n.
func (w *sendWindow) keeps(n uint64, noOp bool, p wire.Profile, log *journal) {
	if w.peerForgets {
		return
	}
	if w.lap == nil {
		w.lap = &lap{modulus: p.Modulus()}
	}
	if w.lap.keep(n, noOp) && log != nil {
		w.lap.unasked = true
		log.want(needSoon)
	}
}

// keepsFirst notes whether the peer may keep number 0, which it was sent before there was a connection.
func (w *sendWindow) keepsFirst(again, noOp bool, p wire.Profile) {
	if again {
		w.keeps(0, noOp, p, nil)
	}
}

// keepsAgain notes that number n was acknowledged again. Of a number that is not in flight any more only the place
// in the lap tells whether it was a no-op.
func (w *sendWindow) keepsAgain(n uint64, p wire.Profile, log *journal) {
	noOp := w.lap.reserves(n)
	if n >= w.base() {
		noOp = w.flight[n-w.base()].kind == SentProbe
	}
	w.keeps(n, noOp, p, log)
}

// repeats returns what the peer may keep.
func (w *sendWindow) repeats() (r Repeats) {
	if w.lap != nil {
		r = Repeats{First: w.lap.first, NoOps: w.lap.noOps}
	}
	return r
}

// restoreRepeats adds what the peer may keep because of a former owner of the connection.
func (w *sendWindow) restoreRepeats(r Repeats, p wire.Profile) {
	for _, place := range r.NoOps {
		w.keeps(uint64(place), true, p, nil)
	}
	if r.First > 0 {
		w.keeps(r.First-1, false, p, nil)
	}
}

// lapNear reports whether the owner is to be told that the lap is nearly over.
func (w *sendWindow) lapNear() bool { return w.lap.near(w.next) && !w.lap.told }

// lapOver reports whether the connection has to end, because nothing more may be sent. What is in flight is
// acknowledged first, or given up.
func (w *sendWindow) lapOver() bool { return len(w.flight) == 0 && w.next >= w.lap.end() }

// PeerForgets says that the peer of a connection keeps no repeats, as the clients and edges of this project do not, so the
// connection may last any number of laps. Until it is called every peer may keep them. A peer that asks for ordered updates
// keeps none.
func PeerForgets(c *Conn) {
	c.send.peerForgets, c.send.lap = true, nil
}

// LapNear reports whether the peer of a connection keeps repeats of commands that were sent three quarters of a lap ago or
// earlier. The owner should close the connection when nothing is under way (see [Endpoint.Traffic]). It ends by
// itself, with CloseRecycle, when nothing more may be sent.
func LapNear(c *Conn) bool { return c.send.lap.near(c.send.next) }
