package dnp

import (
	"bytes"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

const (
	sendWindowSize = 10 // commands in flight; peers assume it, dnp/PROTOCOL.md, Numbers
	hastyResend    = 100 * time.Millisecond
)

type outgoingKind uint8

const (
	outMessage   outgoingKind = iota // command 4
	outPart                          // command 10
	outNoop                          // command 10 without flags and data
	outLinkState                     // command 5, encoded when it is sent
	outFrozen                        // command 5 of a link that ended; its bytes after the number are data
)

// An outgoing is a reliable command in flight.
type outgoing struct {
	kind     outgoingKind
	flags    wire.PartFlags
	acked    bool
	takeDown bool   // LinkDown of link follows: the farewell's first sending, the frozen offer was processed
	sends    uint16 // how often it was sent
	slot     uint16 // outLinkState
	link     wire.LinkID
	first    instant
	last     instant
	token    uint64
	data     []byte
}

// A message waits for the window.
type message struct {
	data     []byte
	token    uint64
	takeDown bool // LinkDown of link follows the first sending
	link     wire.LinkID
}

// A sendWindow numbers reliable commands, keeps at most ten unacknowledged, and
// repeats them. A message keeps its bytes and its number for good; an offer is
// encoded at each sending from the newest values.
type sendWindow struct {
	next    uint64     // the number of the next command
	flight  []outgoing // numbers next-len(flight) to next-1
	limit   int        // of len(flight)
	grewAt  instant
	queue   []message
	bytes   int // of queue
	offers  []uint16
	noops   int
	part    message // the long message being sent; its parts have consecutive numbers
	partAt  int     // bytes of it that have a number; 0 = none is being sent
	offered bool    // the last command with a choice was an offer
}

func (w *sendWindow) base() uint64 { return w.next - uint64(len(w.flight)) }

// room reports whether another command may be sent.
func (w *sendWindow) room() bool { return len(w.flight) < max(w.limit, sendWindowSize) }

// waiting reports whether a command waits for room.
func (w *sendWindow) waiting() bool {
	return w.partAt > 0 || w.noops > 0 || len(w.queue) > 0 || len(w.offers) > 0
}

// takeOffer takes the offer whose turn it is.
func (w *sendWindow) takeOffer(c *Conn) outgoing {
	w.offered = true
	slot := w.offers[0]
	if w.offers = w.offers[1:]; len(w.offers) == 0 {
		w.offers = nil // it was as long as the link table
	}
	return outgoing{kind: outLinkState, slot: slot, link: c.links.l[slot].id}
}

// takeOther takes the next command that is none.
func (w *sendWindow) takeOther(c *Conn) outgoing {
	switch {
	case w.partAt > 0:
		return w.takePart(c)
	case w.noops > 0:
		w.noops--
		return outgoing{kind: outNoop}
	}
	w.offered = false
	m := w.queue[0]
	w.queue[0] = message{}
	w.queue = w.queue[1:]
	w.bytes -= len(m.data)
	if len(m.data) <= c.partless() {
		return outgoing{kind: outMessage, data: m.data, token: m.token, takeDown: m.takeDown, link: m.link}
	}
	w.part = m
	return w.takePart(c)
}

// removeOffer forgets the offer of a link.
func (w *sendWindow) removeOffer(slot int) {
	for i, s := range w.offers {
		if int(s) == slot {
			w.offers = append(w.offers[:i], w.offers[i+1:]...)
			return
		}
	}
}

// freeze gives an unacknowledged offer the bytes that it has now, because its link
// ends, while its number has to mean the same for ever. It reports false if there
// is none.
func (w *sendWindow) freeze(c *Conn, slot int, takeDown bool) bool {
	for i := range w.flight {
		o := &w.flight[i]
		if o.kind == outLinkState && int(o.slot) == slot && !o.acked {
			o.data = c.appendOffer(nil, 0, slot)[3:]
			o.kind, o.takeDown = outFrozen, takeDown
			return true
		}
	}
	return false
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

// shift forgets the oldest commands as far as they are acknowledged. Only these has
// the peer processed: one that was acknowledged beyond a gap waits at the peer.
func (c *Conn) shift(now instant) {
	w, done := &c.send, 0
	for done < len(w.flight) && w.flight[done].acked {
		c.passed(&w.flight[done], now)
		done++
	}
	if done == 0 {
		return
	}
	n := copy(w.flight, w.flight[done:])
	clear(w.flight[n:])
	w.flight = w.flight[:n]
	w.limit = 0
	if c.atEdge(now) { // the next one is stuck as well; its patience is over already
		w.limit = len(w.flight)
	}
}

// Send queues a reliable message of 1 to LongMax bytes (60,000 in profile spec),
// which it copies. With a token that is not 0, EventSent tells its number. Errors
// are ErrEmpty, ErrTooLarge, ErrClosed, and ErrBacklog, which closes the
// connection, because a peer that misses a message must know.
func (c *Conn) Send(data []byte, token uint64) error {
	sizeMax := c.e.cfg.LongMax
	if !c.e.cfg.Profile.Long() {
		sizeMax = min(sizeMax, specMessageLimit)
	}
	switch w := &c.send; {
	case len(data) == 0:
		return ErrEmpty
	case len(data) > sizeMax:
		return ErrTooLarge
	case c.over():
		return ErrClosed
	case len(w.queue) >= c.e.cfg.BacklogMessages, len(w.queue) > 0 && w.bytes+len(data) > c.e.cfg.BacklogBytes:
		c.Close(CloseSlow)
		return ErrBacklog
	}
	c.enqueue(message{data: bytes.Clone(data), token: token})
	return nil
}

// sendFarewell queues the last words of a link, followed by its LinkDown.
func (c *Conn) sendFarewell(farewell []byte, link wire.LinkID, takeDown bool) {
	if c.Send(farewell, 0) == nil && takeDown {
		m := &c.send.queue[len(c.send.queue)-1]
		m.takeDown, m.link = true, link
	}
}

func (c *Conn) enqueue(m message) {
	c.send.queue = append(c.send.queue, m)
	c.send.bytes += len(m.data)
	c.wake()
}

// fill sends new commands while the window has room, and of offers at most so many.
// Those have their turn in the lane (settle).
func (c *Conn) fill(now instant, offers int, out Sender) {
	for {
		o, ok := c.take(now, &offers)
		if !ok {
			break
		}
		w := &c.send
		n := w.next
		w.next++
		w.flight = append(w.flight, o)
		if c.log == nil {
			c.first(n, &w.flight[len(w.flight)-1], now, out)
		} else if o.kind == outLinkState { // the rest when it is stored
			c.offerSent(int(o.slot))
		}
	}
	if c.log != nil {
		c.firstStored(now, out)
	}
}

// first sends a command for the first time.
func (c *Conn) first(n uint64, o *outgoing, now instant, out Sender) {
	c.transmit(n, o, now, out)
	if o.token != 0 && (o.kind == outMessage || o.flags&wire.PartLast != 0) {
		c.e.event(Event{Kind: EventSent, Conn: c, Token: o.token, Number: n})
	}
	if o.takeDown && o.kind != outFrozen {
		c.startDown(o.link) // its number is stored, and says so
	}
}

// resend repeats what was not acknowledged in time. It reports false if the peer
// did not acknowledge a command for so long that the connection has to end.
func (c *Conn) resend(now instant, out Sender) bool {
	w, cfg := &c.send, &c.e.cfg
	for i := range w.flight {
		o := &w.flight[i]
		if o.acked || o.sends == 0 { // what was never sent waits for the log
			continue
		}
		if now.sub(o.first) >= cfg.ReliableTimeout {
			return false
		}
		if now >= c.resendAt(o) {
			c.e.stats.Resends++
			c.lost(true)
			c.transmit(w.base()+uint64(i), o, now, out)
		}
	}
	c.widen(now)
	return true
}

// unsure reports whether the peer has shown nothing that others could not guess, so
// that it may be somebody else who bears what we send.
func (c *Conn) unsure() bool {
	return c.e.cfg.Probe == ProbePing && c.e.cfg.Login == nil && c.send.base() <= 1
}

// resendAt returns when a command is to be sent again. Probes of a peer that may not
// exist become rare.
func (c *Conn) resendAt(o *outgoing) instant {
	pause := c.e.cfg.ReliableResend
	if o.kind == outNoop && c.unsure() {
		pause = max(pause, o.last.sub(o.first)) // so each is twice as late as the one before
	}
	return o.last.add(pause)
}

// transmit sends a command that is in flight.
func (c *Conn) transmit(n uint64, o *outgoing, now instant, out Sender) {
	if o.sends == 0 {
		o.first = now
		if o.kind == outLinkState {
			c.offerSent(int(o.slot))
		}
	}
	if o.sends < 1<<16-1 {
		o.sends++
	}
	o.last = now
	c.rate.asks()
	c.emit(c.appendOutgoing(out.Datagram(c.outgoingSize(o)), n, o), out)
}

func (c *Conn) appendOutgoing(b []byte, n uint64, o *outgoing) []byte {
	seq := c.e.cfg.Profile.Seq(n)
	switch o.kind {
	case outMessage:
		return wire.ReliableMessage{Seq: seq, Data: o.data}.Append(b)
	case outPart, outNoop:
		return wire.ReliableMessageLong{Seq: seq, Flags: o.flags, Data: o.data}.Append(b)
	case outLinkState:
		return c.appendOffer(b, seq, int(o.slot))
	default:
		return append(append(b, byte(wire.CommandReliableLinkState), byte(seq), byte(seq>>8)), o.data...)
	}
}

func (c *Conn) appendOffer(b []byte, seq wire.Seq, slot int) []byte {
	l := &c.links.l[slot]
	s := c.e.sources[l.source]
	head := wire.LinkState{Seq: seq, Link: l.id, ReadOnly: l.has(linkReadOnly), Message: s.cfg.Message}
	b = wire.AppendLinkStateHead(b, head, s.cfg.State.Layout().Len())
	return s.cfg.State.AppendTyped(b)
}

func (c *Conn) outgoingSize(o *outgoing) int {
	if o.kind != outLinkState {
		return 4 + len(o.data)
	}
	s := c.e.sources[c.links.l[o.slot].source]
	return 10 + len(s.cfg.Message) + s.cfg.State.TypedSize()
}

// receiveAck handles the acknowledgement of one of our commands.
func (c *Conn) receiveAck(p []byte, now instant) {
	m, err := wire.ParseReliableAck(p)
	if err != nil {
		c.e.drop(DropTruncated)
		return
	}
	n, ok := c.e.cfg.Profile.Unwrap(m.Seq, c.send.next)
	o := c.send.find(n)
	switch {
	case !ok || o == nil || o.sends == 0:
		c.e.drop(DropUnknownAck)
		if ok && n >= c.send.next {
			c.contradict(n)
		}
	case m.Code == wire.AckSuccess:
		c.hear(now)
		if o.sends == 1 {
			c.lost(false)
		}
		c.agree()
		c.acked(o)
		c.infer(n, now)
		c.shift(now)
	case now.sub(o.last) < hastyResend:
		c.e.drop(DropHastyResend)
	default:
		c.hear(now)
		o.last = now - instant(c.e.cfg.ReliableResend)
		c.wake()
	}
}

// acked does what an acknowledgement means.
func (c *Conn) acked(o *outgoing) {
	o.acked = true
	if o.kind == outPart || o.kind == outNoop {
		c.speaksLong = true
	}
	o.data = nil
	c.unstored(needSoon)
}

// passed takes note that the peer has processed a command. LinkDown is ignored
// before that, so the repeats for a link that ended begin here, again if need be.
func (c *Conn) passed(o *outgoing, now instant) {
	switch {
	case o.kind == outLinkState && !c.gone(o.link):
		c.offerAcked(int(o.slot), o.link, now)
	case o.kind == outLinkState, o.kind == outFrozen && o.takeDown:
		c.takeDownAgain(o.link)
	}
}

// answered takes an answer to an offer for the acknowledgement of the offer, which
// spares the peer a repeat.
func (c *Conn) answered(slot int, now instant) {
	for i := range c.send.flight {
		if o := &c.send.flight[i]; o.kind == outLinkState && int(o.slot) == slot && !o.acked {
			c.acked(o)
			o.kind = outMessage // it is not waited for an answer any more
			c.shift(now)
			return
		}
	}
}

// nextTimeout returns when a command must be repeated or given up.
func (w *sendWindow) nextTimeout(c *Conn) instant {
	at := never
	for i := range w.flight {
		if o := &w.flight[i]; !o.acked && o.sends > 0 {
			at = min(at, c.resendAt(o), o.first.add(c.e.cfg.ReliableTimeout))
		}
	}
	if w.limit < sendWindowMax && c.nearWrap() && w.flight[0].sends > 0 {
		at = min(at, max(w.flight[0].first.add(edgePatience), w.grewAt.add(edgeGrowth)))
	}
	return at
}
