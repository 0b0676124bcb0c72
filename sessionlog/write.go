package sessionlog

import (
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/internal/format"
)

// newBlock begins a write.
func (s *Session) newBlock() Block {
	s.number++
	return Block{
		Format: format.ToWrite(s.cfg.Format), Epoch: s.epoch, Owner: s.owner, Number: s.number, Previous: s.seq, Delivered: s.undelivered.upTo,
	}
}

// write asks the log to append a block. A repetition has the same bytes, because an earlier
// attempt may be applied late.
func (s *Session) write(k *Block, p pendingWrite) {
	p.Write = Write{Log: s.log, Expect: s.seq, Data: k.Append(nil), Rollup: k.Ckpt != nil || k.Close != nil, Final: k.Close != nil}
	s.pending = &p
	s.ask(Action{Kind: ActionAppend, Write: p.Write})
}

func (s *Session) writeOpen(now time.Time) {
	k := s.newBlock()
	k.Open = true
	k.Adopt = &s.cfg.Node
	s.fill(now, &k, true)
	s.write(&k, pendingWrite{kind: RecordOpen})
}

func (s *Session) writeAdopt() {
	k := s.newBlock()
	k.Adopt = &s.cfg.Node
	k.Delivered = s.toAdopt.delivered
	s.write(&k, pendingWrite{kind: RecordAdopt})
}

// writeProof writes an empty block. The log takes it only behind the newest write of this edge, so the answer shows
// whether another edge has adopted the session. A read would show that, too, but a log may take writes while it
// refuses reads.
func (s *Session) writeProof() {
	k := s.newBlock()
	s.write(&k, pendingWrite{proof: true})
}

// writeChanges writes what is to be written, if anything is.
func (s *Session) writeChanges(now time.Time) {
	reason, ending := s.conn.Ending()
	ending = ending && len(s.undelivered.list) == 0
	due, ok := s.writeDue()
	if !ok || due.After(now) {
		return
	}
	k := s.newBlock()
	var p pendingWrite
	ckpt := s.ckptDue(now) || s.handingOver
	switch {
	case ending:
		p.kind, p.reason, ckpt = RecordClose, reason.String(), false
		k.Close = &p.reason
	case s.handingOver:
		p.kind = RecordHand
		k.Hand = &s.successor
	}
	p.lost = s.fill(now, &k, ckpt)
	s.write(&k, p)
}

// fill puts the changes of the connection into a block, and a checkpoint if ckpt is true. It
// returns how many messages a hand-over loses.
func (s *Session) fill(now time.Time, k *Block, ckpt bool) (lost int) {
	s.writeNow, s.writeBy = false, time.Time{}
	if ckpt {
		c := &Checkpoint{Info: s.info, Node: s.cfg.Node, Token: s.token, Previous: s.undelivered.previous, Undelivered: s.undelivered.list, Commands: s.commands}
		c.Snapshot = s.conn.AppendCheckpoint(nil)
		if k.Hand != nil {
			lost = s.handQueue(c)
		}
		k.Ckpt = c
		s.ckptAt, s.refreshAt = now, time.Time{}
	}
	k.Changes = s.conn.Changes(s.cfg.BlockBytes)
	k.Acks = true
	for i := range k.Changes.Sent {
		noteToken(k.Changes.Sent[i].Token, &s.token, &s.commands)
	}
	if s.conn.Urgent() {
		s.writeNow = true // BlockBytes left some changes out
	}
	return lost
}

// handQueue has a checkpoint hand over the messages that have no number, unless it gets too large:
// then they are lost, as those of an edge that dies. It returns how many.
func (s *Session) handQueue(c *Checkpoint) (lost int) {
	if all := s.conn.AppendSnapshot(nil); s.undelivered.bytes+len(all) <= handBytesMax {
		c.Snapshot = all
		return 0
	}
	for range s.conn.QueuedTokens {
		lost++
	}
	return lost
}

// ckptDue reports whether the next write should be a checkpoint.
func (s *Session) ckptDue(now time.Time) bool {
	long := s.writes >= ckptWrites || s.bytes >= ckptBytes
	old := s.writes > 1 && now.Sub(s.ckptAt) >= ckptInterval
	refresh := !s.refreshAt.IsZero() && !now.Before(s.refreshAt)
	return (long || old || refresh) && s.ckptPossible()
}

// ckptPossible reports whether a checkpoint would lose nothing: it would forget events that
// were not handled, and an offer of the client without an answer. A log that is about to become
// too large does not wait for the latter.
func (s *Session) ckptPossible() bool {
	return s.conn.Reported() && (!s.conn.Unanswered() || s.bytes >= logBytesMax/2)
}

// writeDue returns when the next write is due.
func (s *Session) writeDue() (time.Time, bool) {
	_, ending := s.conn.Ending()
	switch {
	case ending:
		return time.Time{}, len(s.undelivered.list) == 0
	case s.undelivered.full(s.cfg.UndeliveredBytesMax - s.conn.Incomplete()):
		return time.Time{}, false // until some are delivered; no further command is acknowledged
	case s.handingOver, s.writeNow:
		return time.Time{}, true
	}
	at, ok := s.writeBy, !s.writeBy.IsZero()
	ckptAt := s.refreshAt
	if old := s.ckptAt.Add(ckptInterval); s.writes > 1 && (ckptAt.IsZero() || old.Before(ckptAt)) {
		ckptAt = old
	}
	if !ckptAt.IsZero() && (!ok || ckptAt.Before(at)) && s.ckptPossible() {
		at, ok = ckptAt, true
	}
	return at, ok
}

// stored takes note that the pending write is in the log.
func (s *Session) stored(now time.Time, seq uint64) {
	p := s.pending
	s.seq, s.pending, s.adoptionTries = seq, nil, 0
	s.writes++
	s.bytes += len(p.Data)
	if p.Rollup {
		s.writes, s.bytes = 1, 0
	}
	switch p.kind {
	case RecordAdopt:
		s.phase = Adopted
		s.ckptAt = now
		s.emit(Action{Kind: ActionAdopted, Epoch: s.epoch, Info: s.info})
		return
	case RecordOpen:
		s.phase = Owning
		s.emit(Action{Kind: ActionOpened, Epoch: s.epoch, Info: s.info})
	case RecordHand:
		s.end(Action{Kind: ActionHanded, Epoch: s.epoch, Node: s.successor, Lost: p.lost})
		return
	case RecordClose:
		s.closed(p.reason)
		return
	}
	s.conn.Stored()
	if p.proof {
		s.revalidate = false
	}
	if !s.revalidate { // the write may have been stored before this process was stopped
		s.conn.Mute(false)
	}
	if s.bytes > logBytesMax {
		s.conn.Close(dnp.CloseTooLarge)
	}
}

// closed lets the connection end after the log has recorded the end.
func (s *Session) closed(reason string) {
	if reason == dnp.CloseUncertain.String() {
		received, sent := s.conn.NextNumbers()
		s.emit(Action{Kind: ActionUncertain, Reason: "the client contradicts the log", Info: s.info, Received: received, Sent: sent, Epoch: s.epoch})
	}
	s.conn.Mute(false)
	s.conn.Ended()
	s.phase, s.conn = Over, nil
	s.emit(Action{Kind: ActionEnded, Reason: reason, Epoch: s.epoch})
}
