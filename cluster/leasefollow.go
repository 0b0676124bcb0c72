package cluster

import (
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
)

// follow is what a Lease knows while another relay holds the shard.
type follow struct {
	// quiet is since when nothing has changed, as far as the store could tell.
	quiet time.Time

	// series is when the first of the last reads was asked that the store has answered
	// without a failure between them; zero if there is none.
	series time.Time

	// silent says that the last read failed.
	silent bool

	// polled is when the last read was asked.
	polled time.Time

	// past is since when every read shows an older state than was seen before; zero if the
	// last read did not.
	past time.Time

	// confirmed says that a read which was asked after the wait was over found no change.
	confirmed bool

	// spare says that this relay tries to acquire the shard because those before it do not.
	spare bool
}

// followOn begins to follow, or begins anew.
func (l *Lease) followOn(now time.Time) {
	l.phase = Following
	l.follow = follow{quiet: now}
}

// changed says that a holder gave a sign of life.
func (l *Lease) changed(now time.Time) {
	l.follow.quiet, l.follow.confirmed, l.follow.silent = now, false, false
	if l.phase == Challenging {
		l.phase = Following
	}
}

// freeAt returns from when on this relay may acquire the shard without waiting for a holder's
// silence; ok is false if there is a holder. The record may be older than the store's, but then the
// store refuses to replace it. Relays that rank before this one go first, unless the shard is meant
// for this one: it was released to it, or the record names this very process, which does not hold
// the shard. An attempt to acquire leaves the last behind if it was written although no answer came.
func (l *Lease) freeAt() (at time.Time, ok bool) {
	h, wait := &l.holder, spareWait(l.rank)
	switch {
	case l.meant():
		return l.since, true
	case h.Seq == 0, h.Released && h.To == "":
		return l.since.Add(wait), true
	case h.Released:
		return l.since.Add(targetWait + wait), true
	}
	return time.Time{}, false
}

// meant reports whether the record says that no relay but this one should have the shard.
func (l *Lease) meant() bool {
	if l.holder.Released {
		return l.holder.To == l.cfg.Node
	}
	return l.holder.Node == l.cfg.Node && l.holder.ID == l.cfg.ID
}

// acquireDue returns when to acquire the shard; ok is false if that is not known yet.
func (l *Lease) acquireDue() (at time.Time, ok bool) {
	if !l.known || l.follow.confirmed {
		return time.Time{}, l.known
	}
	return l.freeAt()
}

// spareNow reports whether this relay acquires the shard because those before it do not. The trace
// of an own attempt stands for that attempt.
func (l *Lease) spareNow() bool {
	if l.meant() {
		return !l.holder.Released && l.follow.spare
	}
	return l.rank > 0
}

func (l *Lease) followStep(now time.Time) {
	if l.rank < 0 {
		return
	}
	due, ok := l.acquireDue()
	switch {
	case ok && now.Before(due):
	case ok:
		l.phase, l.follow.spare = Acquiring, l.spareNow()
		l.ask(now, Action{
			Kind: ActionAcquire, ExpectHolder: l.holder.Seq, ExpectHeartbeat: l.heartbeat.Seq,
			Holder: Holder{Format: l.recordFormat(), Node: l.cfg.Node, ID: l.cfg.ID}, Heartbeat: Heartbeat{Format: l.recordFormat()},
		})
	case !l.known || !now.Before(l.pollDue()):
		if l.known {
			l.phase = Challenging
		}
		l.follow.polled = now
		l.ask(now, Action{Kind: ActionRead})
	}
}

// followDue returns when followStep has something to do.
func (l *Lease) followDue() (time.Time, bool) {
	if l.rank < 0 {
		return time.Time{}, false
	}
	step := l.retryAt
	if due, ok := l.acquireDue(); ok {
		step = due
	} else if l.known {
		step = l.pollDue()
	}
	if end := l.told.Add(wantTimeout); end.Before(step) {
		step = end
	}
	return step, true
}

// pollDue returns when to ask the store next whether the holder is silent. The polls are one
// renewal apart, so that an outage of the store does not pass unnoticed between them, and one
// poll is at the end of the wait.
func (l *Lease) pollDue() time.Time {
	end := l.challengeEnd()
	first := end.Add(-challengeWait * 2 / 3)
	next := l.follow.polled.Add(renewInterval)
	if !l.follow.silent { // otherwise the wait begins when the store answers again
		next = later(first, next)
	}
	if l.follow.polled.Before(end) && end.Before(next) {
		return end
	}
	return next
}

// challengeEnd returns when the holder has been silent for long enough, unless it gives a sign
// before. A relay waits longer than those that rank before it.
func (l *Lease) challengeEnd() time.Time {
	return l.follow.quiet.Add(challengeWait + spareWait(l.rank))
}

// followRead takes the answer of the store's leader to a read.
func (l *Lease) followRead(now time.Time, a Answer) {
	f := &l.follow
	if a.Verdict != fence.OK {
		// The holder could not renew either. Its silence counts from when the store answers
		// again.
		f.silent, f.series = true, time.Time{}
		return
	}
	if l.known && l.inPast(now, a) {
		f.polled, l.retryAt = time.Time{}, now.Add(faultPause)
		return
	}
	if !l.known || f.silent || a.Holder.Seq != l.holder.Seq || a.Heartbeat.Seq != l.heartbeat.Seq {
		l.known, l.heartbeat = true, a.Heartbeat
		l.seen(now, a.Holder)
		l.former.seen(l.cfg.ID, a.Holder)
		l.changed(now)
	}
	f.silent = false
	if f.series.IsZero() {
		f.series = l.sent
	}
	f.confirmed = !l.sent.Before(l.challengeEnd()) && l.sent.Sub(f.series) >= challengeWait/2
}

// inPast reports whether an answer is older than what was seen before, so that it comes from a
// leader which does not know that it was deposed. If answers stay so for longer than such a
// leader can last, the store was wiped, and the answer is right. inPast remembers when this
// began.
func (l *Lease) inPast(now time.Time, a Answer) bool {
	f := &l.follow
	if a.Holder.Seq >= l.holder.Seq && a.Heartbeat.Seq >= l.heartbeat.Seq {
		f.past = time.Time{}
		return false
	}
	if f.past.IsZero() {
		f.past = now
	}
	return now.Sub(f.past) < l.cfg.Silence
}

// acquireAnswer takes the answer to ActionAcquire. Busy changes nothing, because the next attempt
// fails if the holder has renewed meanwhile. A read settles all other answers but a plain OK: the
// record may be there although no answer came, which free recognizes, or it may be another's.
func (l *Lease) acquireAnswer(now time.Time, a Answer) {
	l.phase = Following
	switch {
	case a.Verdict == fence.OK && l.holder.Seq <= a.Seq: // otherwise the watch was faster, and the shard is lost already
		l.seen(now, Holder{Seq: a.Seq, Node: l.cfg.Node, ID: l.cfg.ID})
		l.heartbeat = a.Heartbeat
		l.acquired(now)
	case a.Verdict == fence.Busy && l.follow.confirmed:
		l.retryAt = now.Add(faultPause) // another relay that believes to hold the shard is writing
	case a.Verdict == fence.Busy:
	default:
		l.known, l.follow.confirmed = false, false
	}
}
