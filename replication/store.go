package replication

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/replication/view"
)

// StoreConfig is what a Store is made with.
type StoreConfig struct {
	Space string

	// Epoch is the number of this holding; it must be above 0 and above that of
	// every earlier holding of the space.
	Epoch uint64

	// FirstNumber is the first state number to give; 0 means 1. It must be beyond
	// all that earlier holders of the space can have given, stored or not, because
	// a state number never means two states.
	FirstNumber uint64

	// Volatile says that nobody calls TakeDirty, so that nothing is kept for it.
	Volatile bool

	// Tick is the shortest time between two batches that were not forced by a
	// repair; 0 emits at once.
	Tick time.Duration

	Limits Limits
}

// A Store is the authority of one space. It is owned by one goroutine.
//
// Changes are applied to the values at once and marked; emission turns marks
// into records. So a value that changes a hundred times within a tick is
// emitted once, and nothing is queued but the answers that wait for the batch.
type Store struct {
	cfg    StoreConfig
	limits Limits
	seq    uint64 // of the last batch
	next   uint64 // state number

	byKey    map[string]*stored
	byNumber map[uint64]*stored
	all      []*stored // by number; has dead ones until swept
	dead     int       // in all
	keys     []string  // sorted; nil if it must be made
	schemas  schemas
	refs     refAllocator

	sessions map[string]string    // client by session
	clients  map[string]*presence // by name

	began     time.Time // first write of a client
	strangers told      // of clients that have no session here

	changed    []*stored // have something to emit, in the order of their first change
	removed    []*stored // end with the next batch
	waiting    []Output  // leave behind the next batch
	out        []Output
	spare      []Output // the out before, reused
	emitted    time.Time
	trace      []byte // of the next batches; empty if nothing in them is sampled
	notDurable bool

	journal  journal
	edit     edit
	records  []byte // of the batch being built
	scratch  []byte
	ring     ring
	checks   checkHeap
	unstored durableQueue
	stats    StoreStats
}

// A stored is one state of a Store.
type stored struct {
	number uint64
	desc   Description
	schema *schema
	values *netstate.State
	nulls  netstate.Mask // nil if no value is nullable
	dirty  netstate.Mask // to be emitted
	refs   []view.RefID  // by view, once introduced
	sum    uint32        // CRC-32 of the Describe

	introduced bool // replicas know it
	redescribe bool // its description changed since
	queued     bool // in Store.changed
	dead       bool // removed
	unstored   bool // in Store.unstored

	check check
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
	return &Store{
		cfg:      cfg,
		limits:   cfg.Limits.withDefaults(),
		next:     max(cfg.FirstNumber, 1),
		byKey:    make(map[string]*stored),
		byNumber: make(map[uint64]*stored),
		schemas:  newSchemas(),
		sessions: make(map[string]string),
		clients:  make(map[string]*presence),
	}
}

// Advance returns what is to be sent, in the order in which it must be sent.
// It is valid until the next Advance; the bytes of batches for ever.
func (s *Store) Advance(now time.Time) []Output {
	switch {
	case s.Pending():
		if !now.Before(s.emitted.Add(s.cfg.Tick)) {
			s.emit(now)
		}
	case s.checks.due(now):
		s.emit(now)
	}
	out := s.out
	clear(s.spare)
	s.out, s.spare = s.spare[:0], out
	return out
}

// NextTimeout returns when Advance must be called; the zero time means at once.
func (s *Store) NextTimeout() (time.Time, bool) {
	if len(s.out) > 0 {
		return time.Time{}, true
	}
	if s.Pending() {
		return s.emitted.Add(s.cfg.Tick), true
	}
	return s.checks.next()
}

// Position returns the epoch and the number of the last batch.
func (s *Store) Position() (epoch, seq uint64) { return s.cfg.Epoch, s.seq }

// SetDurable sets what answers say about the durable store; true at first.
func (s *Store) SetDurable(durable bool) { s.notDurable = !durable }

// Stats returns the counters, which go on counting.
func (s *Store) Stats() *StoreStats {
	s.stats.States = uint64(len(s.byKey))
	s.stats.Views = uint64(s.refs.live)
	return &s.stats
}

// Pending reports whether something changed that replicas at Position do not have yet.
func (s *Store) Pending() bool { return len(s.changed) > 0 || len(s.removed) > 0 }

// Trace puts a trace block of view.TraceSize bytes, which is copied, into the batches
// that carry what is pending. It has no effect if nothing is, or if they have one.
func (s *Store) Trace(block []byte) {
	if len(block) == view.TraceSize && len(s.trace) == 0 && s.Pending() {
		s.trace = append(s.trace, block...)
	}
}

// send puts o behind everything that changed so far.
func (s *Store) send(o Output) {
	if s.Pending() {
		s.waiting = append(s.waiting, o)
		return
	}
	s.out = append(s.out, s.stamped(o))
}

// full reports whether as many wait for a batch as may.
func (s *Store) full() bool { return len(s.waiting) >= s.limits.Waiting }

// stamped returns o with the current position.
func (s *Store) stamped(o Output) Output {
	switch o.Kind {
	case OutputAnswer:
		o.Answer.Epoch, o.Answer.Seq, o.Answer.Durable = s.cfg.Epoch, s.seq, !s.notDurable
	case OutputWrite:
		o.Write.Epoch, o.Write.Seq = s.cfg.Epoch, s.seq
	case OutputEvent:
		o.Event.Epoch, o.Event.Seq = s.cfg.Epoch, s.seq
	}
	return o
}

// mark queues st for emission.
func (s *Store) mark(st *stored) {
	if !st.queued {
		st.queued = true
		s.changed = append(s.changed, st)
	}
}

// Listing is part of a space as its authority sees it.
type Listing struct {
	Epoch, Seq uint64
	States     []Listed
	After      string // key to continue after; empty if this is all
}

// A Listed state is valid until the next call of any method of the Store.
type Listed struct {
	Number uint64
	Desc   *Description
	Values *netstate.State // a null value holds its substitute
	Nulls  netstate.Mask   // of length 0 if no value is nullable
}

// IsNull reports whether value i is null.
func (l *Listed) IsNull(i int) bool { return len(l.Nulls) > 0 && l.Nulls.Has(i) }

// Get returns one state.
func (s *Store) Get(key string) (Listing, *Error) {
	st, err := s.lookup(key)
	if err != nil {
		return Listing{}, err
	}
	return Listing{Epoch: s.cfg.Epoch, Seq: s.seq, States: []Listed{st.listed()}}, nil
}

// List returns at most that many states, at least one, in the order of their keys,
// beginning after the key after.
func (s *Store) List(after string, most int) Listing {
	keys := s.sortedKeys()
	i, found := slices.BinarySearch(keys, after)
	if found {
		i++
	}
	n := min(len(keys)-i, max(most, 1))
	l := Listing{Epoch: s.cfg.Epoch, Seq: s.seq, States: make([]Listed, n)}
	for j, key := range keys[i : i+n] {
		l.States[j] = s.byKey[key].listed()
	}
	if i+n < len(keys) {
		l.After = keys[i+n-1]
	}
	return l
}

func (st *stored) listed() Listed {
	return Listed{Number: st.number, Desc: &st.desc, Values: st.values, Nulls: st.nulls}
}

// sortedKeys returns the keys that anybody may see, sorted.
func (s *Store) sortedKeys() []string {
	if s.keys == nil {
		s.keys = make([]string, 0, len(s.byKey))
		for key := range s.byKey {
			if firstToken(key) != groupsToken {
				s.keys = append(s.keys, key)
			}
		}
		slices.Sort(s.keys)
	}
	return s.keys
}

// StoreStats are the counters of a Store.
type StoreStats struct {
	Publishes, PublishErrors uint64 // messages; ops that failed
	Writes, WritesRefused    uint64
	WritesStale              uint64 // repeated or overtaken writes, answered ok
	ValuesOutOfRange         uint64 // that clients wrote and that were refused: below min or above max
	ValuesNotFinite          uint64 // NaN or infinite
	ValuesTooOften           uint64 // above their rate
	RefusedUntold            uint64 // refused events that were left out, see refusedPause
	ValuesChanged            uint64 // marked for emission
	ValuesFiltered           uint64 // within precision of what was emitted
	Batches, BatchBytes      uint64
	Checksums                uint64 // records
	Ranges, Keyframes        uint64 // repair answers by kind
	RepairMalformed          uint64
	RepairForeign            uint64 // requests for a later epoch
	Busy                     uint64 // publishes and writes answered busy
	SessionsRefused          uint64 // joins beyond the limit
	States, Views            uint64 // current
}

// refused counts a value that a client wrote and that was refused.
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
