package sessionlog

import (
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/internal/fence"
)

// Answer says what became of the action that the log was asked.
func (s *Session) Answer(now time.Time, a Answer) {
	asked := s.asked
	if asked == 0 {
		panic("session: an answer that nobody waits for")
	}
	before := s.outdatedRead
	s.asked, s.outdatedRead = 0, false
	if s.phase == Over {
		return
	}
	switch {
	case a.Verdict == fence.Busy:
		s.retryAt = now.Add(busyPause)
	case a.Verdict == fence.Unreachable:
		s.retryAt = now.Add(faultPause)
	case asked == ActionAppend && a.Verdict == fence.OK && s.revalidate && s.means.end != "":
		// It is read whose the session is by now, because the end would be told to whoever
		// is at the client's address.
	case asked == ActionAppend && a.Verdict == fence.OK:
		s.stored(now, a.Seq)
	case asked == ActionAppend: // Stale may be the trace of this very write
		s.revalidate = true
	case a.Verdict != fence.OK:
		s.retryAt = now.Add(faultPause)
	case before: // it is read again
	default:
		s.read(now, a.Entries)
	}
}

// read judges what the log has.
func (s *Session) read(now time.Time, entries []Entry) {
	c, err := readChain(entries)
	if err == errTorn {
		s.retryAt = now.Add(tornPause)
		return
	}
	s.revalidate = false
	switch {
	case err != nil:
		s.uncertain("the log is damaged", c)
	case s.phase == Reading:
		s.judgeAdoption(c)
	case s.phase == Owning || s.pending != nil:
		s.reconcile(now, c)
	}
}

// compare finds out what became of the pending write, and whether the session still
// is this edge's.
func (s *Session) reconcile(now time.Time, c chain) {
	tail := c.tail
	if tail >= s.seq {
		s.shortSince = time.Time{}
	}
	switch {
	case tail < s.seq:
		s.shorter(now)
	case s.pending != nil && c.last.Owner == s.owner && c.last.Number == s.number:
		s.stored(now, tail) // its answer was lost
	case tail > s.seq:
		s.foreign(c)
	default: // it was not applied, or not yet: then the same write is refused the second time
		if s.pending == nil {
			s.conn.Mute(false)
		}
	}
}

// shorter judges a log that ends before what is known to be stored. An answer can be
// old; one that stays so means that writes were lost.
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

// foreign judges a log in which somebody else wrote last.
func (s *Session) foreign(c chain) {
	s.adoptionTries++
	switch {
	case s.phase == Owning:
		s.over(Action{Kind: ActionLost, Epoch: c.last.Epoch, Node: c.owner})
	case s.phase == Opening && c.closed:
		s.pending, s.seq, s.epoch = nil, c.tail, c.last.Epoch+1
	case s.phase == Opening || s.adoptionTries > adoptionsMax:
		s.over(Action{Kind: ActionElsewhere, Epoch: c.last.Epoch, Node: c.owner})
	default:
		s.pending, s.phase = nil, Reading
		s.judgeAdoption(c)
	}
}

// look judges what there is to adopt.
func (s *Session) judgeAdoption(c chain) {
	if c.empty || c.closed {
		s.over(Action{Kind: ActionGone})
		return
	}
	first := s.info.ID == ID{}
	s.toAdopt, s.info, s.seq, s.epoch = c, c.ckpt.Info, c.tail, c.last.Epoch+1
	s.phase = Found
	if !first { // the states are there already
		s.phase = Claiming
		return
	}
	owner := c.owner
	if c.last.Hand != nil {
		owner = "" // it is whose who takes it
	}
	s.emit(Action{Kind: ActionFound, Info: s.info, Epoch: c.last.Epoch, Node: owner})
}

// uncertain ends a session whose history cannot be established, and names the numbers that
// are known: those of the connection, or of what c has of the log.
func (s *Session) uncertain(reason string, c chain) {
	if s.conn == nil && c.ckpt != nil {
		s.info = c.ckpt.Info
	}
	received, sent := c.numbers()
	if s.conn != nil {
		received, sent = s.conn.Next()
		s.conn.Close(dnp.CloseUncertain)
		s.conn.Mute(false)
		s.conn.Ended() // there is no log that could say so first
	}
	s.conn, s.phase, s.pending = nil, Over, nil
	s.emit(Action{Kind: ActionUncertain, Reason: reason, Info: s.info, Received: received, Sent: sent, Epoch: s.epoch})
}
