package dnp

import (
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A connection of an Endpoint with Config.Logged waits for a log that its owner writes.
// A step that would bind a successor waits until the owner says that it is stored: a
// command of the peer is acknowledged and passed on, a command of ours is sent for the
// first time, a link is taken down, the connection ends. A successor that restores the
// newest checkpoint and replays what was stored behind it continues the connection
// without the peer noticing. The owner's part:
//
//	case EventUnstored: // something waits
//		ch := c.Changes(sizeMax)   // append it to the log
//		c.Stored()                 // later, when it is stored; the next Advance goes on
//		if reason, ok := c.Ending(); ok { // store the end as well
//			c.Ended()              // when that is stored; EventClosed follows
//		}

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
	Flags    wire.PartFlags // SentPart; PartFirst of a SentFrozen: a trial, see evidence.go
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

// A LinkFate says how a link began or ended. The values are part of logs.
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
	Repeats  Repeats // since they last changed; First is 0 otherwise, and NoOps is nil

	// Acked is the number of our oldest command that is not acknowledged. Bit i of
	// AckedAhead says that Acked+i is.
	Acked      uint64
	AckedAhead uint32
}

// A journal tracks how far a logged connection is stored. A connection without a log has
// a nil journal, whose methods do nothing.
type journal struct {
	core *core
	conn uint32 // handle of the connection

	sent       uint64 // our commands below are stored
	sentAsked  uint64 // our commands below are stored or being stored
	links      []LinkChange
	linksAsked int      // of links that are being stored
	wanted     logNeed  // of which EventUnstored told the owner since it called Changes
	ended      bool     // the end is stored
	restored   instant  // when the connection was restored; never if it began here
	odd        int      // datagrams that contradict the log, since the last that agrees
	doubted    bool     // there were too many, and the peer has answered no question since
	muted      bool     // the connection sends nothing
	again      []uint64 // numbers of the last write that was replayed; the peer may not know that it is stored
}

// A logNeed is how urgent it is to write.
type logNeed uint8

const (
	needNothing logNeed = iota
	needSoon            // it only makes a successor's work easier
	needNow             // the peer waits
)

// A log that lost writes shows when an edge restored a connection from it: the peer goes on
// with numbers that the log does not have. A window full of them within contradictionTime,
// without one that agrees, is a reason to ask the peer. One whose history is another takes
// the numbers of the questions for old ones: it acknowledges them and does not answer. Such
// numbers can be forged, so they are no more than that reason.
const (
	contradictionsMax = 8
	contradictionTime = 10 * time.Second
)

// askWaits reports whether something that asks a suspected peer waits to be stored.
func (j *journal) askWaits(l *liveness, w *sendWindow) bool {
	return j != nil && l.suspected() && w.unsent()
}

func (j *journal) isMuted() bool { return j != nil && j.muted }

// want tells the owner that there is something to write.
func (j *journal) want(need logNeed) {
	if j != nil && j.wanted < need {
		j.wanted = need
		j.core.event(j.conn, Event{Kind: EventUnstored})
	}
}

func (j *journal) linkChanged(id wire.LinkID, what LinkFate) {
	if j == nil {
		return
	}
	j.links = append(j.links, LinkChange{id, what})
	need := needSoon
	if what == LinkTakenDown {
		need = needNow
	}
	j.want(need)
}

// contradicted counts a number of the peer's that cannot be if the log is right. It
// reports whether to ask the peer.
func (j *journal) contradicted(now instant) bool {
	if j == nil || j.restored == never || now.sub(j.restored) > contradictionTime {
		return false
	}
	j.odd++
	j.doubted = j.doubted || j.odd >= contradictionsMax
	return j.odd >= contradictionsMax
}

// agree notes a datagram of the peer that agrees with the log.
func (j *journal) agree() {
	if j != nil {
		j.odd = 0
	}
}

// believe notes an answer to a question, which only a peer gives whose history is the log's.
func (j *journal) believe() {
	if j != nil {
		j.odd, j.doubted = 0, false
	}
}

func (j *journal) isDoubted() bool { return j != nil && j.doubted }

// storedUpTo notes that our commands below next are stored.
func (j *journal) storedUpTo(next uint64) {
	if j != nil {
		j.sent, j.sentAsked = next, next
	}
}

// Urgent reports whether something waits to be stored before the peer may see it. It is
// false after Changes returned all that waited.
func (c *Conn) Urgent() bool { return c.log != nil && c.log.wanted == needNow }

// Ending reports whether the connection waits for Ended, and why it ends.
func (c *Conn) Ending() (CloseReason, bool) { return c.reason, c.awaitsEnd() }

// Ended says that the end of the connection is stored. The next Advance reports
// EventClosed.
func (c *Conn) Ended() {
	if c.log != nil {
		c.log.ended = true
		c.wake()
	}
}

// NextNumbers returns the numbers of the next command that the peer is expected to send and
// of the next one of ours.
func (c *Conn) NextNumbers() (received, sent uint64) { return c.recv.next, c.send.next }

// Reported reports whether Receive and Advance returned every event of the Endpoint. The
// owner must not make a checkpoint before.
func (c *Conn) Reported() bool { return len(c.e.later) == 0 }

// Unanswered reports whether an offer of the peer waits for Accept or Reject. A
// checkpoint does not contain it, the record of the command does.
func (c *Conn) Unanswered() bool {
	for id := range c.links.peer {
		if _, ok := c.links.offeredByPeer(id); ok {
			return true
		}
	}
	return false
}

// Incomplete returns the bytes of a long message and a long offer whose last parts are missing. A
// checkpoint has them.
func (c *Conn) Incomplete() int { return c.recv.long.size() }

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

// DropQueue forgets the messages that have no number yet, for a connection that was
// restored from a snapshot that has some, while the log continues behind it. Links whose
// farewells are among them are taken down.
func (c *Conn) DropQueue() {
	w := &c.send
	w.queuedTakeDowns(c.links.takeDown)
	w.queue, w.bytes = nil, 0
	w.part, w.partAt = nil, 0
}

// Mute stops a logged connection from sending anything, because its owner may no longer
// own it, or lets it go on. ConnectionClose is sent all the same once the end is stored,
// because then no other owner can go on with the connection.
func (c *Conn) Mute(on bool) {
	if c.log == nil || c.log.muted == on {
		return
	}
	c.log.muted = on
	if !on && c.state == connEstablished {
		c.wake()
		if len(c.links.pending)+len(c.links.waiting) > 0 {
			c.links.flushSoon()
		}
	}
}

// awaitsEnd reports whether the connection ends as soon as that is stored. Until then
// Flush goes on to send values, which bind no successor.
func (c *Conn) awaitsEnd() bool {
	return c.log != nil && c.closing && c.state == connEstablished && !c.log.ended && c.reason != CloseMoved
}

// Changes returns what is to be stored next, about sizeMax bytes at most but at least
// one command. Its slices are valid until the next call of the Endpoint. It must not be
// called again before Stored.
func (c *Conn) Changes(sizeMax int) Changes {
	if c.log == nil || c.state == connClosed {
		return Changes{}
	}
	j := c.log
	j.wanted = needNothing
	var ch Changes
	size := 0
	for i := range c.recv.early {
		e := &c.recv.early[i]
		if e.store != unasked || !c.recv.reaches(e.n) {
			continue
		}
		if size += len(e.buf); size > sizeMax && size > len(e.buf) {
			j.want(needNow)
			break
		}
		e.store = asked
		ch.Received = append(ch.Received, ReceivedCommand{e.n, e.cmd, e.buf})
	}
	for ; j.sentAsked < c.send.next; j.sentAsked++ {
		cmd, ok := c.links.sentCommand(j.sentAsked)
		if !ok {
			continue // it was acknowledged before the log began
		}
		if size += len(cmd.Data); size > sizeMax && size > len(cmd.Data) {
			j.want(needNow)
			break
		}
		ch.Sent = append(ch.Sent, cmd)
	}
	j.linksAsked = len(j.links)
	ch.Links = j.links[:j.linksAsked]
	ch.Acked, ch.AckedAhead = c.send.ackState()
	if l := c.send.lap; l != nil && l.unasked {
		l.unasked, ch.Repeats = false, c.send.repeats()
	}
	return ch
}

// sentCommand describes a command in flight.
func (t *linkTable) sentCommand(n uint64) (SentCommand, bool) {
	w := t.send
	if n < w.base() {
		return SentCommand{}, false
	}
	o := &w.flight[n-w.base()]
	s := SentCommand{Number: n, Kind: o.kind, Flags: o.flags, TakeDown: o.takeDown, Link: o.link, Token: o.token, Data: o.data}
	if o.kind == SentLink && !o.acked && !t.ids.gone(o.link) {
		l := &t.slots[o.slot]
		s.ReadOnly, s.HasRef, s.Ref = l.has(linkReadOnly), true, t.core.sources[l.source].cfg.Ref
		if !w.peerLong {
			s.Data = t.offerBody(int(o.slot))
		}
	}
	return s, true
}

// Stored says that what Changes returned last is stored. The next Advance does what
// waited for it.
func (c *Conn) Stored() {
	if c.log == nil || c.state == connClosed {
		return
	}
	j := c.log
	for i := range c.recv.early {
		if e := &c.recv.early[i]; e.store == asked {
			e.store, e.ackDue = stored, true
		}
	}
	j.sent = j.sentAsked
	for _, ch := range j.links[:j.linksAsked] {
		if ch.What == LinkTakenDown {
			c.links.startDown(ch.Link)
		}
	}
	j.links = append(j.links[:0], j.links[j.linksAsked:]...)
	j.linksAsked = 0
	c.wake()
}

// continueStored acknowledges and passes on the commands that are stored. fill sends ours.
func (c *Conn) continueStored(now instant, out Sender) {
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

// Replay applies changes that were stored behind the checkpoint from which c was
// restored. The owner passes them in the order of the log, before the first Advance.
// Replay skips what the checkpoint contains. The error is ErrSnapshot if the changes do
// not follow; the connection is then unusable. Messages of the peer are reported again
// as events, with the numbers that they had. The connection acknowledges again what the
// last of the changes received: the writer may have stopped before it did so, and an
// owner that hands a session over never does.
func (c *Conn) Replay(now time.Time, ch Changes, resolve func(ref uint64) *Source) error {
	if c.log == nil || c.over() {
		return ErrClosed
	}
	t := c.e.clock.advance(now)
	c.log.again = c.log.again[:0]
	for _, r := range ch.Received {
		if r.Number >= c.recv.next && !c.recv.has(r.Number) &&
			!c.recv.restore(early{n: r.Number, cmd: r.Command, buf: append(c.e.buffer(), r.Body...), store: stored}, true) {
			return ErrSnapshot
		}
		c.log.again = append(c.log.again, r.Number)
	}
	c.deliverEarly(t)
	c.links.replayAcks(ch, t) // of what earlier changes sent, which made room for these
	for _, s := range ch.Sent {
		if !c.links.replaySent(s, resolve, t) {
			return ErrSnapshot
		}
	}
	for _, l := range ch.Links {
		c.links.replayChange(l, t)
	}
	c.send.restoreRepeats(ch.Repeats, c.e.cfg.Profile)
	c.log.storedUpTo(c.send.next)
	c.settle(t)
	return nil
}

// Abandon drops a connection that Replay refused. The peer is told nothing.
func (c *Conn) Abandon() {
	if c.state != connClosed {
		c.links.detachAll()
		c.e.remove(c)
	}
}

// replayAcks notes what the peer acknowledged.
func (t *linkTable) replayAcks(ch Changes, now instant) {
	w := t.send
	for i := range w.flight {
		n := w.base() + uint64(i)
		if n < ch.Acked || n-ch.Acked < 32 && ch.AckedAhead>>(n-ch.Acked)&1 != 0 {
			w.acknowledged(&w.flight[i])
			t.log.want(needSoon)
		}
	}
	t.commandsProcessed(now)
}

// replaySent puts a command in flight, which may have been sent. It reports false if the
// command does not follow.
func (t *linkTable) replaySent(s SentCommand, resolve func(uint64) *Source, now instant) bool {
	w := t.send
	if s.Number < w.next {
		return true
	}
	if s.Number > w.next || len(w.flight) >= sendWindowMax || s.Kind > SentFrozen {
		return false
	}
	o := outgoing{
		kind: s.Kind, flags: s.Flags, takeDown: s.TakeDown, link: s.Link, data: append([]byte(nil), s.Data...),
		sends: 1, first: now, last: now - instant(t.core.cfg.ReliableResend), // due at once
	}
	if s.TakeDown {
		t.replayTakeDown(s.Link)
	}
	switch o.kind {
	case SentPart:
		w.long = longTaken
	case SentFrozen:
		t.ids.useFrozen(s.Link)
	case SentLink:
		slot, ok := t.replayOffer(s, resolve)
		switch {
		case ok:
			o.slot, o.data = uint16(slot), nil
		case len(s.Data) > 0:
			o.kind, o.takeDown = SentFrozen, true
		default: // the state is gone; the peer takes one of the two meanings, and with either it has no link
			o.kind = SentProbe
			t.startDown(s.Link)
			w.keeps(s.Number, false, t.core.cfg.Profile, nil)
		}
	}
	w.add(o)
	return true
}

// replayOffer makes the link of an offer in flight. It reports false if its Source no
// longer exists.
func (t *linkTable) replayOffer(s SentCommand, resolve func(uint64) *Source) (slot int, ok bool) {
	i, ours := t.ids.ordinal(s.Link)
	if !ours {
		return 0, false
	}
	if slot, ok := t.slotOf(s.Link); ok { // queued in the checkpoint
		t.send.removeOffer(slot)
		t.slots[slot].phase = LinkOffered
		return slot, true
	}
	t.ids.useTo(i)
	var src *Source
	if s.HasRef {
		src = resolve(s.Ref)
	}
	if src == nil || src.removed {
		return 0, false
	}
	if old, linked := t.find(src); linked { // it moved to another id, because the peer offered a link under its own
		t.freezeOffer(old, false)
		t.remove(old)
	}
	slot = t.newSlot()
	l := link{id: s.Link, phase: LinkOffered}
	if s.ReadOnly {
		l.flags |= linkReadOnly
	}
	t.attach(slot, l, src)
	t.ids.index[i] = uint16(slot + 1)
	return slot, true
}

func (t *linkTable) replayChange(ch LinkChange, now instant) {
	slot, ok := t.slotOf(ch.Link)
	switch {
	case ch.What == LinkTakenDown:
		t.replayTakeDown(ch.Link)
	case !ok:
	case ch.What == LinkCameUp && t.slots[slot].source != noSource:
		t.slots[slot].flags |= linkProven
		if l := &t.slots[slot]; l.phase < LinkUp && !l.has(linkByPeer) {
			l.phase, l.sent = LinkUp, 0 // which values arrived is unknown
			t.mark(slot)
		}
	case ch.What == LinkRefused:
		t.remove(slot)
	}
}

// replayTakeDown ends a link that we took down. The peer may have learned that already.
func (t *linkTable) replayTakeDown(id wire.LinkID) {
	inFlight := false
	if slot, ok := t.slotOf(id); ok {
		inFlight = t.freezeOffer(slot, true)
		t.remove(slot)
	}
	if !inFlight {
		t.downs.cancel(id)
		t.startDown(id)
	}
}
