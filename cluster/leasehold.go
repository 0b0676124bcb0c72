package cluster

import (
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
)

// hold is what a Lease knows while this relay holds the shard.
type hold struct {
	epoch      uint64    // 0 if this relay does not hold the shard
	renewed    time.Time // when the newest write that succeeded was asked
	next       time.Time // when to renew
	durable    bool
	revalidate bool   // the store must say who holds the shard before it is asked for anything else
	write      uint64 // ordinal of the newest write
	chain      uint64 // sequence of the newest Heartbeat

	waiting bool // the batch token waits to be stored
	token   uint64
	since   time.Time // when it began to wait
	storing uint64    // ordinal of its newest write; 0 if there was none

	releasing bool
	successor string // empty for any
	hung      bool   // it is released because its worker stands still
}

// A former is the ownership that this relay lost to the silence or the loss of the store.
type former struct {
	epoch uint64 // 0 if another relay held the shard since
	wiped bool   // the store does not have what it had in that epoch
}

// seen takes a record that the store had after the relay lost the shard.
func (f *former) seen(id string, h Holder) {
	f.wiped = f.wiped || h.Seq < f.epoch
	if h.Seq > f.epoch && h.ID != id {
		f.epoch = 0
	}
}

// acquired begins an epoch of this relay.
func (l *Lease) acquired(now time.Time) {
	l.phase = Holding
	l.hold = hold{epoch: l.holder.Seq, renewed: l.sent, next: l.sent.Add(renewInterval), chain: l.heartbeat.Seq, durable: true}
	l.emit(Action{Kind: ActionAcquired, Epoch: l.holder.Seq, Former: l.former.epoch, Wiped: l.former.wiped, Spare: l.follow.spare})
	l.former = former{}
}

// lose ends it.
func (l *Lease) lose(now time.Time, reason Reason) {
	l.emit(Action{Kind: ActionLost, Epoch: l.hold.epoch, Reason: reason})
	l.former = former{}
	if reason == ReasonSilence || reason == ReasonWiped {
		l.former.epoch = l.hold.epoch
	}
	l.hold = hold{}
	l.followOn(now)
}

// takenReason returns why the store has a record that is not this relay's. A relay that is
// releasing the shard need not ask whether the record is its own or already its successor's.
func (l *Lease) takenReason() Reason {
	if l.phase == Releasing {
		return l.releaseReason()
	}
	return ReasonTaken
}

func (l *Lease) releaseReason() Reason {
	if l.hold.hung {
		return ReasonHung
	}
	return ReasonReleased
}

// holdDeadlines acts on the silence of the store, and of the shard's worker.
func (l *Lease) holdDeadlines(now time.Time) {
	if l.hung(now) {
		l.hold.releasing, l.hold.hung, l.hold.successor = true, true, ""
	}
	if now.Sub(l.hold.renewed) >= l.cfg.Silence {
		l.lose(now, ReasonSilence)
		return
	}
	l.setDurable(now.Before(l.durableUntil()))
}

func (l *Lease) holdDeadline() time.Time {
	end := l.hold.renewed.Add(l.cfg.Silence)
	if !l.hold.hung {
		end = earlier(end, l.told.Add(wantTimeout))
	}
	if l.hold.durable {
		return earlier(end, l.durableUntil())
	}
	return end
}

// durableUntil returns until when accepted changes count as durable: for a while after the last
// sign of the store, and not while the store takes heartbeats but no batches.
func (l *Lease) durableUntil() time.Time {
	until := l.hold.renewed.Add(durableSilence)
	if l.hold.waiting {
		return earlier(until, l.hold.since.Add(durableSilence))
	}
	return until
}

func (l *Lease) setDurable(durable bool) {
	if l.hold.durable != durable {
		l.hold.durable = durable
		l.emit(Action{Kind: ActionDurable, Epoch: l.hold.epoch, Durable: durable})
	}
}

// holdStep makes the most urgent request to the store.
func (l *Lease) holdStep(now time.Time) {
	h := &l.hold
	switch {
	case h.revalidate:
		l.ask(now, Action{Kind: ActionRead})
	case h.releasing && (h.hung || !h.waiting): // a worker that stands still stores nothing either
		l.phase = Releasing
		l.ask(now, Action{
			Kind: ActionRelease, ExpectHolder: h.epoch,
			Holder: Holder{Format: l.recordFormat(), Node: l.cfg.Node, ID: l.cfg.ID, Released: true, To: h.successor},
		})
	case l.storeDue(now):
		b := l.nextHeartbeat()
		h.storing = h.write
		l.ask(now, Action{Kind: ActionStore, Token: h.token, ExpectHolder: h.epoch, ExpectHeartbeat: h.chain, Heartbeat: b})
	case !now.Before(h.next):
		l.ask(now, Action{Kind: ActionRenew, ExpectHolder: h.epoch, Heartbeat: l.nextHeartbeat()})
	}
}

// nextHeartbeat returns the record of the next write.
func (l *Lease) nextHeartbeat() Heartbeat {
	l.hold.write++
	return Heartbeat{Format: l.recordFormat(), Epoch: l.hold.epoch, Write: l.hold.write}
}

// storeDue reports whether the batch that waits is next. A batch that failed lets a renewal pass
// that is due, so that a batch which the store never takes does not cost the shard.
func (l *Lease) storeDue(now time.Time) bool {
	h := &l.hold
	return h.waiting && (h.storing == 0 || now.Before(h.next))
}

// holdDue returns when holdStep has something to do.
func (l *Lease) holdDue() time.Time {
	h := &l.hold
	if h.revalidate || h.waiting || h.releasing {
		return l.retryAt
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
	case fence.OK:
		l.written(now, asked, a.Seq)
	case fence.Stale:
		h.revalidate = true
	case fence.Unknown:
		// A renewal may be repeated at once, because it has the fence. The outcome of a batch
		// or a release must be known first.
		h.revalidate = asked != ActionRenew
		h.next = now
	case fence.Unreachable, fence.Busy, fence.TooLarge:
		h.next = now
	}
}

// written takes note of a write that succeeded.
func (l *Lease) written(now time.Time, asked ActionKind, seq uint64) {
	if asked == ActionRelease {
		l.seen(now, Holder{Seq: seq, Node: l.cfg.Node, ID: l.cfg.ID, Released: true, To: l.hold.successor})
		l.lose(now, l.releaseReason())
		return
	}
	h := &l.hold
	h.chain = seq
	h.renewed, h.next = l.sent, l.sent.Add(renewInterval)
	if asked == ActionStore {
		l.stored()
	}
	l.setDurable(now.Before(l.durableUntil()))
}

func (l *Lease) stored() {
	h := &l.hold
	h.waiting, h.storing = false, 0
	l.emit(Action{Kind: ActionStored, Epoch: h.epoch, Token: h.token})
}

// holdRead takes the answer of the store's leader to a revalidation.
func (l *Lease) holdRead(now time.Time, a Answer) {
	h := &l.hold
	switch {
	case a.Verdict != fence.OK:
	case a.Holder.Seq > h.epoch:
		l.heartbeat = a.Heartbeat
		l.seen(now, a.Holder)
		l.lose(now, l.takenReason())
	case a.Holder.Seq < h.epoch:
		// The leader does not know that it was deposed, or the store was wiped, which the
		// silence will show.
		l.retryAt = now.Add(faultPause)
	default:
		h.revalidate = false
		h.chain = a.Heartbeat.Seq
		if h.waiting && h.storing != 0 && a.Heartbeat.Epoch == h.epoch && a.Heartbeat.Write == h.storing {
			l.stored()
		}
		h.next = now
	}
}
