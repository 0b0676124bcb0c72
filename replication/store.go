package replication

import (
	"time"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/replication/view"
)

// A StoreConfig says how to make a Store.
type StoreConfig struct {
	Space string

	// Epoch numbers the ownership of the space; it is above 0 and above the epoch of
	// every earlier owner.
	Epoch uint64

	// FirstNumber is the first state number that the Store assigns; 0 means 1. It is above
	// all numbers that earlier owners of the space can have assigned, stored or not,
	// because a state number never means two states.
	FirstNumber uint64

	// Volatile disables the queue behind TakeDirty, for an owner that stores nothing.
	Volatile bool

	// Tick is the shortest time between two batches, unless a repair forces one; 0 emits
	// at once.
	Tick time.Duration

	Limits Limits

	// Eye is the eye of every client without one of its own; ClientInEye in its key stands for the client. Without
	// a key there is none. CheckEveryEye must accept it.
	Eye Eye
}

// A Store is the authority of one space. One goroutine owns it.
//
// The Store applies a change to the values at once and marks it; emission turns marks into
// records. A value that changes a hundred times within a tick is therefore emitted once, and
// only the answers that wait for the batch are queued.
type Store struct {
	cfg    StoreConfig
	limits Limits
	next   uint64 // state number

	states  table[*stored]
	schemas schemas
	refs    refAllocator
	batch   batcher
	checks  checks

	expiries expiries

	unstored durableQueue

	sessions map[string]string    // client by session
	clients  map[string]*presence // by name
	clock    writeClock
	absent   refusedEvents // of clients without a session in the space
	kicks    kicks

	records records

	setOrder setOrder

	journal journal
	edit    edit
	scratch []byte
	sums    sumCache
	stats   StoreStats
}

// A stored is one state of a Store.
type stored struct {
	State
	dirty netstate.Mask // values to emit
	said  *said
	refs  []view.RefID // by view, once introduced

	introduced bool // replicas know the state
	redescribe bool // the description changed since the last batch
	queued     bool // in batcher.changed
	unstored   bool // in Store.unstored

	stage uint8 // of check: index into checkDelays
	check check

	follower *stored // that a publisher set next the last time; it may be gone

	expiry *expiry // nil for a state that never had a time to live

	owned *ownership // of a state that a client made
	marks []writeMark
}

// NewStore returns an empty store. The limits must be valid.
func NewStore(cfg StoreConfig) *Store {
	if problems := cfg.Limits.Validate(); len(problems) > 0 {
		panic("replication: store with invalid limits: " + problems[0])
	}
	if cfg.Epoch == 0 {
		panic("replication: store without an epoch")
	}
	s := &Store{
		cfg:      cfg,
		limits:   cfg.Limits.withDefaults(),
		next:     max(cfg.FirstNumber, 1),
		states:   newTable[*stored](),
		schemas:  newSchemas(),
		checks:   newChecks(),
		expiries: newExpiries(),
		batch:    batcher{epoch: cfg.Epoch, durable: true},
		unstored: durableQueue{off: cfg.Volatile},
		sessions: make(map[string]string),
		clients:  make(map[string]*presence),
	}
	s.records = records{store: s, users: make(map[string]int)}
	return s
}

// Advance returns the outputs that are due, in the order in which the caller must send them.
// The slice is valid until the next Advance; the bytes of batches are never changed.
func (s *Store) Advance(now time.Time) []Output {
	s.expire(now)
	s.kicks.repeat(now, s)
	switch {
	case s.Pending():
		if !now.Before(s.batch.emitted.Add(s.cfg.Tick)) {
			s.emit(now)
		}
	case s.checks.due(now):
		s.emit(now)
	}
	return s.batch.take()
}

// NextTimeout returns when the owner must call Advance; the zero time means at once.
func (s *Store) NextTimeout() (time.Time, bool) {
	if len(s.batch.ready) > 0 {
		return time.Time{}, true
	}
	if s.Pending() {
		return s.batch.emitted.Add(s.cfg.Tick), true
	}
	next, ok := s.checks.next()
	if at, expires := s.expiries.next(); expires && (!ok || at.Before(next)) {
		next, ok = at, true
	}
	if at, kicked := s.kicks.next(); kicked && (!ok || at.Before(next)) {
		next, ok = at, true
	}
	return next, ok
}

// Position returns the epoch and the sequence number of the last batch.
func (s *Store) Position() (epoch, seq uint64) { return s.batch.epoch, s.batch.seq }

// Pending reports whether something changed since the batch at Position.
func (s *Store) Pending() bool { return s.batch.pending() }

// SetDurable sets what answers say about the durable store; true at first.
func (s *Store) SetDurable(durable bool) { s.batch.durable = durable }

// Trace copies a trace block of view.TraceSize bytes into the batches that carry the pending
// changes. It has no effect if nothing is pending or the batches have a trace block already.
func (s *Store) Trace(block []byte) {
	if len(block) == view.TraceSize && len(s.batch.trace) == 0 && s.Pending() {
		s.batch.trace = append(s.batch.trace, block...)
	}
}

// full reports whether the number of outputs that wait for a batch has reached its limit.
func (s *Store) full() bool { return len(s.batch.waiting) >= s.limits.Waiting }

// StoreStats are the counters of a Store.
type StoreStats struct {
	Publishes, PublishErrors uint64 // messages; ops that failed
	Writes, WritesRefused    uint64
	WritesStale              uint64 // repeated or overtaken writes, answered ok
	ValuesOutOfRange         uint64 // refused values of clients: below min or above max
	ValuesNotFinite          uint64 // refused values of clients: NaN or infinite
	ValuesTooOften           uint64 // refused values of clients: above their rate
	RefusedUntold            uint64 // refused events that were left out, see refusedPause
	ValuesChanged            uint64 // marked for emission
	ValuesFiltered           uint64 // within precision of the emitted value
	Batches, BatchBytes      uint64
	Checksums                uint64 // records
	Expired                  uint64 // states whose time to live was over
	RepairWhole              uint64 // states and views that answers had in whole
	RepairMalformed          uint64
	RepairForeign            uint64 // requests for a later epoch
	Busy                     uint64 // publishes and writes answered busy
	SessionsRefused          uint64 // joins beyond the limit
	EyesRefused              uint64 // the eye of all clients was not stored, because no view was left
	States, Views            uint64 // current
}

// Stats returns the counters, which the Store keeps updating.
func (s *Store) Stats() *StoreStats {
	s.stats.States = uint64(len(s.states.byKey))
	s.stats.Views = uint64(s.states.views)
	return &s.stats
}

// refused counts a value of a client that the Store refused.
func (s *StoreStats) refused(r Refusal) {
	switch r {
	case RefusedMin, RefusedMax:
		s.ValuesOutOfRange++
	case RefusedFinite:
		s.ValuesNotFinite++
	case RefusedRate:
		s.ValuesTooOften++
	}
}
