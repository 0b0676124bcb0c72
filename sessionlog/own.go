package sessionlog

import (
	"time"

	"github.com/dnprelay/dnprelay/dnp"
)

// block begins a write.
func (s *Session) block() Block {
	s.number++
	return Block{Epoch: s.epoch, Owner: s.owner, Number: s.number, Previous: s.seq, Delivered: s.undelivered.upTo}
}

// write asks the log to append a block. It is the same bytes however often it is
// asked, because one of the earlier attempts may be applied late.
func (s *Session) write(k *Block, m meaning) {
	data := k.Append(nil)
	m.size = len(data)
	s.means = m
	s.pending = &Write{Log: s.log, Expect: s.seq, Data: data, Rollup: k.Ckpt != nil || k.Close != nil, Final: k.Close != nil}
	s.ask(Action{Kind: ActionAppend, Write: *s.pending})
}

func (s *Session) writeOpen(now time.Time) {
	k := s.block()
	k.Open = true
	k.Adopt = &s.cfg.Node
	s.fill(now, &k, true)
	s.write(&k, meaning{open: true, ckpt: true})
}

// writeChanges writes what is to be written, if anything is.
func (s *Session) writeChanges(now time.Time) {
	reason, ending := s.conn.Ending()
	ending = ending && len(s.undelivered.list) == 0
	due, ok := s.writeDue()
	if !ok || due.After(now) {
		return
	}
	k := s.block()
	m := meaning{ckpt: s.ckptDue(now) || s.handingOver}
	switch {
	case ending:
		m.ckpt, m.end = false, reason.String()
		k.Close = &m.end
		s.fill(now, &k, false)
	case s.handingOver:
		m.hand = true
		k.Hand = &s.successor
		s.fill(now, &k, true)
	default:
		s.fill(now, &k, m.ckpt)
	}
	s.write(&k, m)
}

// take puts what happened to the connection into a block.
func (s *Session) fill(now time.Time, k *Block, ckpt bool) {
	s.need = need{}
	if ckpt {
		c := &Checkpoint{Info: s.info, Node: s.cfg.Node, Token: s.token, Previous: s.undelivered.first, Undelivered: s.undelivered.list}
		if k.Hand != nil {
			c.Snapshot = s.conn.AppendSnapshot(nil)
		} else {
			c.Snapshot = s.conn.AppendCheckpoint(nil)
		}
		k.Ckpt = c
		s.ckptAt = now
	}
	k.Changes = s.conn.Changes(s.cfg.BlockBytes)
	k.Acks = true
	for i := range k.Changes.Sent {
		s.token = max(s.token, k.Changes.Sent[i].Token)
	}
	if s.conn.Urgent() {
		s.need.now = true // not all fitted
	}
}

// ckptDue reports whether the next write should be a checkpoint. An offer of the
// client that nobody answered would be forgotten by it.
func (s *Session) ckptDue(now time.Time) bool {
	long := s.writes >= s.cfg.CkptWrites || s.bytes >= s.cfg.CkptBytes
	old := s.writes > 1 && now.Sub(s.ckptAt) >= s.cfg.CkptInterval
	return (long || old) && s.ckptPossible()
}

func (s *Session) ckptPossible() bool {
	return s.conn.Reported() && (!s.conn.Unanswered() || s.bytes >= s.cfg.LogBytesMax/2)
}

// writeDue returns when the next write is due.
func (s *Session) writeDue() (time.Time, bool) {
	_, ending := s.conn.Ending()
	switch {
	case ending:
		return time.Time{}, len(s.undelivered.list) == 0
	case len(s.undelivered.list) >= s.cfg.UndeliveredMax, s.undelivered.bytes >= s.cfg.UndeliveredBytesMax:
		return time.Time{}, false // until some are delivered; the client is not acknowledged more
	case s.handingOver, s.need.now:
		return time.Time{}, true
	}
	at, ok := s.need.soon, !s.need.soon.IsZero()
	if old := s.ckptAt.Add(s.cfg.CkptInterval); s.writes > 1 && (!ok || old.Before(at)) && s.ckptPossible() {
		at, ok = old, true
	}
	return at, ok
}

// stored takes note that the pending write is in the log.
func (s *Session) stored(now time.Time, seq uint64) {
	m := s.means
	s.seq, s.pending, s.means, s.adoptionTries = seq, nil, meaning{}, 0
	s.writes++
	s.bytes += m.size
	if m.ckpt {
		s.writes, s.bytes = 1, 0
	}
	switch {
	case m.adopt:
		s.phase = Adopted
		s.ckptAt = now
		s.emit(Action{Kind: ActionAdopted, Epoch: s.epoch, Info: s.info})
		return
	case m.open:
		s.phase = Owning
		s.emit(Action{Kind: ActionOpened, Epoch: s.epoch, Info: s.info})
	case m.hand:
		s.over(Action{Kind: ActionHanded, Epoch: s.epoch, Node: s.successor})
		return
	case m.end != "":
		s.ended(m.end)
		return
	}
	s.conn.Stored()
	if !s.revalidate { // it may have been stored before this process was stopped
		s.conn.Mute(false)
	}
	if s.bytes > s.cfg.LogBytesMax {
		s.conn.Close(dnp.CloseTooLarge)
	}
}

// ended lets the connection end, which the log knows.
func (s *Session) ended(reason string) {
	if reason == dnp.CloseUncertain.String() {
		received, sent := s.conn.Next()
		s.emit(Action{Kind: ActionUncertain, Reason: "the client contradicts the log", Info: s.info, Received: received, Sent: sent, Epoch: s.epoch})
	}
	s.conn.Mute(false)
	s.conn.Ended()
	s.phase, s.conn = Over, nil
	s.emit(Action{Kind: ActionEnded, Reason: reason, Epoch: s.epoch})
}
