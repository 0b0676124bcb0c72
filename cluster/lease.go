package cluster

import (
	"cmp"
	"encoding/json"
	"errors"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/format"
)

// A LeaseConfig is what a Lease is made with.
type LeaseConfig struct {
	// Node is the name of this relay; others hand shards over to it.
	Node string

	// ID is different for every start of every process, so that a relay can tell its own
	// records from those of its predecessor.
	ID string

	// Format returns the lowest format that all members of the cluster read; see package
	// format. nil stands for the oldest.
	Format func() uint8

	// Silence is the silence of the store after which a holder stops serving. 0 means 12 s,
	// which is above the 4 to 9 s of an election in JetStream.
	Silence time.Duration
}

// Times of a lease. They are measured on this node's monotonic clock, and never compared with
// another node's.
const (
	// LeaseTimeout is the time after which the caller that carries out an action reports that
	// its outcome is unknown.
	LeaseTimeout = time.Second

	// WantInterval is how often the caller repeats Want, or sooner.
	WantInterval = 500 * time.Millisecond

	// wantTimeout is the silence of Want after which a lease is left alone: the worker that
	// should serve the shard stands still. It is that of challengeWait, so that a process that
	// is stopped loses its shards no sooner to itself than to others.
	wantTimeout = 3 * time.Second

	// targetWait is how long the relay to which a shard was released may take to acquire it.
	// It takes milliseconds. The time is arbitrary.
	targetWait = 2 * time.Second

	// renewInterval is how often a holder renews.
	renewInterval = 500 * time.Millisecond

	// challengeWait is how long a challenger must see no change, while the store answers,
	// before it takes a shard. It must be at least twice the sum of renewInterval and
	// LeaseTimeout, or one lost answer costs a living holder its shard.
	challengeWait = 3 * time.Second

	// durableSilence is the silence of the store after which a holder's answers say that they
	// are not durable.
	durableSilence = 1500 * time.Millisecond

	// busyPause is the pause between two attempts if the store says that another write to the
	// same subject is under way, which takes about as long.
	busyPause = time.Millisecond

	// faultPause is the same for a store that cannot be reached. It is arbitrary.
	faultPause = 100 * time.Millisecond
)

// Validate reports all problems of c at once.
func (c LeaseConfig) Validate() error {
	var errs []error
	if c.Node == "" {
		errs = append(errs, errors.New("lease: no node name"))
	}
	if c.ID == "" {
		errs = append(errs, errors.New("lease: no id of this start"))
	}
	if c.Silence != 0 && c.Silence < durableSilence {
		errs = append(errs, errors.New("lease: the silence that ends a lease is shorter than the one that ends durability"))
	}
	return errors.Join(errs...)
}

// An ActionKind is the kind of an Action.
type ActionKind uint8

// The first five ask something of the store. One of them is under way at a time, and each must
// be answered by one call of Answer.
const (
	// ActionRead asks the store's leader for Holder and Heartbeat. The two need not be of one
	// instant, but Holder must be read first.
	ActionRead ActionKind = iota + 1

	// ActionAcquire writes Heartbeat and Holder, both or none, if the last Holder has the
	// sequence ExpectHolder and the last Heartbeat has the sequence ExpectHeartbeat.
	ActionAcquire

	// ActionRenew writes Heartbeat if the last Holder has the sequence ExpectHolder.
	ActionRenew

	// ActionStore writes, all or nothing, the keyframes of the batch Token and Heartbeat, if
	// the last Holder has the sequence ExpectHolder and the last Heartbeat has the sequence
	// ExpectHeartbeat.
	ActionStore

	// ActionRelease writes Holder if the last Holder has the sequence ExpectHolder.
	ActionRelease

	// ActionAcquired says that this relay holds the shard in Epoch.
	ActionAcquired

	// ActionLost says that this relay does not hold the shard any longer that it held in
	// Epoch, for Reason. Batches that were not reported stored are not; one that was under way
	// may be.
	ActionLost

	// ActionDurable says whether the changes that this relay accepts are stored.
	ActionDurable

	// ActionStored says that the batch Token is stored.
	ActionStored
)

// An Action is what a Lease wants from the store, or reports to its relay.
type Action struct {
	Kind ActionKind

	ExpectHolder, ExpectHeartbeat uint64
	Holder                        Holder
	Heartbeat                     Heartbeat
	Token                         uint64

	Epoch   uint64
	Reason  Reason
	Durable bool
	Former  uint64 // of ActionAcquired, see LeaseEvent
	Wiped   bool
	Spare   bool // of ActionAcquired: the relays that rank before this one let the shard pass
}

// A Reason is why a relay lost a shard.
type Reason uint8

// The reasons.
const (
	ReasonReleased Reason = iota + 1 // this relay released it
	ReasonTaken                      // the store says that another relay holds it
	ReasonEpoch                      // a higher epoch was seen on the bus
	ReasonSilence                    // the store was silent for too long
	ReasonWiped                      // the store was made anew
	ReasonHung                       // the worker of the shard stood still, so that Want was not repeated
)

// Reasons is how many reasons there are, and 0 for none.
const Reasons = ReasonHung + 1

func (r Reason) String() string {
	return nameOf(r, "", "released", "taken", "higher epoch", "store silent", "store made anew", "worker hangs")
}

// An Answer is the store's answer to an action.
type Answer struct {
	Verdict   fence.Verdict
	Seq       uint64    // of the Holder or Heartbeat that was written; of the Holder, if both were
	Holder    Holder    // of ActionRead
	Heartbeat Heartbeat // of ActionRead, and with its Seq of ActionAcquire
}

// A LeasePhase is the phase of a Lease.
type LeasePhase uint8

// The phases.
const (
	Following   LeasePhase = iota // another relay holds the shard, or none does
	Challenging                   // the holder is silent and its silence is being confirmed
	Acquiring                     // the record that would make this relay the holder is under way
	Holding
	Releasing // the record that releases the shard is under way
)

// A Lease is this relay's view of the lease of one shard. DESIGN.md says why it does what it
// does.
//
// Its caller calls the methods for what it hears, then Advance, carries out the actions in
// order, and calls Advance again at NextTimeout at the latest.
type Lease struct {
	cfg   LeaseConfig
	phase LeasePhase
	rank  int       // of this relay, or NoRank
	told  time.Time // when Want was called last
	out   []Action
	spare []Action

	holder    Holder    // the newest that was seen
	since     time.Time // when it was seen first
	heartbeat Heartbeat
	known     bool // holder and heartbeat are from the store, and not just zero

	follow follow
	hold   hold
	former former

	asked   ActionKind // the action that the store has not answered; 0 for none
	sent    time.Time  // when the store was asked
	retryAt time.Time  // the store is not asked before
}

// NewLease returns the lease of a shard of which nothing is known.
func NewLease(cfg LeaseConfig) *Lease {
	if err := cfg.Validate(); err != nil {
		panic("cluster: " + err.Error())
	}
	cfg.Silence = cmp.Or(cfg.Silence, 12*time.Second)
	return &Lease{cfg: cfg, rank: NoRank}
}

// Epoch returns the epoch in which this relay holds the shard; 0 if it does not.
func (l *Lease) Epoch() uint64 { return l.hold.epoch }

// NoRank is the rank of a relay that must not acquire a shard.
const NoRank = -1

// Want says how many relays should hold the shard rather than this one, or NoRank; see
// Roster.Rank. It starts and ends challenges, but does not end a lease that this relay holds.
//
// The worker that serves the shard repeats it every WantInterval, whatever the rank. Without that
// for wantTimeout the worker stands still: the lease acquires nothing, and releases what it holds.
func (l *Lease) Want(now time.Time, rank int) {
	l.told = now
	l.setRank(now, rank)
}

func (l *Lease) setRank(now time.Time, rank int) {
	l.rank = rank
	if rank < 0 && l.phase == Challenging {
		l.followOn(now)
	}
}

// hung reports whether the worker of the shard stands still.
func (l *Lease) hung(now time.Time) bool { return now.Sub(l.told) >= wantTimeout }

// spareWait returns how long a relay lets those that rank before it go first. However many of them
// do nothing, a shard does not lie idle for longer than the last of these times.
func spareWait(rank int) time.Duration {
	switch rank {
	case 0:
		return 0
	case 1:
		return time.Second
	}
	return 1500 * time.Millisecond
}

// Release gives the shard to the node successor, or to any relay if that is empty. A batch that
// waits is stored first.
func (l *Lease) Release(successor string) {
	if l.phase == Holding {
		l.hold.releasing, l.hold.successor = true, successor
	}
}

// Store asks to store the batch token. One batch may wait at a time. Either ActionStored or
// ActionLost follows. Store reports false if the shard is not held or is being released.
func (l *Lease) Store(now time.Time, token uint64) bool {
	if l.phase != Holding || l.hold.releasing {
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

// Wiped says that the store certainly is another one than before. A holder begins a new epoch in
// it at once, whatever the roster wants: only this relay still has what was stored. Others leave
// the shard to it for as long as they do not believe a read that is older than what they knew.
func (l *Lease) Wiped(now time.Time) {
	if l.Epoch() != 0 {
		l.lose(now, ReasonWiped)
		l.holder, l.heartbeat, l.known, l.rank = Holder{}, Heartbeat{}, true, 0
	}
	l.former.wiped = true
}

// SeenHolder takes a record that the watch brought, which may be late or old.
func (l *Lease) SeenHolder(now time.Time, h Holder) {
	if h.Seq <= l.holder.Seq {
		return
	}
	l.known = true
	l.seen(now, h)
	l.former.seen(l.cfg.ID, h)
	l.changed(now)
	if l.Epoch() != 0 && h.Seq > l.hold.epoch {
		l.lose(now, l.takenReason())
	}
}

// seen takes a record for the newest.
func (l *Lease) seen(now time.Time, h Holder) {
	if h.Seq != l.holder.Seq || l.since.IsZero() {
		l.since = now
	}
	l.holder = h
}

// SeenHeartbeat takes a record that the watch brought, which may be late or old.
func (l *Lease) SeenHeartbeat(now time.Time, b Heartbeat) {
	if b.Seq <= l.heartbeat.Seq {
		return
	}
	l.heartbeat = b
	l.changed(now)
}

// Advance returns what is to be done, in order. The slice is valid until the next Advance.
func (l *Lease) Advance(now time.Time) []Action {
	if l.Epoch() != 0 {
		l.holdDeadlines(now)
	} else if l.rank >= 0 && l.hung(now) {
		l.setRank(now, NoRank)
	}
	if l.asked == 0 && !now.Before(l.retryAt) {
		if l.Epoch() != 0 {
			l.holdStep(now)
		} else {
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
	var deadline time.Time
	step, ok := l.followDue()
	if l.Epoch() != 0 {
		deadline, step, ok = l.holdDeadline(), l.holdDue(), true
	}
	if l.asked != 0 || !ok {
		return deadline, !deadline.IsZero()
	}
	if step = later(step, l.retryAt); step.IsZero() {
		return step, true
	}
	return earlier(deadline, step), true
}

// Answer takes the store's answer to an action.
func (l *Lease) Answer(now time.Time, a Answer) {
	asked := l.asked
	if asked == 0 {
		panic("cluster: the store answers, but was not asked")
	}
	l.asked = 0
	switch a.Verdict {
	case fence.Busy:
		l.retryAt = now.Add(busyPause)
	case fence.Unreachable, fence.Unknown, fence.TooLarge:
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
	// The answer to a request of a lease that was lost meanwhile says nothing that a read
	// would not say better.
}

// ask asks the store.
func (l *Lease) ask(now time.Time, a Action) {
	l.asked, l.sent = a.Kind, now
	l.emit(a)
}

func (l *Lease) emit(a Action) { l.out = append(l.out, a) }

// earlier returns the earlier of two times, ignoring a zero one.
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

// A Holder is the record that says who holds a shard. The zero Holder says that the shard never
// had one.
type Holder struct {
	// Seq is the sequence of the record in the store, and the epoch of the lease that it
	// began. It is not part of the record.
	Seq uint64 `json:"-"`

	// Format is the form of the record; 0 stands for the oldest.
	Format uint8 `json:"format,omitempty"`

	// Node and ID are the holder and its start.
	Node string `json:"node,omitempty"`
	ID   string `json:"id,omitempty"`

	// Released says that Node released the shard in favour of To, or of any relay if To is
	// empty.
	Released bool   `json:"released,omitempty"`
	To       string `json:"to,omitempty"`
}

// A Heartbeat is the record with which a holder renews. Every durable write of a holder writes
// it too.
type Heartbeat struct {
	Seq    uint64 `json:"-"`                // in the store; 0 if there is none
	Format uint8  `json:"format,omitempty"` // 0 stands for the oldest

	Epoch uint64 `json:"epoch"`
	Write uint64 `json:"write"` // ordinal of the write in the epoch
}

// Append appends the record as it is stored.
func (h Holder) Append(p []byte) []byte { return appendJSON(p, h) }

// Append appends the record as it is stored.
func (b Heartbeat) Append(p []byte) []byte { return appendJSON(p, b) }

// ParseHolder parses a stored record. Fields that this program does not know are skipped. A
// record of another format, or one that cannot be read, is that of an unknown holder: it is left
// alone for as long as its heartbeats change.
func ParseHolder(seq uint64, p []byte) Holder {
	var h Holder
	if json.Unmarshal(p, &h) != nil || h.Format > format.Newest {
		h = Holder{}
	}
	h.Seq = seq
	return h
}

// ParseHeartbeat parses a stored record. One of another format, or one that cannot be read,
// still is a sign of life.
func ParseHeartbeat(seq uint64, p []byte) Heartbeat {
	var b Heartbeat
	if json.Unmarshal(p, &b) != nil || b.Format > format.Newest {
		b = Heartbeat{}
	}
	b.Seq = seq
	return b
}

// recordFormat returns the format of the records to write, in which 0 stands for the oldest.
func (l *Lease) recordFormat() uint8 {
	if f := format.ToWrite(l.cfg.Format); f > format.Oldest {
		return f
	}
	return 0
}

func appendJSON(b []byte, v any) []byte {
	p, err := json.Marshal(v)
	if err != nil {
		panic("cluster: a record cannot be encoded: " + err.Error())
	}
	return append(b, p...)
}
