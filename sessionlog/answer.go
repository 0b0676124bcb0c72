package sessionlog

import (
	"errors"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/command"
	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/format"
)

// Answer takes the answer of the log to ActionAppend or ActionRead.
func (s *Session) Answer(now time.Time, a Answer) {
	asked := s.asked
	if asked == 0 {
		panic("sessionlog: the log answers, but was not asked")
	}
	outdated := s.outdatedRead
	s.asked, s.outdatedRead = 0, false
	if s.phase == Over {
		return
	}
	switch {
	case a.Verdict == fence.Busy:
		s.retryAt = now.Add(busyPause)
	case a.Verdict == fence.Unreachable:
		s.retryAt = now.Add(faultPause)
	case asked == ActionAppend && a.Verdict == fence.OK && s.revalidate && s.pending.kind == RecordClose:
		// The log must show first who owns the session, because the edge would tell the end to
		// the client that uses this address by now.
	case asked == ActionAppend && a.Verdict == fence.OK:
		s.stored(now, a.Seq)
	case asked == ActionAppend && a.Verdict == fence.TooLarge:
		s.tooLarge()
	case asked == ActionAppend: // Stale may be the trace of this very write
		s.revalidate, s.pending.proof = true, false
	case a.Verdict != fence.OK:
		s.retryAt = now.Add(faultPause)
	case outdated: // the log is read again
	default:
		s.read(now, a.Entries)
	}
}

// tooLarge ends a session whose checkpoint does not fit into one message of the log, which
// another attempt would not change. The end is a write without a checkpoint.
func (s *Session) tooLarge() {
	kind := s.pending.kind
	s.pending, s.handingOver = nil, false
	if s.phase != Owning || kind == RecordClose {
		s.uncertain("the log takes no write of this size", chain{})
		return
	}
	s.conn.Close(dnp.CloseTooLarge)
}

// read judges the entries of the log.
func (s *Session) read(now time.Time, entries []Entry) {
	c, err := readChain(entries)
	if err == errTorn || err == ErrFormat && s.phase == Owning && c.tail <= s.seq {
		s.retryAt = now.Add(tornPause) // what this edge owns begins with its own writes
		return
	}
	s.revalidate = false
	switch {
	case err == ErrFormat:
		s.otherFormat()
	case err != nil:
		s.uncertain("the log is damaged", c)
	case s.phase == Reading:
		s.judgeAdoption(c)
	case s.phase == Owning || s.pending != nil:
		s.reconcile(now, c)
	}
}

// otherFormat leaves a session alone that an edge of another release owns. That edge serves the
// client, so the client is told nothing.
func (s *Session) otherFormat() {
	if s.phase == Owning {
		s.end(Action{Kind: ActionLost, Epoch: s.epoch + 1}) // at least
		return
	}
	s.end(Action{Kind: ActionElsewhere})
}

// reconcile finds out whether the pending write is stored, and whether this edge still owns the
// session.
func (s *Session) reconcile(now time.Time, c chain) {
	tail := c.tail
	if tail >= s.seq {
		s.shortSince = time.Time{}
	}
	switch {
	case tail < s.seq:
		s.shorter(now)
	case s.pending != nil && c.last.Owner == s.owner && c.last.Number == s.number:
		s.stored(now, tail) // the answer was lost
	case tail > s.seq:
		s.foreign(c)
	default: // the write was not applied, or not yet: then the log refuses the same write the second time
		if s.pending == nil {
			s.conn.Mute(false)
		}
	}
}

// shorter judges a log that ends before the newest stored write. The answer may be outdated; if
// the log stays so, writes were lost.
func (s *Session) shorter(now time.Time) {
	s.revalidate = true
	s.retryAt = now.Add(faultPause)
	if s.shortSince.IsZero() {
		s.shortSince = now
	}
	if now.Sub(s.shortSince) >= wipedAfter {
		s.uncertain("the log lost writes", chain{})
	}
}

// foreign judges a log whose last write is of another owner.
func (s *Session) foreign(c chain) {
	s.adoptionTries++
	switch {
	case s.phase == Owning:
		s.end(Action{Kind: ActionLost, Epoch: c.last.Epoch, Node: c.owner})
	case s.phase == Opening && c.closed:
		s.pending, s.seq, s.epoch = nil, c.tail, c.last.Epoch+1
	case s.phase == Opening || s.adoptionTries > adoptionsMax:
		s.end(Action{Kind: ActionElsewhere, Epoch: c.last.Epoch, Node: c.owner})
	default:
		s.pending, s.phase = nil, Reading
		s.judgeAdoption(c)
	}
}

// judgeAdoption judges a log whose session is to be adopted.
func (s *Session) judgeAdoption(c chain) {
	if c.tail == 0 || c.closed {
		s.end(Action{Kind: ActionGone})
		return
	}
	s.toAdopt, s.info, s.seq, s.epoch = c, c.ckpt.Info, c.tail, c.last.Epoch+1
	s.phase = Found
	owner := c.owner
	if c.last.Hand != nil {
		owner = "" // it was handed over
	}
	s.emit(Action{Kind: ActionFound, Info: s.info, Epoch: c.last.Epoch, Node: owner})
}

// Restore makes the connection of the session that was adopted. resolve finds the Source with a
// SourceConfig.Ref. Restore returns nil if the log does not tell enough; the next action says
// so. ActionDeliver follows for each message that may not have been delivered.
func (s *Session) Restore(now time.Time, ep *dnp.Endpoint, resolve func(ref uint64) *dnp.Source) *dnp.Conn {
	c := s.toAdopt
	s.toAdopt = chain{}
	conn, err := ep.Restore(now, s.info.Addr, c.ckpt.Snapshot, resolve)
	if err != nil {
		s.uncertain(err.Error(), c)
		return nil
	}
	if c.last.Hand == nil { // later writes numbered some of the messages that waited at the hand-over
		conn.DropQueue()
	}
	for _, ch := range c.changes {
		if err := conn.Replay(now, ch, resolve); err != nil {
			conn.Abandon()
			s.uncertain("the log does not continue", c)
			return nil
		}
	}
	conn.Mute(s.revalidate)
	s.phase = Owning
	s.conn, s.token, s.commands, s.writes, s.bytes = conn, c.token, c.commands, ckptWrites, c.bytes // a checkpoint is due
	for _, m := range s.undelivered.restore(c.ckpt, c.delivered) {
		s.emit(Action{Kind: ActionDeliver, Message: m})
	}
	s.writeBy = now.Add(writeDelay)
	return conn
}

// uncertain ends a session whose history cannot be established, and reports the numbers that
// are known: those of the connection, or those that c has of the log.
func (s *Session) uncertain(reason string, c chain) {
	var received, sent uint64
	switch {
	case s.conn != nil:
		received, sent = s.conn.NextNumbers()
		s.conn.Close(dnp.CloseUncertain)
		s.conn.Mute(false)
		s.conn.Ended() // there is no log that could record the end first
	case c.ckpt != nil:
		s.info = c.ckpt.Info
		received, sent = dnp.LoggedNumbers(c.ckpt.Snapshot, c.changes)
	}
	s.conn, s.phase, s.pending = nil, Over, nil
	s.emit(Action{Kind: ActionUncertain, Reason: reason, Info: s.info, Received: received, Sent: sent, Epoch: s.epoch})
}

// errTorn says that the entries do not follow one another: some were deleted while they were
// read, or the answer is outdated. The log is to be read again.
var errTorn = errors.New("sessionlog: torn log")

// A chain is what a log says about its session.
type chain struct {
	tail      uint64 // sequence of the last write; 0 for an empty log
	last      Block
	closed    bool
	ckpt      *Checkpoint
	changes   []dnp.Changes // behind ckpt
	delivered uint64
	token     uint64
	commands  command.Progress
	bytes     int    // since the checkpoint
	owner     string // node, as the newest ADOPT has it
}

// readChain reads the entries of a log. What precedes the last checkpoint, or the end of the
// session, does not matter; ErrFormat says that something else has another format.
func readChain(entries []Entry) (chain, error) {
	if len(entries) == 0 {
		return chain{}, nil
	}
	c := chain{tail: entries[len(entries)-1].Seq}
	other := false // a write of another format is among those that matter
	for i := range entries {
		k, err := ParseBlock(entries[i].Data)
		if err == ErrFormat {
			other, c.closed = true, false
			continue
		}
		if err != nil {
			return c, err
		}
		if k.Ckpt != nil {
			c = chain{tail: c.tail, ckpt: k.Ckpt, token: k.Ckpt.Token, commands: k.Ckpt.Commands, owner: k.Ckpt.Node}
			other = snapshotOfOtherFormat(k.Ckpt.Snapshot)
		} else if i > 0 && c.ckpt != nil && k.Previous != entries[i-1].Seq {
			return c, errTorn
		}
		c.add(k, len(entries[i].Data))
	}
	switch {
	case c.closed:
		return c, nil
	case other:
		return c, ErrFormat
	case c.ckpt == nil:
		return c, errTorn
	}
	return c, nil
}

// snapshotOfOtherFormat reports whether the snapshot of a connection is of another release.
func snapshotOfOtherFormat(snapshot []byte) bool {
	return len(snapshot) > 0 && !dnp.KnownSnapshot(snapshot) && format.Other(snapshot[0])
}

// add adds the next write.
func (c *chain) add(k Block, size int) {
	c.last, c.closed = k, k.Close != nil
	c.bytes += size
	c.delivered = max(c.delivered, k.Delivered)
	if k.Adopt != nil {
		c.owner = *k.Adopt
	}
	for i := range k.Changes.Sent {
		noteToken(k.Changes.Sent[i].Token, &c.token, &c.commands)
	}
	if k.Acks || len(k.Changes.Received)+len(k.Changes.Sent)+len(k.Changes.Links) > 0 {
		c.changes = append(c.changes, k.Changes)
	}
}
