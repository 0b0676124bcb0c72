package lease

import (
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
)

// asksMax bounds the changes of owners that are under way at a time, so that the store is not flooded when many shards are free.
const asksMax = 64

// A shard is what a relay knows of one.
type shard struct {
	n      int
	owner  Owner // the newest that was seen
	proved proof

	alive time.Time // when its worker spoke last
	open  bool      // the worker takes it

	epoch   uint64 // in which this relay holds it; 0 if it does not
	last    uint64 // the newest epoch in which it did
	durable bool

	releasing bool // its holder has stopped serving it
	reason    Reason
	successor string // empty for any
	placed    string // the relay that should hold it, as was said last

	former   former
	free     time.Time // since when it has no holder; zero if it has one
	absence  absence
	reserved time.Time // until when it is left to the relay that held it before the stream was made anew
	ask      ask
}

// A former is the last ownership of this relay, if it ended with the lease or with the stream and no other relay held the shard until
// the record of a sequence.
type former struct {
	epoch uint64 // 0 if what this relay has is not the newest any longer
	until uint64
	wiped bool
	below uint64 // the epoch, if the stream lost it: edges and game servers ignore a holder of a lower one
}

// An ask is a change of the owner that is under way.
type ask struct {
	owner  Owner // to be stored; zero if nothing is under way
	expect uint64
	spare  bool
	sent   time.Time // or when the leader was asked last who holds the shard
	read   bool      // the leader was asked
	again  time.Time // when to ask again after a refusal; zero for never
}

// hung reports whether the worker of the shard stands still.
func (s *shard) hung(now time.Time) bool { return now.Sub(s.alive) >= aliveTimeout }

// Release gives the shard that this relay holds in an epoch to the relay successor, or to any if that is empty. Batches that
// wait are stored first.
func (l *Lease) Release(n int, epoch uint64, successor string) {
	if s := l.shard[n]; s != nil && s.epoch != 0 && s.epoch == epoch && !s.releasing {
		s.releasing, s.reason, s.successor = true, ReasonReleased, successor
	}
}

// Epoch returns the epoch in which this relay holds a shard; 0 if it does not.
func (l *Lease) Epoch(n int) uint64 { return l.shard[n].epoch }

// owned takes the record of who holds a shard.
func (l *Lease) owned(now time.Time, s *shard, o Owner) {
	if o.Seq <= s.owner.Seq {
		if o.Seq == s.owner.Seq && o != s.owner {
			l.lost()
		}
		return
	}
	mine := o.Node == l.cfg.Node && o.Incarnation == l.incarnation && o.Seq >= l.floor
	if s.epoch != 0 {
		why := ReasonTaken
		if s.releasing && s.ask.owner.Node == o.Node && s.ask.owner.Incarnation == o.Incarnation {
			why = s.reason
		}
		l.lose(now, s, why)
	}
	spare := s.ask.spare && mine && s.ask.owner.Node == o.Node
	f := s.former
	older := o.Seq < f.below && !mine // a record of the time before this relay's epoch, which is lost, or of a relay that does not know that epoch
	switch {
	case older && l.primed: // somebody took the shard meanwhile
		f.epoch, f.wiped = 0, false
	case !older && f.until != o.Before: // others may have held the shard, also if their records were not seen
		f = former{}
	}
	s.owner, s.ask, s.former, s.free, s.absence = o, ask{}, former{}, time.Time{}, absence{}
	switch {
	case older:
		s.former, s.former.until = f, o.Seq
	case mine:
		l.hold(now, s, f, spare)
	case o.Node == l.cfg.Node: // written by an incarnation that is over: no other relay held the shard
		s.former, s.former.until = f, o.Seq
	case o.unknown():
		l.emit(Action{Kind: ActionSeen, Shard: s.n, Epoch: o.Seq})
	case o.Node != "" && o.Node != l.cfg.Node:
		l.emit(Action{Kind: ActionSeen, Shard: s.n, Epoch: o.Seq, Node: o.Node})
	}
}

// hold begins an ownership.
func (l *Lease) hold(now time.Time, s *shard, f former, spare bool) {
	s.epoch, s.last, s.durable, s.reserved = s.owner.Seq, s.owner.Seq, true, time.Time{}
	s.releasing, s.placed = false, l.cfg.Node
	l.emit(Action{Kind: ActionAcquired, Shard: s.n, Epoch: s.epoch, Former: f.epoch, Wiped: f.wiped})
	if l.paused {
		l.pause(s)
	}
	if spare {
		mine := l.cfg.Draw(l.cfg.Node, s.n)
		for _, name := range l.order {
			if p := l.peers[name]; p.lives() && before(name, l.cfg.Draw(name, s.n), l.cfg.Node, mine) {
				p.passed = now
			}
		}
	}
}

// pause says that a shard must not be served, or may be again.
func (l *Lease) pause(s *shard) {
	kind := ActionResumed
	if l.paused {
		kind = ActionPaused
	}
	l.emit(Action{Kind: kind, Shard: s.n, Epoch: s.epoch})
}

// lose ends an ownership.
func (l *Lease) lose(_ time.Time, s *shard, why Reason) {
	l.drop(s)
	l.emit(Action{Kind: ActionLost, Shard: s.n, Epoch: s.epoch, Reason: why})
	s.epoch, s.releasing, s.successor, s.former = 0, false, "", former{}
}

// place takes shards that are free, and gives those away that other relays should hold.
func (l *Lease) place(now time.Time) {
	asks := 0
	for _, s := range l.list {
		if s.ask.owner != (Owner{}) {
			asks++
		}
	}
	open, valid := l.open(now), l.valid(now) && !l.low()
	for _, s := range l.list {
		switch {
		case s.ask.owner != (Owner{}) || s.ask.read:
			l.followUp(now, s)
		case s.epoch != 0:
			l.placeHeld(now, s, open, asks < asksMax)
		case !l.isFree(now, s):
			s.free = time.Time{}
			if s.former.below != 0 && valid && open && s.open && !s.hung(now) { // its holder has an epoch that others ignore
				l.revoke(now, s.owner.Node)
			}
		default:
			l.takeFree(now, s, open, valid && asks < asksMax)
		}
		if s.ask.sent == now && s.ask.owner != (Owner{}) || s.absence.asked == now {
			asks++
		}
	}
}

// isFree reports whether no relay holds a shard.
func (l *Lease) isFree(now time.Time, s *shard) bool {
	o := &s.owner
	switch {
	case o.unknown() || now.Before(s.reserved):
		return false
	case o.Node == l.cfg.Node: // not held in this incarnation, or lost to an epoch on the bus
		return true
	}
	return o.Node == "" || l.over(s)
}

// takeFree takes a free shard, when those that rank before this relay had their time.
func (l *Lease) takeFree(now time.Time, s *shard, open, can bool) {
	if s.free.IsZero() {
		s.free = now
	}
	rank := l.rank(s.n)
	wait := min(time.Duration(rank)*spareStep, spareMax)
	switch {
	case s.former.epoch != 0:
		rank, wait = 0, 0 // only this relay may have the newest states
	case !open:
		wait = spareMax
	}
	if !can || !s.open || s.hung(now) || now.Sub(s.free) < wait || now.Before(s.ask.again) || l.busy(s) || !l.hasLeft(now, s) {
		return
	}
	l.askOwner(now, s, Owner{Node: l.cfg.Node, Incarnation: l.incarnation}, rank > 0)
}

// An absence is what the leader of the stream says of the lease of a shard's holder.
type absence struct {
	first   time.Time // when this relay asked first; zero for never
	asked   time.Time // when it asked last
	since   time.Time // since when the leader says that there is no lease
	certain bool      // the leader has said so for lacksWait
}

// hasLeft reports whether the holder of a shard, whose lease is over as far as this relay knows, has certainly lost it. A relay that did not see the
// lease end asks the leader: the watch may come from a server that catches up, and that does not have the lease yet.
func (l *Lease) hasLeft(now time.Time, s *shard) bool {
	o, p := &s.owner, l.peers[s.owner.Node]
	if o.Node == "" || o.Node == l.cfg.Node || s.absence.certain || p != nil && (p.Incarnation == o.Incarnation || p.Seq > o.Seq) {
		return true
	}
	if now.Sub(s.absence.asked) >= Timeout {
		s.absence.asked = now
		if s.absence.first.IsZero() {
			s.absence.first = now
		}
		l.emit(Action{Kind: ActionReadLease, Node: o.Node, Asked: now})
	}
	return false
}

// leased takes the leader's answer whether a node has a lease. A leader that was deposed may say for a moment that there is none.
func (l *Lease) leased(now, asked time.Time, node string, there bool) {
	for _, s := range l.list {
		x := &s.absence
		switch {
		case s.owner.Node != node || x.first.IsZero() || asked.Before(x.first):
		case there:
			x.since = time.Time{}
		case x.since.IsZero():
			x.since = now
		default:
			x.certain = now.Sub(x.since) >= lacksWait
		}
	}
}

// placeHeld looks who should hold a shard that this relay holds.
func (l *Lease) placeHeld(now time.Time, s *shard, open, can bool) {
	if s.hung(now) && !s.releasing {
		l.drop(s)
		s.releasing, s.reason, s.successor = true, ReasonHung, ""
	}
	if s.releasing {
		if can && !now.Before(s.ask.again) && !l.busy(s) {
			o := Owner{}
			if p := l.peers[s.successor]; p != nil && p.lives() {
				o = Owner{Node: s.successor, Incarnation: p.Incarnation}
			}
			l.askOwner(now, s, o, false)
		}
		return
	}
	if best := l.best(now, s.n, open); best != s.placed {
		s.placed = best
		l.emit(Action{Kind: ActionPlaced, Shard: s.n, Epoch: s.epoch, Node: best})
	}
}

func (l *Lease) askOwner(now time.Time, s *shard, o Owner, spare bool) {
	o.Format, o.Before = l.recordFormat(), s.owner.Seq
	s.ask = ask{owner: o, expect: s.owner.Seq, spare: spare, sent: now}
	l.emit(Action{Kind: ActionOwn, Shard: s.n, Expect: s.owner.Seq, Owner: o, Asked: now})
}

// followUp asks the leader about a change that has no answer.
func (l *Lease) followUp(now time.Time, s *shard) {
	if now.Sub(s.ask.sent) >= Timeout {
		l.readOwner(now, s)
	}
}

// readOwner asks the leader who holds a shard. No change is asked before it answers.
func (l *Lease) readOwner(now time.Time, s *shard) {
	s.ask.read, s.ask.sent = true, now
	l.emit(Action{Kind: ActionReadOwner, Shard: s.n, Asked: now})
}

// WroteOwner answers the ActionOwn of a record that was conditional on a sequence.
func (l *Lease) WroteOwner(now time.Time, n int, expect uint64, o Owner, a Answer) {
	s := l.shard[n]
	current := s.ask.expect == expect && s.owner.Seq == expect && s.ask.owner == o
	switch {
	case a.Verdict == fence.OK:
		o.Seq = a.Seq
		s.proved.saw(o.Seq)
		l.owned(now, s, o)
	case !current:
	case a.Verdict == fence.Stale, a.Verdict == fence.Unknown:
		l.readOwner(now, s)
	default: // certainly not written
		s.ask = ask{again: now.Add(pauseMax)}
	}
}

// ReadOwner answers the ActionReadOwner of a shard; o is the zero Owner if there is none.
func (l *Lease) ReadOwner(now time.Time, n int, o Owner, v fence.Verdict) {
	s := l.shard[n]
	l.checked(now, &s.proved, s.owner.Seq, o.Seq, v)
	switch {
	case v != fence.OK:
		s.ask.sent = earlier(s.ask.sent, now.Add(pauseMax-Timeout))
	case o.Seq > s.owner.Seq || o.Seq == s.owner.Seq && o != s.owner:
		l.owned(now, s, o)
	case o.Seq == s.owner.Seq && s.ask.read: // the change is not stored; a copy on its way has the same condition
		s.ask = ask{again: now.Add(pauseMax / 2)}
	}
}
