package dnp

import (
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A connection of an Endpoint with Config.Logged waits for a log that its owner
// writes. What would bind a successor waits until the owner says that it is stored:
// a command of the peer is acknowledged and passed on, a command of ours is sent for
// the first time, a link is taken down, and the connection ends. Whoever restores the
// newest checkpoint and replays what was stored behind it goes on without the peer
// noticing. The owner's part:
//
//	case EventUnstored: // something waits
//		ch := c.Changes(sizeMax)   // append it to the log
//		c.Stored()                 // later, when it is stored; the next Advance goes on

// A CommandKind is what a reliable command of ours is. The values are part of logs.
type CommandKind uint8

// The kinds.
const (
	SentMessage = CommandKind(outMessage)   // a whole message
	SentPart    = CommandKind(outPart)      // a part of a long one
	SentNoop    = CommandKind(outNoop)      // a probe without meaning
	SentLink    = CommandKind(outLinkState) // an offer, encoded at each sending
	SentFrozen  = CommandKind(outFrozen)    // an offer whose link is gone; Data is what follows the number
)

// A ReceivedCommand is a reliable command of the peer. Body follows the command
// byte, its number included.
type ReceivedCommand struct {
	Number  uint64
	Command wire.Command
	Body    []byte
}

// A SentCommand says for good what a number of ours means.
type SentCommand struct {
	Number   uint64
	Kind     CommandKind
	Flags    wire.PartFlags // SentPart
	TakeDown bool           // LinkDown of Link follows
	Link     wire.LinkID
	ReadOnly bool   // SentLink
	HasRef   bool   // SentLink: Ref names the Source
	Ref      uint64 // see SourceConfig.Ref
	Token    uint64 // of the message, with its last part
	Data     []byte // of a message or a part; SentFrozen; SentLink if the peer may not know command 10
}

// A LinkChange is what became of a link.
type LinkChange struct {
	Link wire.LinkID
	What LinkFate
}

// A LinkFate is part of logs.
type LinkFate uint8

// The fates.
const (
	LinkCameUp    LinkFate = iota + 1 // the peer has it for certain
	LinkTakenDown                     // we end it; LinkDown is sent when this is stored
	LinkRefused                       // the peer refused it or took it down
)

// Changes is what happened to a logged connection.
type Changes struct {
	Received []ReceivedCommand
	Sent     []SentCommand
	Links    []LinkChange

	// Acked is the number of our oldest command that is not acknowledged. Bit i of
	// AckedAhead says that Acked+i is.
	Acked      uint64
	AckedAhead uint32
}

// logState is how far a logged connection is stored.
type logState struct {
	sent, sentAsked uint64 // our commands below are stored; are stored or being stored
	links           []LinkChange
	linksAsked      int
	told            logNeed // by EventUnstored since Changes
	ended           bool    // the end is stored
	odd             int     // datagrams that contradict what is known, without any that agrees between
	oddNumber       uint64  // of the last of them
	muted           bool
	again           []uint64 // numbers of the last write that was replayed, which the peer may not know to be stored
}

// A logNeed is how urgent it is to write.
type logNeed uint8

const (
	needNothing logNeed = iota
	needSoon            // it only makes a successor's life easier
	needNow             // the peer waits
)

// contradictionsMax is after how many datagrams that cannot be the connection is
// closed as uncertain. One may be forged or a straggler of an earlier connection; a
// window full of them, with nothing that agrees between, is a peer that knows more
// than the log.
const contradictionsMax = 8

// Logged reports whether the connection waits for a log.
func (c *Conn) Logged() bool { return c.log != nil }

// Urgent reports whether something waits to be stored before the peer may see it.
func (c *Conn) Urgent() bool { return c.log != nil && c.log.told == needNow }

// Ending reports whether the connection is to end when Ended is called, and why.
func (c *Conn) Ending() (CloseReason, bool) { return c.reason, c.awaitsEnd() }

// Ended says that the end of the connection is stored. The next Advance reports
// EventClosed.
func (c *Conn) Ended() {
	if c.log != nil {
		c.log.ended = true
		c.wake()
	}
}

// Contradiction returns the last number of the peer's that cannot be, if the
// connection ended as uncertain.
func (c *Conn) Contradiction() uint64 {
	if c.log == nil {
		return 0
	}
	return c.log.oddNumber
}

// Next returns the numbers of the next command that the peer is expected to send and
// of the next one of ours.
func (c *Conn) Next() (received, sent uint64) { return c.recv.next, c.send.next }

// Reported reports whether all that happened to the connection was returned as an
// event. A checkpoint must not be made before.
func (c *Conn) Reported() bool { return len(c.e.later) == 0 }

// Unanswered reports whether an offer of the peer waits for Accept or Reject. A
// checkpoint forgets it, the record of the command does not.
func (c *Conn) Unanswered() bool {
	for _, p := range c.peer {
		if c.links.l[p.slot].phase == LinkOffered {
			return true
		}
	}
	return false
}

// Waiting returns how many messages wait for the send window.
func (c *Conn) Waiting() int { return len(c.send.queue) }

// Mute stops a logged connection from sending anything, because its owner is not
// sure to own it any more, or lets it go on.
func (c *Conn) Mute(on bool) {
	if c.log == nil || c.log.muted == on {
		return
	}
	c.log.muted = on
	if !on && c.state == connEstablished {
		c.wake()
		if len(c.pending)+len(c.waiting) > 0 && !c.flushing {
			c.flushing = true
			c.e.flushing = append(c.e.flushing, c)
		}
	}
}

func (c *Conn) muted() bool { return c.log != nil && c.log.muted }

// awaitsEnd reports whether the connection ends as soon as that is stored.
func (c *Conn) awaitsEnd() bool {
	return c.log != nil && c.closing && c.state == connEstablished && !c.log.ended && c.reason != CloseMoved
}

// unstored tells the owner that there is something to write.
func (c *Conn) unstored(need logNeed) {
	if c.log != nil && c.log.told < need {
		c.log.told = need
		c.e.event(Event{Kind: EventUnstored, Conn: c})
	}
}

// linkChanged notes what became of a link.
func (c *Conn) linkChanged(id wire.LinkID, what LinkFate) {
	if c.log == nil {
		return
	}
	c.log.links = append(c.log.links, LinkChange{id, what})
	need := needSoon
	if what == LinkTakenDown {
		need = needNow
	}
	c.unstored(need)
}

// mayAcknowledge reports whether the peer may be told that n arrived.
func (c *Conn) mayAcknowledge(n uint64) bool {
	if c.log == nil || n < c.recv.next {
		return true
	}
	for i := range c.recv.early {
		if e := &c.recv.early[i]; e.n == n {
			return e.store == stored
		}
	}
	return false
}

// contradict counts a number of the peer's that cannot be if the log is right.
func (c *Conn) contradict(n uint64) {
	if c.log == nil {
		return
	}
	c.log.oddNumber = n
	if c.log.odd++; c.log.odd >= contradictionsMax {
		c.Close(CloseUncertain)
	}
}

func (c *Conn) agree() {
	if c.log != nil {
		c.log.odd = 0
	}
}

// storeState is how far a held command is on its way into the log.
type storeState uint8

const (
	unasked storeState = iota
	asked
	stored
)

// Changes returns what is to be stored next, about sizeMax bytes at most but at least
// one command. Its slices are valid until the next call of the Endpoint. Until Stored
// it must not be called again.
func (c *Conn) Changes(sizeMax int) Changes {
	if c.log == nil || c.state == connClosed {
		return Changes{}
	}
	l := c.log
	l.told = needNothing
	var ch Changes
	size := 0
	for i := range c.recv.early {
		e := &c.recv.early[i]
		if e.store != unasked {
			continue
		}
		if size += len(e.buf); size > sizeMax && size > len(e.buf) {
			c.unstored(needNow)
			break
		}
		e.store = asked
		ch.Received = append(ch.Received, ReceivedCommand{e.n, e.cmd, e.buf})
	}
	for ; l.sentAsked < c.send.next; l.sentAsked++ {
		cmd, ok := c.sentCommand(l.sentAsked)
		if !ok {
			continue // it was acknowledged before the log began
		}
		if size += len(cmd.Data); size > sizeMax && size > len(cmd.Data) {
			c.unstored(needNow)
			break
		}
		ch.Sent = append(ch.Sent, cmd)
	}
	l.linksAsked = len(l.links)
	ch.Links = l.links[:l.linksAsked]
	ch.Acked, ch.AckedAhead = c.ackState()
	return ch
}

// sentCommand describes a command in flight.
func (c *Conn) sentCommand(n uint64) (SentCommand, bool) {
	if n < c.send.base() {
		return SentCommand{}, false
	}
	o := &c.send.flight[n-c.send.base()]
	s := SentCommand{Number: n, Kind: CommandKind(o.kind), Flags: o.flags, TakeDown: o.takeDown, Link: o.link, Token: o.token, Data: o.data}
	if o.kind == outLinkState && !o.acked && !c.gone(o.link) {
		l := &c.links.l[o.slot]
		s.ReadOnly, s.HasRef, s.Ref = l.has(linkReadOnly), true, c.e.sources[l.source].cfg.Ref
		if !c.speaksLong {
			s.Data = c.appendOffer(nil, 0, int(o.slot))[3:]
		}
	}
	return s, true
}

func (c *Conn) ackState() (base uint64, ahead uint32) {
	for i := range c.send.flight {
		if c.send.flight[i].acked {
			ahead |= 1 << i
		}
	}
	return c.send.base(), ahead
}

// Stored says that what Changes returned last is stored. What waited for it happens
// in the next Advance.
func (c *Conn) Stored() {
	if c.log == nil || c.state == connClosed {
		return
	}
	l := c.log
	for i := range c.recv.early {
		if e := &c.recv.early[i]; e.store == asked {
			e.store, e.ackDue = stored, true
		}
	}
	l.sent = l.sentAsked
	for _, ch := range l.links[:l.linksAsked] {
		if ch.What == LinkTakenDown {
			c.startDown(ch.Link)
		}
	}
	l.links = append(l.links[:0], l.links[l.linksAsked:]...)
	l.linksAsked = 0
	c.wake()
}

// goOn does what waited for the log.
func (c *Conn) goOn(now instant, out Sender) {
	if c.log == nil {
		return
	}
	for i := range c.recv.early {
		if e := &c.recv.early[i]; e.ackDue {
			e.ackDue = false
			c.acknowledge(e.n, out)
		}
	}
	if !c.log.muted {
		for _, n := range c.log.again {
			c.acknowledge(n, out)
		}
		c.log.again = nil
	}
	c.deliverEarly(now)
}

// firstStored sends commands that are stored for the first time.
func (c *Conn) firstStored(now instant, out Sender) {
	w := &c.send
	for n := w.base(); n < min(w.next, c.log.sent); n++ {
		if o := &w.flight[n-w.base()]; o.sends == 0 && !o.acked {
			c.first(n, o, now, out)
		}
	}
	if c.log.sentAsked < w.next {
		c.unstored(needNow)
	}
}

// QueuedTokens yields the tokens of the messages that have no number yet, in the order of
// sending; 0 for those without one.
func (c *Conn) QueuedTokens(yield func(token uint64) bool) {
	w := &c.send
	if w.partAt > 0 && !yield(w.part.token) {
		return
	}
	for i := range w.queue {
		if !yield(w.queue[i].token) {
			return
		}
	}
}
