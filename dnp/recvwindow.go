package dnp

import (
	"github.com/dnprelay/dnprelay/dnp/wire"
)

const (
	recvAhead  = 16   // commands held before their turn; peers have at most 11 in flight
	recvBehind = 4096 // commands behind the next that are acknowledged again
)

// A recvWindow puts reliable commands into order and passes each on once.
type recvWindow struct {
	next  uint64  // the number that is due
	early []early // at most recvAhead, in no order
	hole  instant // since when next is missing while later ones are held
}

// An early is a command that came before its turn. Only such a one is copied.
type early struct {
	n   uint64
	cmd wire.Command
	buf []byte // without the command byte; belongs to the Endpoint's pool

	store  storeState // of a logged connection; others do not look
	ackDue bool
}

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
// Repeats are acknowledged however old they are: the acknowledgement was lost, and
// the sender dies of it. They are never kept; libraries do, and deliver the copy
// when the number comes round again (dnp/PROTOCOL.md, Numbers).
func (w *recvWindow) judge(p wire.Profile, s wire.Seq) (n uint64, a arrival) {
	n, ok := p.Unwrap(s, w.next)
	switch {
	case !ok || n >= w.next+recvAhead || n+recvBehind < w.next:
		return 0, arrivalOutside
	case n == w.next:
		return n, arrivalDue
	case n < w.next || w.holds(n):
		return n, arrivalRepeat
	}
	return n, arrivalEarly
}

func (w *recvWindow) holds(n uint64) bool {
	for i := range w.early {
		if w.early[i].n == n {
			return true
		}
	}
	return false
}

// pop removes and returns the command that is due, if it is held.
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

// holeAt returns when a number will have been missing for too long. Python skips
// numbers for good, and nobody sends them later (dnp/PROTOCOL.md, Numbers).
func (c *Conn) holeAt() instant {
	if len(c.recv.early) == 0 || c.log != nil && c.recv.holds(c.recv.next) {
		return never
	}
	patience := c.e.cfg.HoleTimeout
	if c.client {
		patience = max(patience, c.e.cfg.ReliableTimeout)
	}
	return c.recv.hole.add(patience)
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
		c.outside(now)
		c.contradict(uint64(seq))
		return
	}
	c.hear(now)
	c.acknowledge(n, out)
	if c.log != nil && a == arrivalDue {
		if a = arrivalEarly; c.recv.holds(n) { // it is passed on when it is stored
			a = arrivalRepeat
		}
	}
	switch a {
	case arrivalRepeat:
		c.e.drop(DropRepeat)
	case arrivalEarly:
		if len(c.recv.early) == 0 {
			c.recv.hole = now
		}
		c.recv.early = append(c.recv.early, early{n: n, cmd: cmd, buf: append(c.e.buffer(), p...)})
		c.agree()
		c.unstored(needNow)
	case arrivalDue:
		c.deliver(cmd, p, now)
		c.deliverEarly(now)
	}
}

// acknowledge is the only place where a command of the peer is acknowledged. One
// that waits for the log is not, however often it comes.
func (c *Conn) acknowledge(n uint64, out Sender) {
	if c.log != nil && (c.log.muted || !c.mayAcknowledge(n)) {
		return
	}
	m := wire.ReliableAck{Seq: c.e.cfg.Profile.Seq(n), Code: wire.AckSuccess}
	c.emit(m.Append(out.Datagram(4)), out)
}

// deliverEarly passes on what was held for the number that just came.
func (c *Conn) deliverEarly(now instant) {
	for !c.over() {
		e, ok := c.recv.pop(c.log != nil)
		if !ok {
			break
		}
		c.deliver(e.cmd, e.buf, now)
		if c.e.driven { // else its events wait for a whole turn longer than the pool does
			c.e.lent = append(c.e.lent, e.buf) // events may alias it
		}
	}
	c.recv.hole = now
}

// deliver passes on the command that is due. It has been checked.
func (c *Conn) deliver(cmd wire.Command, p []byte, now instant) {
	n := c.recv.next
	c.recv.next++
	switch cmd {
	case wire.CommandReliableMessage:
		m, _ := wire.ParseReliableMessage(p)
		c.e.event(Event{Kind: EventMessage, Conn: c, Reliable: true, Number: n, Data: m.Data})
	case wire.CommandReliableLinkState:
		m, _ := wire.ParseLinkState(p)
		c.receiveOffer(m, now)
	case wire.CommandReliableMessageLong:
		c.speaksLong = true
		m, _ := wire.ParseReliableMessageLong(p)
		c.receivePart(n, m)
	case wire.CommandReliableLinkStateLong:
		c.speaksLong = true
		m, _ := wire.ParseLinkStateLong(p)
		c.receiveLinkPart(m, now)
	}
}

// dropNothing is no DropReason.
const dropNothing = DropReason(NumDropReasons)

// checkReliable checks a reliable command before it is acknowledged: what cannot
// be parsed was damaged or forged, and the sender's next copy may be better.
func checkReliable(cmd wire.Command, p []byte) (wire.Seq, DropReason) {
	var seq wire.Seq
	var err error
	switch cmd {
	case wire.CommandReliableMessage:
		var m wire.ReliableMessage
		m, err = wire.ParseReliableMessage(p)
		if seq = m.Seq; len(m.Data) == 0 {
			return 0, DropTruncated // no library sends an empty message
		}
	case wire.CommandReliableLinkState:
		var m wire.LinkState
		m, err = wire.ParseLinkState(p)
		seq = m.Seq
	case wire.CommandReliableMessageLong:
		var m wire.ReliableMessageLong
		m, err = wire.ParseReliableMessageLong(p)
		seq = m.Seq
	default:
		var m wire.LinkStateLong
		m, err = wire.ParseLinkStateLong(p)
		seq = m.Seq
	}
	return seq, parseReason(err)
}

// parseReason says which counter an error of a parser belongs to.
func parseReason(err error) DropReason {
	switch err {
	case nil:
		return dropNothing
	case wire.ErrTruncated:
		return DropTruncated
	}
	return DropBadValue
}
