package dnp

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

const (
	recvAhead     = 16       // commands held before their turn; peers have at most 11 in flight
	earlyBytesMax = 32 << 10 // of them; the one that is due always fits
	recvBehind    = 4096     // commands behind the next that are acknowledged again
	longLinkMax   = 64 << 10
)

// The parts of a long message or offer keep coming at a rate of longRate at least, besides
// longPatience for the whole, in which a log may be silent; otherwise the rest never comes. A
// sender gives up a part for which it has no acknowledgement for 3 s. The rate is arbitrary,
// well below that of the worst path on which clients play.
const (
	longPatience = 30 * time.Second
	longRate     = 4096 // bytes per second
)

// A recvWindow puts reliable commands into order and passes each on once.
type recvWindow struct {
	next  uint64  // the number that is due
	early []early // at most recvAhead, in no order
	hole  instant // since when next is missing while later ones are held, or when the latest command came
	long  longReceive
}

// An early is a command that arrived before its turn. No other command is copied.
type early struct {
	n   uint64
	cmd wire.Command
	buf []byte // without the command byte; belongs to the Endpoint's pool

	store  storeState // of a logged connection; unused otherwise
	ackDue bool
}

// bound reports whether a command is part of a snapshot: on a logged connection, if it is or will be stored. Any
// other may be forged, and the peer repeats it.
func (e *early) bound(logged bool) bool { return e.store != unasked || !logged }

// A storeState is how far a held command is on its way into the log.
type storeState uint8

const (
	unasked storeState = iota
	asked
	stored
)

// An arrival is what a window makes of a number.
type arrival uint8

const (
	arrivalDue arrival = iota
	arrivalEarly
	arrivalRepeat  // acknowledge it again, pass nothing on
	arrivalOutside // do not even acknowledge it
)

// judge says what number s is.
//
// Repeats up to recvBehind old are acknowledged: the acknowledgement was lost, and
// without one the sender gives up. They are never stored; libraries store them, and
// deliver the copy when the number comes round again (dnp/PROTOCOL.md, Windows).
func (w *recvWindow) judge(p wire.Profile, s wire.Seq) (n uint64, a arrival) {
	n, ok := p.Unwrap(s, w.next)
	switch {
	case !ok || n >= w.next+recvAhead || n+recvBehind < w.next:
		return 0, arrivalOutside
	case n == w.next:
		return n, arrivalDue
	case n < w.next || w.has(n):
		return n, arrivalRepeat
	}
	return n, arrivalEarly
}

// repeats reports whether a library may repeat number n now: it waits for its turn, or is one of the latest,
// which came not long ago.
func (w *recvWindow) repeats(n uint64, now instant) bool {
	return n > w.next || n+repeatsBehind >= w.next && now < w.hole.add(repeatsFor)
}

func (w *recvWindow) find(n uint64) *early {
	for i := range w.early {
		if w.early[i].n == n {
			return &w.early[i]
		}
	}
	return nil
}

func (w *recvWindow) has(n uint64) bool { return w.find(n) != nil }

// fits reports whether there is room for a command of size bytes. There always is for the
// one that is due, so a peer that repeats the others gets on.
func (w *recvWindow) fits(n uint64, size int) bool {
	for i := range w.early {
		size += len(w.early[i].buf)
	}
	return n == w.next || size <= earlyBytesMax
}

// keep stores a command until its turn.
func (w *recvWindow) keep(e early, now instant) {
	if len(w.early) == 0 {
		w.hole = now
	}
	w.early = append(w.early, e)
}

// count returns how many commands a snapshot has.
func (w *recvWindow) count(logged bool) (n int) {
	for i := range w.early {
		if w.early[i].bound(logged) {
			n++
		}
	}
	return n
}

// pop removes and returns the command that is due, if it is held and, on a logged
// connection, stored.
func (w *recvWindow) pop(logged bool) (e early, ok bool) {
	for i := range w.early {
		if w.early[i].n == w.next && (w.early[i].store == stored || !logged) {
			e = w.early[i]
			last := len(w.early) - 1
			w.early[i] = w.early[last]
			w.early[last] = early{}
			w.early = w.early[:last]
			return e, true
		}
	}
	return early{}, false
}

// holeAt returns when the number that is due will have been missing for too long while later ones are
// held; never if none is held. The servers that a client connects to repeat a command for longer
// than libraries do.
func (w *recvWindow) holeAt(cfg *Config, client, logged bool) instant {
	if len(w.early) == 0 || logged && w.has(w.next) {
		return never
	}
	patience := cfg.HoleTimeout
	if client {
		patience = max(patience, cfg.ReliableTimeout)
	}
	return w.hole.add(patience)
}

// dueAt returns when something that is not complete has waited for too long.
func (w *recvWindow) dueAt(cfg *Config, client, logged bool) instant {
	return min(w.holeAt(cfg, client, logged), w.long.dueAt())
}

// giveUp forgets what has waited for too long: commands that came before their turn and were not
// acknowledged, and parts of what is not complete.
//
// Anybody who guesses a number can have written them, so they end nothing. Python skips numbers for
// good (dnp/PROTOCOL.md, What real peers do); it gives up what is not acknowledged, as all
// libraries do, and before we do.
func (w *recvWindow) giveUp(e *core, client, logged bool, now instant) {
	n := w.long.giveUp(now)
	if !client && now >= w.holeAt(&e.cfg, client, logged) {
		w.early = slices.DeleteFunc(w.early, func(held early) bool {
			if held.store == unasked {
				e.lent = append(e.lent, held.buf)
				n++
			}
			return held.store == unasked
		})
	}
	e.stats.Drops[DropUnfinished] += uint64(n)
}

// reaches reports whether all numbers from the next one to n are there, n included.
func (w *recvWindow) reaches(n uint64) bool {
	for ; n > w.next; n-- {
		if !w.has(n) {
			return false
		}
	}
	return w.has(w.next)
}

// mayAcknowledge reports whether a logged connection may tell the peer that n arrived.
func (w *recvWindow) mayAcknowledge(n uint64) bool {
	if n < w.next {
		return true
	}
	e := w.find(n)
	return e != nil && e.store == stored
}

// restore holds a command from a snapshot or a log. It reports false if the window
// cannot have held it.
func (w *recvWindow) restore(e early, logged bool) bool {
	_, reason := checkReliable(e.cmd, e.buf)
	if !isReliable(e.cmd, wire.Denetwork) || reason != dropNothing || e.n < w.next || e.n == w.next && !logged || e.n >= w.next+recvAhead || w.has(e.n) {
		return false
	}
	w.early = append(w.early, e)
	return true
}

// ackSteps are the times after which an acknowledgement is sent again on a path with loss. A
// library sends a command six times in 3 s and then gives up. Each attempt needs its
// acknowledgement back: at 30 % loss each way 0.51⁶ of the commands fail, 1.8 %, although only
// 0.3⁶ get lost. The repeats end before the library's next attempt, and are far enough from each
// other that one short gap of the path does not take all.
var ackSteps = [...]time.Duration{30 * time.Millisecond, 90 * time.Millisecond, 200 * time.Millisecond}

const (
	// ackLoss is the share of lost datagrams from which on acknowledgements are repeated: for
	// the next 18 commands after one that was lost, which is arbitrary.
	ackLoss = 0.02

	// lateRepeat is how long after an acknowledgement a repeat of its command shows that it was
	// lost. Libraries repeat after half a second; a copy that the network made comes sooner.
	lateRepeat = 300 * time.Millisecond

	peerWindow = 11 // commands that a peer has in flight at most: who sends n knows that n-11 arrived
)

// ackRepeats are the latest acknowledgements of a connection, which its peer may not have: one
// for each of its latest peerWindow commands at most. A connection whose peer never repeated a
// command has none.
type ackRepeats struct{ list []sentAck }

// A sentAck is an acknowledgement that was sent.
type sentAck struct {
	n     uint64
	first instant // when it was sent, without the repeats; the peer may send the command again
	step  uint8   // of ackSteps, the next one
}

func (a *sentAck) nextTimeout() instant {
	if int(a.step) >= len(ackSteps) {
		return never
	}
	return a.first.add(ackSteps[a.step])
}

func (r *ackRepeats) find(n uint64) *sentAck {
	if r == nil {
		return nil
	}
	for i := range r.list {
		if r.list[i].n == n {
			return &r.list[i]
		}
	}
	return nil
}

// sent notes that n was acknowledged, and schedules the repeats if the path loses datagrams.
// While repeats of an acknowledgement are to come, further copies of its command bring no more.
func (r *ackRepeats) sent(n uint64, lossy bool, now instant) {
	if r == nil {
		return
	}
	newest := n
	for i := range r.list {
		newest = max(newest, r.list[i].n)
	}
	if n+peerWindow <= newest {
		return
	}
	r.list = slices.DeleteFunc(r.list, func(a sentAck) bool { return a.n+peerWindow <= newest })
	a := r.find(n)
	switch {
	case a == nil:
		r.list = append(r.list, sentAck{n: n})
		a = &r.list[len(r.list)-1]
	case a.nextTimeout() != never:
		return
	}
	a.first, a.step = now, uint8(len(ackSteps))
	if lossy {
		a.step = 0
	}
}

func (r *ackRepeats) nextTimeout() instant {
	at := never
	if r != nil {
		for i := range r.list {
			at = min(at, r.list[i].nextTimeout())
		}
	}
	return at
}

// resend sends the repeats of acknowledgements that are due, unless the budget is used up.
func (r *ackRepeats) resend(p *path, now instant, out Sender) {
	if r == nil {
		return
	}
	for i := range r.list {
		a := &r.list[i]
		if a.nextTimeout() > now {
			continue
		}
		for a.nextTimeout() <= now {
			a.step++
		}
		if !p.budget.overdrawn(now) {
			p.core.stats.AckRepeats++
			p.acknowledge(a.n, out)
		}
	}
}

// late reports whether the repeat of a command shows that its acknowledgement got lost.
func (r *ackRepeats) late(n uint64, now instant) bool {
	a := r.find(n)
	return a != nil && now.sub(a.first) >= lateRepeat
}

// A longReceive joins the parts of long messages and long offers.
type longReceive struct{ message, link *longPart } // nil if none is open

// A longPart is what has come of a message, which is in the values, or of an offer.
type longPart struct {
	due   instant            // when the rest must be there
	whole wire.LinkStateLong // Message and Values are copies
}

func (r *longReceive) both() [2]**longPart { return [...]**longPart{&r.message, &r.link} }

// dueAt returns when something must be complete.
func (r *longReceive) dueAt() instant {
	at := never
	for _, p := range r.both() {
		if *p != nil {
			at = min(at, (*p).due)
		}
	}
	return at
}

// giveUp forgets what is not complete in time, and returns how many messages and offers that were.
func (r *longReceive) giveUp(now instant) (n int) {
	for _, p := range r.both() {
		if *p != nil && now >= (*p).due {
			*p = nil
			n++
		}
	}
	return n
}

// stoodStill has what is missing be due so much later.
func (w *recvWindow) stoodStill(d time.Duration) {
	w.hole = w.hole.add(d)
	for _, p := range w.long.both() {
		if *p != nil {
			(*p).due = (*p).due.add(d)
		}
	}
}

// size returns the bytes of what is not complete.
func (r *longReceive) size() (n int) {
	for _, p := range r.both() {
		if *p != nil {
			n += len((*p).whole.Message) + len((*p).whole.Values)
		}
	}
	return n
}

// longTime returns how much longer a message may take of which size bytes arrived.
func longTime(size int) time.Duration { return time.Duration(size) * time.Second / longRate }

// addMessage appends a part. It returns the message after the last part, which is then the
// caller's, and reports false if the message is larger than sizeMax. A part without
// flags is only a probe, unless a message is open.
func (r *longReceive) addMessage(m wire.ReliableMessageLong, sizeMax int, now instant) (data []byte, ok bool) {
	whole, _, ok := r.add(&r.message, wire.LinkStateLong{Values: m.Data}, m.Flags&wire.PartFirst != 0, m.Flags&wire.PartLast != 0, sizeMax, now)
	return whole.Values, ok
}

// addLink appends a part of an offer. It returns the offer after the last part, and
// reports ok = false if the offer is too large, or a message is open, whose parts have
// consecutive numbers, and takes the room.
func (r *longReceive) addLink(m wire.LinkStateLong, now instant) (whole wire.LinkStateLong, done, ok bool) {
	return r.add(&r.link, m, m.Flags&wire.LinkStateFirst != 0, m.Flags&wire.LinkStateLast != 0, longLinkMax, now)
}

func (r *longReceive) add(p **longPart, m wire.LinkStateLong, first, last bool, sizeMax int, now instant) (whole wire.LinkStateLong, done, ok bool) {
	if first {
		*p = &longPart{now.add(longPatience), wire.LinkStateLong{Link: m.Link, Flags: m.Flags}}
	}
	open, more := *p, len(m.Message)+len(m.Values)
	if open == nil || open.whole.Link != m.Link {
		return whole, false, true
	}
	if r.size()+more > sizeMax {
		return whole, false, false
	}
	open.whole.Message = append(open.whole.Message, m.Message...)
	open.whole.Values = append(open.whole.Values, m.Values...)
	open.due = open.due.add(longTime(more))
	if !last {
		return whole, false, true
	}
	*p = nil
	return open.whole, true, true
}

// dropNothing is no DropReason.
const dropNothing = DropReason(NumDropReasons)

// checkReliable checks a reliable command before it is acknowledged. A command that
// does not parse was damaged or forged, and the sender's next copy may be better.
func checkReliable(cmd wire.Command, p []byte) (wire.Seq, DropReason) {
	r := wire.NewReader(p)
	seq, err := wire.Seq(r.Uint16()), r.Err()
	switch cmd {
	case wire.CommandReliableMessage:
		if len(r.Rest()) == 0 {
			err = wire.ErrTruncated // no library sends an empty message
		}
	case wire.CommandReliableLinkState:
		_, err = wire.ParseLinkState(p)
	case wire.CommandReliableMessageLong:
		_, err = wire.ParseReliableMessageLong(p)
	default:
		_, err = wire.ParseLinkStateLong(p)
	}
	return seq, parseReason(err)
}

// isReliable reports whether cmd is a reliable command of a profile.
func isReliable(cmd wire.Command, p wire.Profile) bool {
	switch cmd {
	case wire.CommandReliableMessage, wire.CommandReliableLinkState:
		return true
	case wire.CommandReliableMessageLong, wire.CommandReliableLinkStateLong:
		return p.Long()
	}
	return false
}

// parseReason returns the counter for an error of a parser.
func parseReason(err error) DropReason {
	switch err {
	case nil:
		return dropNothing
	case wire.ErrTruncated:
		return DropTruncated
	}
	return DropBadValue
}
