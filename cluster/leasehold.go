package cluster

import "time"

// hold is what a Lease knows while this relay holds the shard.
type hold struct {
	epoch   uint64
	renewed time.Time // when the newest write that succeeded was asked
	next    time.Time // when to renew
	durable bool
	doubt   bool   // the store must say who holds the shard before anything else is asked
	write   uint64 // number of the newest write
	chain   uint64 // sequence of the newest Beat
	chained bool   // whether chain is known

	waiting bool // the batch token waits to be stored
	token   uint64
	storing uint64 // number of its newest write; 0 if there was none

	release bool
	to      string
}

// acquired begins a holding. The first thing is to renew, which also says where
// the last Beat is.
func (l *Lease) acquired(now time.Time) {
	l.phase = Holding
	l.hold = hold{epoch: l.own.Seq, renewed: l.sent, next: now, durable: true}
	l.say(Action{Kind: ActionAcquired, Epoch: l.own.Seq})
}

// lose ends a holding.
func (l *Lease) lose(now time.Time, why Reason) {
	l.say(Action{Kind: ActionLost, Epoch: l.hold.epoch, Reason: why})
	l.hold = hold{}
	l.followOn(now)
}

// takenReason tells one's own release, whose answer was lost, from another's
// record.
func (l *Lease) takenReason() Reason {
	if l.phase == Releasing && l.own.Released && l.own.ID == l.cfg.ID {
		return ReasonReleased
	}
	return ReasonTaken
}

// holdDeadlines acts on the silence of the store.
func (l *Lease) holdDeadlines(now time.Time) {
	silent := now.Sub(l.hold.renewed)
	switch {
	case silent >= l.cfg.Silence:
		l.lose(now, ReasonSilence)
	case silent >= l.cfg.Soft && l.hold.durable:
		l.setDurable(false)
	}
}

func (l *Lease) holdDeadline() time.Time {
	if l.hold.durable {
		return l.hold.renewed.Add(l.cfg.Soft)
	}
	return l.hold.renewed.Add(l.cfg.Silence)
}

func (l *Lease) setDurable(durable bool) {
	if l.hold.durable != durable {
		l.hold.durable = durable
		l.say(Action{Kind: ActionDurable, Epoch: l.hold.epoch, Durable: durable})
	}
}

// holdStep asks the store for the most urgent.
func (l *Lease) holdStep(now time.Time) {
	h := &l.hold
	switch {
	case h.doubt:
		l.ask(now, Action{Kind: ActionRead})
	case h.waiting && h.chained:
		h.write++
		h.storing = h.write
		l.ask(now, Action{
			Kind: ActionStore, Token: h.token, Expect: h.epoch, ExpectBeat: h.chain, Beat: Beat{Epoch: h.epoch, Write: h.write},
		})
	case h.release && !h.waiting:
		l.phase = Releasing
		l.ask(now, Action{
			Kind: ActionRelease, Expect: h.epoch, Own: Own{Node: l.cfg.Node, ID: l.cfg.ID, Released: true, To: h.to},
		})
	case !now.Before(h.next):
		h.write++
		l.ask(now, Action{Kind: ActionBeat, Expect: h.epoch, Beat: Beat{Epoch: h.epoch, Write: h.write}})
	}
}

// holdDue returns when holdStep has something to do.
func (l *Lease) holdDue() time.Time {
	h := &l.hold
	if h.doubt || h.waiting && h.chained || h.release && !h.waiting {
		return l.blocked
	}
	return h.next
}

func (l *Lease) holdAnswer(now time.Time, asked ActionKind, a Answer) {
	if asked == ActionRead {
		l.holdRead(now, a)
		return
	}
	h := &l.hold
	switch a.Verdict {
	case OK:
		l.written(now, asked, a.Seq)
	case Stale:
		h.doubt = true
	case Unknown:
		// A beat may be repeated without asking, because the fence is in it. What a
		// batch or a release did has to be known first.
		h.doubt = asked != ActionBeat
		h.next = now
	case Unreachable, Busy:
		h.next = now
	}
}

// written takes note of a write that succeeded.
func (l *Lease) written(now time.Time, asked ActionKind, seq uint64) {
	if asked == ActionRelease {
		l.own = Own{Seq: seq, Node: l.cfg.Node, ID: l.cfg.ID, Released: true, To: l.hold.to}
		l.lose(now, ReasonReleased)
		return
	}
	h := &l.hold
	h.chain, h.chained = seq, true
	h.renewed, h.next = l.sent, l.sent.Add(l.cfg.Beat)
	l.setDurable(true)
	if asked == ActionStore {
		l.stored()
	}
}

func (l *Lease) stored() {
	h := &l.hold
	h.waiting, h.storing = false, 0
	l.say(Action{Kind: ActionStored, Epoch: h.epoch, Token: h.token})
}

// holdRead takes what the store's leader says in a case of doubt.
func (l *Lease) holdRead(now time.Time, a Answer) {
	h := &l.hold
	switch {
	case a.Verdict != OK:
	case a.Own.Seq > h.epoch:
		l.own, l.beat = a.Own, a.Beat
		l.lose(now, l.takenReason())
	case a.Own.Seq < h.epoch:
		// A leader that does not know that it was deposed, or a store that was
		// wiped, which the silence will tell.
		l.blocked = now.Add(faultPause)
	default:
		h.doubt = false
		h.chain, h.chained = a.Beat.Seq, true
		if h.waiting && h.storing != 0 && a.Beat.Epoch == h.epoch && a.Beat.Write == h.storing {
			l.stored()
		}
		h.next = now
	}
}
