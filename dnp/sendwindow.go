package dnp

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

const (
	sendWindowSize = 10                 // commands in flight; peers assume it, dnp/PROTOCOL.md, Windows
	sendWindowPast = 2 * sendWindowSize // while the oldest one was sent again; see stuck
	flightBytesMax = 64 << 10           // of them, before the last one: a snapshot contains them
	hastyResend    = 100 * time.Millisecond
	overtakersMin  = 2  // that show the loss of a command: one may have been overtaken by chance
	sparesMax      = 16 // second acknowledgements that are expected
	sparesBehind   = 32 // how far behind the oldest command in flight their numbers may be
	longPartSlack  = 10 // a part leaves this much of DatagramMax free: 1,190 of 1,200
)

// WholeMax is the size in bytes of the longest message that goes as one command 4, as in the
// libraries. Not every client takes longer ones.
const WholeMax = 1357

// Libraries that wait for a number near the wrap do not acknowledge repeats of those
// just before it, so one lost acknowledgement there would end the session
// (dnp/PROTOCOL.md, Windows). The window finds out what they received nevertheless;
// see infer.
const (
	sendWindowMax = 24 // with the window-edge inference
	edgeDistance  = 30 // numbers before the wrap where libraries do not repeat acknowledgements
	edgePatience  = 900 * time.Millisecond
	edgeGrowth    = 200 * time.Millisecond
	edgeSendings  = 12 // needed before an ambiguous acknowledgement counts; half of ReliableTimeout
)

// A CommandKind is what a reliable command of ours is. The values are part of logs and
// snapshots.
type CommandKind uint8

// The kinds.
const (
	SentMessage CommandKind = iota // command 4: a whole message
	SentPart                       // command 10: a part of a long one
	SentProbe                      // command 10 without flags and data, which means nothing
	SentLink                       // command 5: an offer, encoded at each sending
	SentFrozen                     // command 5: an offer whose link is gone; Data is what follows the number
)

// An outgoing is a reliable command in flight, or a message that waits for the window.
type outgoing struct {
	kind     CommandKind
	flags    wire.PartFlags
	acked    bool
	takeDown bool   // LinkDown of link follows: the first sending of a farewell, the processing of a frozen offer
	sends    uint16 // how often it was sent
	slot     uint16 // SentLink
	size     uint32 // SentLink: bytes at its first sending
	link     wire.LinkID
	overtook uint8 // commands not sent before its last sending, and once, that were acknowledged since
	passed   bool  // commands that were sent later are among those
	past     bool  // it was sent past the window of the peer, which may drop it
	shown    bool  // an offer: the peer seems to have taken it, because LinkUp came
	seen     bool  // a trial: the peer acknowledged its last copy, and may be stuck at it
	timed    bool  // it was sent once, so its acknowledgement says how long the round trip takes
	first    instant
	last     instant
	token    uint64
	data     []byte
}

// A sendWindow numbers reliable commands, has at most ten unacknowledged, and decides
// which command is next and which is to be repeated. A message keeps its bytes and its
// number for good; an offer is encoded at each sending from the newest values.
type sendWindow struct {
	next     uint64     // the number of the next command
	flight   []outgoing // numbers next-len(flight) to next-1
	grewAt   instant
	queue    []outgoing // messages
	lap      *lap       // which commands the peer may keep; nil while it keeps none
	offers   []uint16   // slots of links to offer
	question *outgoing  // to be sent; nil if there is none
	part     *outgoing  // the long message being sent, whose parts have consecutive numbers; nil if there is none
	bytes    int32      // of queue
	partAt   int32      // bytes of part that have a number; 0 if none is being sent
	offered  bool       // the last command that was chosen between messages and offers was an offer
	peerLong bool       // the peer understands command 10
	long     longState  // whether the peer takes long messages
	trials   uint8      // that found nothing out
	limit    uint8      // of len(flight), near the wrap; 0 for sendWindowSize
	spares   uint8      // second acknowledgements that may come, because commands were sent again
	probes   uint8      // probes to send

	peerForgets bool // the peer keeps no repeats
}

func (w *sendWindow) base() uint64 { return w.next - uint64(len(w.flight)) }

// room reports whether another command may be in flight. A window that is stuck near the
// wrap needs more commands to get on, whatever their size.
func (w *sendWindow) room(p wire.Profile) bool {
	if w.next >= w.lap.end() {
		return false
	}
	if w.limit > 0 {
		return len(w.flight) < int(max(w.limit, sendWindowSize))
	}
	size := sendWindowSize + w.lead()
	if w.stuck() || w.question != nil && w.onTrial() { // other commands must not take the room for the answer
		size = sendWindowPast
	}
	if size > sendWindowSize && w.nearWrap(p) {
		size = sendWindowSize
	}
	return len(w.flight) < size && w.flightBytes() < flightBytesMax
}

// stuck reports whether the oldest command was sent again. A peer moves its window when a command
// arrives, not when we hear of it. Most likely the repeat arrives, and then the peer takes commands
// past the window that follow it, as it does if only the acknowledgement was lost. Otherwise it drops
// them, and they are sent again when it has the oldest one. That is no loss, and no reason to send
// more past the window: where the path changes the order of datagrams, the peer drops many.
func (w *sendWindow) stuck() bool {
	return len(w.flight) > 0 && w.flight[0].sends > 1 && !w.flight[0].past && !w.onTrial()
}

// onTrial reports whether the window waits for a trial.
func (w *sendWindow) onTrial() bool { return w.trial() == 0 }

// lead returns how many of the oldest commands the peer seems to have taken. If its LinkUp was forged, it drops the commands
// that follow past its window, and they are sent again; nothing else depends on it.
func (w *sendWindow) lead() (n int) {
	for n < min(len(w.flight), sendWindowSize) && (w.flight[n].acked || w.flight[n].shown) {
		n++
	}
	return n
}

// show notes that the peer seems to have taken the offer of a link.
func (w *sendWindow) show(id wire.LinkID) {
	for i := range w.flight {
		if o := &w.flight[i]; o.kind == SentLink && o.link == id {
			o.shown = true
		}
	}
}

// flightBytes returns the bytes of the commands that are not acknowledged.
func (w *sendWindow) flightBytes() (n int) {
	for i := range w.flight {
		if o := &w.flight[i]; !o.acked {
			n += len(o.data) + int(o.size)
		}
	}
	return n
}

// undelivered returns the bytes of messages that are not acknowledged, with or without a number.
func (w *sendWindow) undelivered() (n int) {
	for i := range w.flight {
		if o := &w.flight[i]; !o.acked && (o.kind == SentMessage || o.kind == SentPart) {
			n += len(o.data)
		}
	}
	if w.part != nil {
		n += len(w.part.data) - int(w.partAt)
	}
	return n + int(w.bytes)
}

// waiting reports whether a command waits for room.
func (w *sendWindow) waiting() bool {
	return w.partAt > 0 || w.urgent() || len(w.queue) > 0 || len(w.offers) > 0
}

// messages reports whether a message or the rest of one waits for room.
func (w *sendWindow) messages() bool { return w.partAt > 0 || len(w.queue) > 0 }

// messageAt returns when the budget allows a message or a part of one: when nothing is owed, but
// one is always in flight. So long messages are sent no faster than the budget, and the queue
// before a narrow path stays short.
func (w *sendWindow) messageAt(b *budget, now instant) instant {
	switch {
	case w.urgent():
		return now
	case b.crowd.room == 0:
		return never
	case len(w.flight) == 0:
		return now
	}
	return max(now, b.spent)
}

// unsent reports whether a command waits that is more urgent than the queue, or has a number.
func (w *sendWindow) unsent() bool {
	return w.urgent() || slices.ContainsFunc(w.flight, func(o outgoing) bool { return o.sends == 0 })
}

// urgent reports whether a probe or a question waits, or the next number is for a no-op.
func (w *sendWindow) urgent() bool {
	return w.probes > 0 || w.question != nil || w.lap != nil && w.lap.reserves(w.next)
}

// full reports whether the queue has no room for a message of size bytes.
func (w *sendWindow) full(size int) bool {
	return len(w.queue) >= backlogMessages || len(w.queue) > 0 && int(w.bytes)+size > backlogBytes
}

func (w *sendWindow) enqueue(m outgoing) {
	w.queue = append(w.queue, m)
	w.bytes += int32(len(m.data))
}

// queuedTakeDowns yields the links that end with messages that have no number yet.
func (w *sendWindow) queuedTakeDowns(yield func(wire.LinkID)) {
	for i := range w.queue {
		if w.queue[i].takeDown {
			yield(w.queue[i].link)
		}
	}
	if w.part != nil && w.part.takeDown {
		yield(w.part.link)
	}
}

// queueProbe queues a probe, if the peer understands it and nothing in flight or waiting asks
// for an acknowledgement already.
func (w *sendWindow) queueProbe(cfg *Config) {
	if w.peerLong && len(w.flight) == 0 && !w.waiting() && cfg.Profile.Long() {
		w.probes = 1
	}
}

// probeAt returns when the peer is to be probed.
func (w *sendWindow) probeAt(cfg *Config, l *liveness, p *path) instant {
	if cfg.LivenessInterval <= 0 || !w.peerLong || len(w.flight) > 0 || w.waiting() || l.vague() {
		return never
	}
	return min(l.sure.add(cfg.LivenessInterval), p.sampleAt(l.sure))
}

// A choice is what the send window sends next.
type choice uint8

const (
	takeNothing choice = iota
	takeOther          // a message, a part of one, a probe
	takeOffer
)

// choose decides what the window sends next. Messages and offers take turns, so that
// neither waits for the other's backlog; the parts of a message stay together.
// budgetAllows says that the budget allows an offer, queueAllows that the offer queue does.
// Messages do not wait for the offer queue, but leave half the window to offers that do.
func (w *sendWindow) choose(cfg *Config, budgetAllows, queueAllows bool) choice {
	messages := len(w.queue) > 0 && !w.heldUp(cfg)
	switch {
	case !w.room(cfg.Profile):
		return takeNothing
	case w.partAt > 0 || w.urgent():
		return takeOther
	case len(w.offers) > 0 && budgetAllows && !(w.offered && messages):
		if messages && !queueAllows && len(w.flight) < sendWindowSize/2 {
			return takeOther
		}
		return takeOffer
	case messages:
		return takeOther
	}
	return takeNothing
}

// nextOffer removes and returns the offer whose turn it is.
func (w *sendWindow) nextOffer() (slot uint16) {
	w.offered = true
	slot = w.offers[0]
	if w.offers = w.offers[1:]; len(w.offers) == 0 {
		w.offers = nil // it was as long as the link table
	}
	return slot
}

// nextOther removes and returns the next command that is not an offer.
func (w *sendWindow) nextOther(cfg *Config) outgoing {
	switch {
	case w.lap.reserves(w.next): // between the parts of a message, too: it adds nothing to it
		w.probes = max(w.probes, 1) - 1
		return outgoing{kind: SentProbe}
	case w.question != nil: // it may stand between the parts of a message
		o := *w.question
		w.question = nil
		return o
	case w.partAt > 0:
		return w.nextPart(cfg)
	case w.probes > 0:
		w.probes--
		return outgoing{kind: SentProbe}
	}
	w.offered = false
	if w.needsTrial(cfg) {
		return outgoing{kind: SentFrozen, flags: wire.PartFirst, takeDown: true}
	}
	m := w.queue[0]
	w.queue[0] = outgoing{}
	w.queue = w.queue[1:]
	w.bytes -= int32(len(m.data))
	if len(m.data) <= w.partless(cfg) {
		return m
	}
	w.part = &m
	return w.nextPart(cfg)
}

// partless returns the size in bytes of the longest message that goes as one command 4. Java
// acknowledges a probe and cannot receive any other command 10 (dnp/PROTOCOL.md, Long messages), so
// no message is split that libraries would not split.
func (w *sendWindow) partless(cfg *Config) int {
	if !cfg.Profile.Long() {
		return specMessageLimit
	}
	return max(WholeMax, cfg.DatagramMax-3)
}

// nextPart returns the next part of the long message.
func (w *sendWindow) nextPart(cfg *Config) outgoing {
	rest := w.part.data[w.partAt:]
	o := outgoing{kind: SentPart, data: rest[:min(cfg.DatagramMax-longPartSlack, len(rest))]}
	if w.partAt == 0 {
		o.flags |= wire.PartFirst
	}
	if w.partAt += int32(len(o.data)); len(o.data) == len(rest) {
		o.flags |= wire.PartLast
		o.token, o.takeDown, o.link = w.part.token, w.part.takeDown, w.part.link
		w.part, w.partAt = nil, 0
	}
	return o
}

func (w *sendWindow) removeOffer(slot int) {
	w.offers = slices.DeleteFunc(w.offers, func(s uint16) bool { return int(s) == slot })
}

// add puts a command in flight and returns its number.
func (w *sendWindow) add(o outgoing) (n uint64, _ *outgoing) {
	n = w.next
	w.next++
	w.flight = append(w.flight, o)
	return n, &w.flight[len(w.flight)-1]
}

// awaits returns the command with this number, if an acknowledgement of it is awaited.
func (w *sendWindow) awaits(n uint64) *outgoing {
	if o := w.find(n); o != nil && o.sends > 0 && !o.seen {
		return o
	}
	return nil
}

// find returns the command with this number, if it is unacknowledged.
func (w *sendWindow) find(n uint64) *outgoing {
	if n < w.base() || n >= w.next {
		return nil
	}
	if o := &w.flight[n-w.base()]; !o.acked {
		return o
	}
	return nil
}

// offerInFlight returns the unacknowledged offer of a link, or nil.
func (w *sendWindow) offerInFlight(slot int) *outgoing {
	for i := range w.flight {
		if o := &w.flight[i]; o.kind == SentLink && int(o.slot) == slot && !o.acked {
			return o
		}
	}
	return nil
}

// repeated notes that a command that was sent before is sent again.
func (w *sendWindow) repeated() { w.spares = min(w.spares+1, sparesMax) }

// spare reports whether the peer may acknowledge n, which is not in flight, because it was
// sent more than once.
func (w *sendWindow) spare(n uint64) bool {
	if w.spares == 0 || n >= w.next || n+sparesBehind < w.base() {
		return false
	}
	w.spares--
	return true
}

func (w *sendWindow) acknowledged(o *outgoing) {
	if o.tries() && !w.untried() { // without a verdict
		w.long = longUnknown
		if w.trials >= trialsMax {
			w.long = longLimited
		}
	}
	o.acked = true
	if o.kind == SentPart || o.kind == SentProbe {
		w.peerLong = true
	}
	o.data = nil
}

// processed returns the acknowledged commands before the first that is not. Only these
// has the peer processed: a command that it acknowledged beyond a gap waits at the peer.
func (w *sendWindow) processed() []outgoing {
	n := 0
	for n < len(w.flight) && w.flight[n].acked {
		n++
	}
	return w.flight[:n]
}

// forget removes the oldest n commands, which the peer has processed.
func (w *sendWindow) forget(n int, p wire.Profile, now instant) {
	if n == 0 {
		return
	}
	rest := copy(w.flight, w.flight[n:])
	clear(w.flight[rest:])
	w.flight = w.flight[:rest]
	w.limit = 0
	if w.atEdge(p, now) { // the next command is stuck as well; its patience is over already
		w.limit = uint8(len(w.flight))
	}
}

// unsure reports whether the peer has shown nothing that others could not guess. Then
// our datagrams may go to a third party whose address was forged.
func (w *sendWindow) unsure(cfg *Config) bool {
	return cfg.Probe == ProbePing && cfg.Login == nil && w.base() <= 1
}

// resendAt returns when a command is to be sent again: when its acknowledgement is overdue, or earlier
// if two commands overtook it, at once where the path keeps the order of datagrams. The pause doubles up to Config.ReliableResend, because the peer may
// stand still, and libraries store each needless copy; on a path with loss it doubles later. Each
// probe of a peer that may not exist waits twice as long as the one before. Near the wrap, where libraries do not acknowledge repeats, the pause is the longest at once.
func (w *sendWindow) resendAt(cfg *Config, r pace, o *outgoing) instant {
	most := cfg.ReliableResend
	switch {
	case o.kind == SentProbe && w.unsure(cfg):
		return o.last.add(max(most, o.last.sub(o.first)))
	case w.nearWrap(cfg.Profile):
		return o.last.add(most)
	case o.overtook >= overtakersMin && o.passed && !r.disorder:
		return o.last
	case o.overtook >= overtakersMin:
		return o.last.add(r.trip.usual(most))
	}
	return o.last.add(min(r.first<<min(int(o.sends-1)/r.copies, 8), most))
}

// plain reports whether a command is sent again after the first pause, except near the wrap: it was sent once, and not overtaken.
func (o *outgoing) plain() bool {
	return o.sends == 1 && o.overtook < overtakersMin && o.kind != SentProbe
}

// beyond reports whether the i-th command in flight is one that the peer drops as long as it lacks the
// oldest one. Then repeats are useless. It may have counted a trial, which only the answer to a question shows.
func (w *sendWindow) beyond(i int) bool {
	return i >= sendWindowSize && w.limit == 0 && i >= sendWindowSize+w.lead() && !w.onTrial()
}

// overtaken notes that a command was acknowledged that was sent once. It overtook those whose last
// sending was not later, or they got lost.
func (w *sendWindow) overtaken(by *outgoing) {
	earlier := true // than by
	for i := range w.flight {
		o := &w.flight[i]
		earlier = earlier && o != by
		if !o.acked && o.sends > 0 && o.last <= by.first { // some are of the same instant
			o.passed = o.passed || earlier
			o.overtook = min(o.overtook+1, overtakersMin)
		}
	}
}

// nextTimeout returns when a command must be repeated or given up.
func (w *sendWindow) nextTimeout(cfg *Config, l *liveness, r pace) instant {
	at, first, asked, plain := never, never, never, never
	near := w.nearWrap(cfg.Profile)
	for i := range w.flight {
		o := &w.flight[i]
		if o.acked || o.sends == 0 {
			continue
		}
		if first = min(first, o.first); w.rests(o) {
			continue
		}
		asked = min(asked, o.first)
		switch {
		case i >= sendWindowSize && w.beyond(i):
		case o.plain() && !near:
			plain = min(plain, o.last)
		default:
			at = min(at, w.resendAt(cfg, r, o))
		}
	}
	if plain < never {
		at = min(at, plain.add(r.first))
	}
	if first < never {
		at = min(at, l.givesUpAt(cfg, first))
	}
	if asked < never {
		at = min(at, l.unansweredAt(asked, r.trip))
	}
	if w.limit < sendWindowMax && near && w.flight[0].sends > 0 {
		at = min(at, max(w.flight[0].first.add(edgePatience), w.grewAt.add(edgeGrowth)))
	}
	return at
}

// nearWrap reports whether the oldest command has one of the last numbers before
// the wrap. Beyond the wrap libraries repeat acknowledgements again.
func (w *sendWindow) nearWrap(p wire.Profile) bool {
	return len(w.flight) > 0 && uint64(p.Seq(w.base())) >= p.Modulus()-edgeDistance
}

// atEdge reports whether the oldest command has waited near the wrap for too long.
func (w *sendWindow) atEdge(p wire.Profile, now instant) bool {
	return w.nearWrap(p) && w.flight[0].sends > 0 && now.sub(w.flight[0].first) >= edgePatience
}

// widen opens the window by one command where it may be stuck on a lost acknowledgement
// that the peer will not repeat, with a probe if nothing else waits.
func (w *sendWindow) widen(cfg *Config, now instant) {
	if !w.atEdge(cfg.Profile, now) || now.sub(w.grewAt) < edgeGrowth {
		return
	}
	w.grewAt = now
	if w.limit = max(w.limit, sendWindowSize); w.limit < sendWindowMax {
		w.limit++
	}
	if missing := int(w.limit) - len(w.flight); missing > 0 && (!w.waiting() || w.heldUp(cfg)) && w.peerLong {
		w.probes = uint8(missing)
	}
}

// inferAgain infers from the highest number that was acknowledged, once the oldest
// command was sent so often that an ambiguous acknowledgement counts: the peer may have
// acknowledged everything that the window allows before. It returns how many commands
// it took as delivered.
func (w *sendWindow) inferAgain(p wire.Profile, now instant) int {
	if !w.atEdge(p, now) || w.flight[0].sends < edgeSendings {
		return 0
	}
	for i := len(w.flight) - 1; i > 0; i-- {
		if w.flight[i].acked {
			return w.infer(p, w.base()+uint64(i))
		}
	}
	return 0
}

// infer takes commands as delivered because the peer acknowledged number n, and returns
// how many. A peer accepts a number only if it is not too far beyond the one that it
// waits for: ten in the libraries, eleven across the wrap in the protocol document, and sixteen here.
// So a peer that acknowledges n has everything up to n-16. That frees a window whose
// oldest acknowledgement was lost near the wrap, where libraries do not repeat it. (With
// ten instead of sixteen two of our own Endpoints would lose messages.)
//
// A library that still waits for a number more than ten before the wrap takes one from
// beyond the wrap for an old one and acknowledges it blindly. Then nothing is proven,
// and no other number could tell the two cases apart; but a command that was sent
// edgeSendings times is believed to have arrived once (dnp/PROTOCOL.md, Windows).
func (w *sendWindow) infer(p wire.Profile, n uint64) (inferred int) {
	m := p.Modulus()
	blind := w.base()%m < m-sendWindowSize
	for i := range w.flight {
		number, o := w.base()+uint64(i), &w.flight[i]
		if number+recvAhead > n {
			break
		}
		if across := number/m != n/m; o.acked || across && blind && (o.sends < edgeSendings || o.tries()) {
			continue
		}
		inferred++
		w.acknowledged(o)
	}
	return inferred
}

// stoodStill has the oldest command count as sent so much later, when it is given up, and with it all that were sent since.
func (w *sendWindow) stoodStill(l *liveness, d time.Duration) {
	for i := range w.flight {
		if o := &w.flight[i]; !o.acked && o.sends > 0 {
			l.patient = max(l.patient, o.first).add(d)
			return
		}
	}
}

// givenUp returns why the connection ends if the oldest command is given up.
func (w *sendWindow) givenUp() CloseReason {
	if slices.ContainsFunc(w.flight, func(o outgoing) bool { return o.acked || o.seen }) { // the oldest never is
		return CloseStuck
	}
	return CloseTimeout
}

// ackState returns the number of the oldest command in flight, and which of those in
// flight are acknowledged, one per bit.
func (w *sendWindow) ackState() (base uint64, ahead uint32) {
	for i := range w.flight {
		if w.flight[i].acked {
			ahead |= 1 << i
		}
	}
	return w.base(), ahead
}
