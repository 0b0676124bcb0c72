package lease

import (
	"cmp"
	"errors"
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/format"
)

// Times of leases. They are measured on this node's monotonic clock, and never compared with another node's. Those of a relay's
// own lease count from when the last confirmed write was asked.
const (
	// Timeout is the time after which the leader of the stream is asked what became of a request, except of a write of the chain.
	Timeout = time.Second

	// AliveInterval is how often the worker of a shard calls Alive, or sooner.
	AliveInterval = 500 * time.Millisecond

	// aliveTimeout is the silence of Alive after which a worker stands still: its shards are released.
	aliveTimeout = 3 * time.Second

	renewInterval = 350 * time.Millisecond

	// revokeWait is for how long another relay's lease must not have changed before it may be revoked. It is longer than
	// the time after which that relay calls what it accepts not durable.
	revokeWait = 1100 * time.Millisecond

	// proofs is how many writes of this relay, asked after the last change of another lease, must have been confirmed
	// before that lease is revoked, one every proofStep at most: the store answers, so the other relay could have renewed. They count anew
	// behind a write that was not confirmed promptly: the other relay may have lost its own at that moment, and repeats it after settleWait.
	proofs    = 3
	proofStep = renewInterval - 50*time.Millisecond
	prompt    = 500 * time.Millisecond

	// revokeLate, and twice the longest that a confirmation took, is how long another lease must not have changed if the store
	// confirms nothing promptly.
	revokeLate = 6 * time.Second

	// settleWait is the time after which the leader of the stream is asked what became of a write. It is shorter than the time
	// in which another relay has proofs.
	settleWait = 500 * time.Millisecond

	// durableSilence is the silence of the store after which accepted changes are called not durable, and batchSilence
	// is how long a batch may wait until they are.
	durableSilence = time.Second
	batchSilence   = 1500 * time.Millisecond

	// ownSilence is the silence of the store after which that of others proves nothing.
	ownSilence = 3*renewInterval + 100*time.Millisecond

	// afterOutage is how long leases are not revoked after a silence of the store that ended service everywhere.
	afterOutage = 5 * time.Second

	// wipedWait is how long a shard of a stream that was made anew is left to the relay that held it before.
	wipedWait = 12 * time.Second

	// lacksWait is for how long the leader of the stream must say that a record is not there which was. It is arbitrary: if a leader that
	// was deposed says so, the relay begins a new incarnation, and its shards are not served for a moment.
	lacksWait = 3 * time.Second

	// floorMax bounds how far below the epochs that others know the sequences of a stream may be that lost writes. A relay writes until they
	// are above; beyond the bound it takes shards all the same. It is arbitrary: an hour of writes at 300 a second.
	floorMax = 1_000_000

	// passedTime is how long a relay gets no shards after it let one pass. It is arbitrary: one that cannot acquire shards
	// costs a second without a holder each time, and one that was only slow has fewer shards for so long.
	passedTime = time.Minute

	// spareStep and spareMax are what a relay waits for those that rank before it.
	spareStep = time.Second
	spareMax  = 1500 * time.Millisecond

	// pause is the least time between two attempts at a request that the store refuses; it doubles up to pauseMax.
	pause    = 10 * time.Millisecond
	pauseMax = 200 * time.Millisecond

	// standstill is the gap between two calls of Advance after which the worker's silence proves nothing.
	standstill = time.Second
)

// A Config is what a Lease is made with.
type Config struct {
	Node  string // name of this relay
	Start string // different for every start of every process

	// Shards are those of the stream, ascending.
	Shards []int

	// Single says that the stream stores messages one by one, and not several of them all or none.
	Single bool

	// Format returns the lowest format that all members of the cluster read; see package format. nil stands for the oldest.
	Format func() uint8

	// Draw returns the number by which relays are ranked for a shard: the one with the highest number should hold it.
	Draw func(node string, shard int) uint64

	// Silence is the silence of the store after which a holder stops serving. 0 means 12 s, which is above the 4 to 9 s of
	// an election in JetStream.
	Silence time.Duration
}

// Validate reports all problems of c at once.
func (c Config) Validate() error {
	var errs []error
	if c.Node == "" {
		errs = append(errs, errors.New("lease: no node name"))
	}
	if c.Start == "" {
		errs = append(errs, errors.New("lease: no id of this start"))
	}
	if c.Draw == nil {
		errs = append(errs, errors.New("lease: nothing that ranks relays"))
	}
	if c.Silence != 0 && c.Silence < revokeWait {
		errs = append(errs, errors.New("lease: the silence that ends service is shorter than the one after which other relays take the shards"))
	}
	return errors.Join(errs...)
}

// A Lease is the lease of one relay in one stream, and what the relay knows of those of the others and of who holds the shards
// of the stream.
//
// Its caller calls the methods for what it hears, then Advance, carries out the actions in order, and calls Advance again at
// NextTimeout at the latest. Answers to requests may come late, more than once, in any order or never.
type Lease struct {
	cfg Config
	out []Action
	was []Action // of the call before, for reuse

	advanced    time.Time // last
	primed      bool      // the records that the stream had are known
	incarnation string
	born        int       // incarnations so far
	replaced    bool      // another process has this relay's name
	proved      proof     // of this relay's own record
	lacking     time.Time // since when the leader says that it does not have what this relay knows
	forgot      bool      // ActionForgot was said, and Wiped was not called since

	chain
	peers map[string]*peer
	order []string // names of peers, sorted
	list  []*shard
	shard map[int]*shard
}

// New returns the lease of a relay that has heard nothing yet.
func New(cfg Config) *Lease {
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	cfg.Silence = cmp.Or(cfg.Silence, 12*time.Second)
	l := &Lease{cfg: cfg, peers: map[string]*peer{}, shard: map[int]*shard{}}
	for _, n := range cfg.Shards {
		s := &shard{n: n}
		l.list = append(l.list, s)
		l.shard[n] = s
	}
	l.bear()
	return l
}

// bear begins an incarnation.
func (l *Lease) bear() {
	l.born++
	l.incarnation = l.cfg.Start + "." + strconv.Itoa(l.born)
	l.chain = chain{queue: l.queue, limit: opKeyframesMax, last: l.last, floor: l.floor}
}

// Rewatch says that the watch begins, again with the last record of each subject. The stream may have lost what this relay knows of it.
func (l *Lease) Rewatch() {
	l.primed = false
	l.forgetProofs()
}

// Primed says that the watch has brought all records that the stream has, and brings the others in order from now on.
func (l *Lease) Primed() { l.primed = true }

// Saw takes the lease of a relay from the watch.
func (l *Lease) Saw(now time.Time, node string, r Record) {
	if node == l.cfg.Node {
		l.proved.saw(r.Seq)
		l.sawOwn(now, r)
		return
	}
	p := l.peers[node]
	if p == nil {
		p = l.meet(node)
	}
	if r.Seq > p.Seq {
		p.Record = r
		p.heard(now)
	} else if r.Seq == p.Seq && r != p.Record {
		l.lost()
	}
	p.proved.saw(r.Seq)
}

// SawOwner takes the record of who holds a shard from the watch.
func (l *Lease) SawOwner(now time.Time, n int, o Owner) {
	if s := l.shard[n]; s != nil {
		s.proved.saw(o.Seq)
		l.owned(now, s, o)
	}
}

// Alive says that the worker of a shard turns, and whether this relay may be given shards. A worker that does not say so every
// AliveInterval loses its shards.
func (l *Lease) Alive(now time.Time, n int, open bool) {
	if s := l.shard[n]; s != nil {
		s.alive, s.open = now, open
	}
}

// Fence says that an epoch of a shard was seen on the bus. A holder of a lower one stops serving.
func (l *Lease) Fence(now time.Time, n int, epoch uint64) {
	if s := l.shard[n]; s != nil && s.epoch != 0 && epoch > s.epoch {
		l.lose(now, s, ReasonEpoch)
		l.readOwner(now, s)
	}
}

// Wiped says that the stream is another one than before, or lacks what it had. Its records follow, and then Primed.
func (l *Lease) Wiped(now time.Time) {
	for _, s := range l.list {
		l.floor = max(l.floor, s.owner.Seq)
		if s.epoch != 0 {
			l.lose(now, s, ReasonWiped)
			s.former = former{epoch: s.last, wiped: true, below: s.last}
		} else if p := l.peers[s.owner.Node]; p != nil && p.lives() {
			s.reserved = now.Add(wipedWait)
		}
		s.owner, s.ask, s.free, s.absence = Owner{}, ask{}, time.Time{}, absence{}
	}
	l.peers, l.order, l.last, l.primed, l.forgot = map[string]*peer{}, nil, 0, false, false
	l.forgetProofs()
	l.bear()
}

// Advance does what is due and returns what to do, which is valid until the next call.
func (l *Lease) Advance(now time.Time) []Action {
	if gap := now.Sub(l.advanced); gap > standstill {
		for _, s := range l.list { // the workers could not speak either
			if !s.alive.IsZero() {
				s.alive = s.alive.Add(min(gap, now.Sub(s.alive)))
			}
		}
	}
	l.advanced = now
	if l.active() {
		l.watchSilence(now)
		if l.primed && !l.forgot && !l.doubts(now) {
			l.judge(now)
			l.place(now)
		}
		l.advanceChain(now)
	}
	out := l.out
	l.out, l.was = l.was[:0], out
	return out
}

// NextTimeout returns when Advance must be called; the zero time means at once.
func (l *Lease) NextTimeout() (time.Time, bool) {
	if len(l.out) > 0 {
		return time.Time{}, true
	}
	if !l.active() {
		return time.Time{}, false
	}
	next := l.chainDue()
	soon := func(at time.Time) {
		if at.After(l.advanced) && at.Before(next) {
			next = at
		}
	}
	for _, name := range l.order {
		p := l.peers[name]
		soon(p.since.Add(revokeWait))
		soon(p.lateAt())
		soon(p.asked.Add(Timeout))
		soon(p.proved.sent.Add(Timeout))
	}
	soon(l.grace)
	soon(l.proved.sent.Add(Timeout))
	for _, s := range l.list {
		soon(s.alive.Add(aliveTimeout))
		soon(s.ask.sent.Add(Timeout))
		soon(s.ask.again)
		soon(s.absence.asked.Add(Timeout))
		soon(s.proved.sent.Add(Timeout))
		soon(s.reserved)
		if !s.free.IsZero() {
			soon(s.free.Add(spareStep))
			soon(s.free.Add(spareMax))
		}
	}
	return next, true
}

// active reports whether the relay takes part: the lease goes on while the watch begins anew.
func (l *Lease) active() bool { return (l.primed || l.joined) && !l.replaced }

func (l *Lease) emit(a Action) { l.out = append(l.out, a) }

// recordFormat returns the format of the records to write, in which 0 stands for the oldest.
func (l *Lease) recordFormat() uint8 {
	if f := format.ToWrite(l.cfg.Format); f > format.Oldest {
		return f
	}
	return 0
}

// An ActionKind is the kind of an Action.
type ActionKind uint8

// The first five ask something of the store, and are answered by calls of the methods that they name. All others report.
const (
	// ActionWrite stores the Record of this relay's lease if the last one has the sequence Expect, and the parts of
	// batches with it. If the store writes several messages all or none, they are one write. Otherwise each keyframe is stored on
	// the same condition, before the record. Again says that it repeats the write of that number. Wrote answers.
	ActionWrite ActionKind = iota + 1

	// ActionReadLease asks the leader of the stream for the lease of Node. ReadLease answers.
	ActionReadLease

	// ActionRevoke stores Record as the lease of Node if the last one has the sequence Expect. Revoked answers.
	ActionRevoke

	// ActionOwn stores Owner as that of Shard if the last one has the sequence Expect. WroteOwner answers.
	ActionOwn

	// ActionReadOwner asks the leader of the stream who holds Shard. ReadOwner answers.
	ActionReadOwner

	// ActionAcquired says that this relay holds Shard in Epoch.
	ActionAcquired

	// ActionLost says that this relay does not hold Shard any longer, that it held in Epoch, for Reason. Batches that were not
	// reported stored are not; those of a write that was under way may be.
	ActionLost

	// ActionPaused says that this relay must not serve Shard before ActionResumed; it still holds it.
	ActionPaused
	ActionResumed

	// ActionDurable says whether what this relay accepts for Shard is stored.
	ActionDurable

	// ActionStored says that the batch Token is stored; ActionFailed, that the shard was lost before that was known.
	ActionStored
	ActionFailed

	// ActionPlaced says that Node should hold Shard, which this relay holds; any relay, if it is empty.
	ActionPlaced

	// ActionSeen says that another relay, Node, holds Shard in Epoch. Node is empty if the record has another format.
	ActionSeen

	// ActionForgot says that the stream lacks records that it had. The caller begins a new watch and calls Wiped.
	ActionForgot

	// ActionReplaced says that another process has this relay's name. The lease does nothing any more.
	ActionReplaced
)

// An Action is what a Lease wants from the store, or reports to its relay.
type Action struct {
	Kind   ActionKind
	Shard  int
	Node   string
	Expect uint64
	Record Record
	Owner  Owner
	Parts  []Part
	Again  bool
	Asked  time.Time // to be returned with the answer

	Epoch   uint64
	Reason  Reason
	Durable bool
	Token   uint64

	// ActionAcquired: Former is the epoch that this relay lost with its lease or with the stream, if no other relay held the shard
	// between; 0 for none. Wiped says that the stream does not have what was stored.
	Former uint64
	Wiped  bool
}

// A Part is a part of a batch: its keyframes from From on, up to but without To.
type Part struct {
	Token    uint64
	From, To int
}

// A Reason is why a relay lost a shard.
type Reason uint8

// The reasons.
const (
	ReasonReleased Reason = iota + 1 // this relay released it
	ReasonTaken                      // another relay holds it
	ReasonEpoch                      // a higher epoch was seen on the bus
	ReasonRevoked                    // another relay revoked the lease
	ReasonWiped                      // the stream was made anew, or lacks what it had
	ReasonHung                       // the worker of the shard stood still
	ReasonReplaced                   // another process has this relay's name
)

// Reasons is how many reasons there are, and 0 for none.
const Reasons = ReasonReplaced + 1

func (r Reason) String() string {
	return [Reasons]string{"", "released", "taken", "higher epoch", "lease revoked", "stream made anew", "worker hangs", "replaced"}[r]
}

// An Answer is the store's answer to a request.
type Answer struct {
	Verdict fence.Verdict
	Seq     uint64 // of what was written
	Partly  bool   // ActionWrite: the record is stored, and some of the keyframes may not be
}
