package cluster

import (
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
)

// A LeasePhase is where a Lease is.
type LeasePhase uint8

// The phases.
const (
	Following   LeasePhase = iota // another holds the shard, or nobody does
	Challenging                   // the holder is silent and its silence is being confirmed
	Acquiring                     // the record that would make this relay the holder is under way
	Holding
	Releasing // this relay gave the shard up, and says so to the store
)

func (p LeasePhase) String() string {
	return [...]string{"following", "challenging", "acquiring", "holding", "releasing"}[p]
}

// A Lease is this relay's part in the question who holds one shard. DESIGN.md
// says why it does what it does.
//
// Its owner calls the methods for what it hears, then Advance, carries out the
// actions in order, and calls Advance again at NextTimeout at the latest.
type Lease struct {
	cfg   LeaseConfig
	phase LeasePhase
	want  bool
	out   []Action
	spare []Action

	holder    Holder // the newest that was seen
	heartbeat Heartbeat
	known     bool // whether own and beat are what the store has, not just zero

	follow follow
	hold   hold

	asked   ActionKind // what the store was asked and has not answered; 0 for nothing
	sent    time.Time  // when
	retryAt time.Time  // the store is not asked before
}

// NewLease returns the lease of a shard of which nothing is known.
func NewLease(cfg LeaseConfig) *Lease {
	if problems := cfg.Validate(); len(problems) > 0 {
		panic("cluster: " + problems[0])
	}
	return &Lease{cfg: cfg.WithDefaults()}
}

// Phase returns where the lease is.
func (l *Lease) Phase() LeasePhase { return l.phase }

// Epoch returns the epoch that this relay holds the shard in; 0 if it does not.
func (l *Lease) Epoch() uint64 {
	if l.phase != Holding && l.phase != Releasing {
		return 0
	}
	return l.hold.epoch
}

// Holder returns the newest record of who holds the shard.
func (l *Lease) Holder() Holder { return l.holder }

// Want says whether the roster wants this relay to hold the shard. It starts and
// ends challenges, but no holding.
func (l *Lease) Want(now time.Time, want bool) {
	l.want = want
	if !want && l.phase == Challenging {
		l.followOn(now)
	}
}

// Release ends a holding in favour of the node to, or of anybody if it is empty.
// A batch that waits is stored first.
func (l *Lease) Release(to string) {
	if l.phase == Holding {
		l.hold.release, l.hold.to = true, to
	}
}

// Store asks to store the batch token. One batch may wait at a time. It is
// reported stored, or the holding lost. It reports false if the shard is not
// held or is being released.
func (l *Lease) Store(now time.Time, token uint64) bool {
	if l.phase != Holding || l.hold.release {
		return false
	}
	if l.hold.waiting {
		panic("cluster: a second batch while one waits")
	}
	l.hold.waiting, l.hold.token, l.hold.since = true, token, now
	return true
}

// Fence says that an epoch was seen on the bus.
func (l *Lease) Fence(now time.Time, epoch uint64) {
	if l.Epoch() != 0 && epoch > l.hold.epoch {
		l.lose(now, ReasonEpoch)
	}
}

// SeenOwn takes a record that the watch brought, which may be late or old.
func (l *Lease) SeenHolder(now time.Time, o Holder) {
	if o.Seq <= l.holder.Seq {
		return
	}
	l.holder, l.known = o, true
	l.changed(now)
	if l.Epoch() != 0 && o.Seq > l.hold.epoch {
		l.lose(now, l.takenReason())
	}
}

// SeenBeat takes a record that the watch brought, which may be late or old.
func (l *Lease) SeenHeartbeat(now time.Time, b Heartbeat) {
	if b.Seq <= l.heartbeat.Seq {
		return
	}
	l.heartbeat = b
	l.changed(now)
}

// Advance returns what is to be done, in order. It is valid until the next
// Advance.
func (l *Lease) Advance(now time.Time) []Action {
	if l.Epoch() != 0 {
		l.holdDeadlines(now)
	}
	if l.asked == 0 && !now.Before(l.retryAt) {
		switch l.phase {
		case Holding, Releasing:
			l.holdStep(now)
		default:
			l.followStep(now)
		}
	}
	out := l.out
	l.out, l.spare = l.spare[:0], out
	return out
}

// NextTimeout returns when Advance must be called; the zero time means at once.
func (l *Lease) NextTimeout() (time.Time, bool) {
	if len(l.out) > 0 {
		return time.Time{}, true
	}
	var next time.Time
	if l.Epoch() != 0 {
		next = l.holdDeadline()
	}
	if l.asked == 0 {
		step, ok := l.followDue()
		if l.Epoch() != 0 {
			step, ok = l.holdDue(), true
		}
		if step = later(step, l.retryAt); ok && step.IsZero() {
			return step, true
		}
		if ok {
			next = earlier(next, step)
		}
	}
	return next, !next.IsZero()
}

// Answer says what became of the action that the store was asked.
func (l *Lease) Answer(now time.Time, a Answer) {
	asked := l.asked
	if asked == 0 {
		panic("cluster: an answer that nobody waits for")
	}
	l.asked = 0
	switch a.Verdict {
	case fence.Busy:
		l.retryAt = now.Add(busyPause)
	case fence.Unreachable, fence.Unknown:
		l.retryAt = now.Add(faultPause)
	}
	switch {
	case l.Epoch() != 0:
		l.holdAnswer(now, asked, a)
	case asked == ActionRead:
		l.followRead(now, a)
	case asked == ActionAcquire:
		l.acquireAnswer(now, a)
	}
	// What was asked by a holding that ended meanwhile tells nothing that a read
	// would not tell better.
}

// ask asks the store.
func (l *Lease) ask(now time.Time, a Action) {
	l.asked, l.sent = a.Kind, now
	l.emit(a)
}

func (l *Lease) emit(a Action) { l.out = append(l.out, a) }

// earlier returns the earlier of two times, of which a zero one does not count.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
