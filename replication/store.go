package replication

import (
	"iter"
	"time"

	"github.com/dnprelay/dnprelay/dnp/netstate"
)

// StoreConfig is what a Store is made with.
type StoreConfig struct {
	Space string

	// Epoch is the number of this holding; it must be above 0 and above that of
	// every earlier holding of the space.
	Epoch uint64

	// FirstNumber is the first state number to give; 0 means 1. Numbers of
	// restored states raise it, see Restore.
	FirstNumber uint64

	// Tick is the shortest time between two batches that were not forced by a
	// repair; 0 emits at once.
	Tick time.Duration

	Limits Limits
}

// A Store is the authority of one space. It is owned by one goroutine.
type Store struct{ cfg StoreConfig }

// NewStore returns an empty store. The limits must be valid.
func NewStore(cfg StoreConfig) *Store { return &Store{cfg: cfg} }

// Publish applies a publisher's message. The answer comes out of Advance.
// Nothing of p is kept except the bytes of messages, farewells and substitutes.
func (s *Store) Publish(now time.Time, p Publish) {}

// Write applies the request of an edge. The result comes out of Advance.
// Nothing of w is kept.
func (s *Store) Write(now time.Time, w Write) {}

// Join says that a session of a client is in the space.
func (s *Store) Join(client, session string) {}

// Leave says that it is not. With a client's last session its groups are
// forgotten; with each session the states that it made.
func (s *Store) Leave(client, session string) {}

// Sessions calls yield for every session, in no order.
func (s *Store) Sessions() iter.Seq2[string, string] {
	return func(func(client, session string) bool) {}
}

// Advance returns what is to be sent, in the order in which it must be sent.
// It is valid until the next call of any method; the bytes of batches for ever.
func (s *Store) Advance(now time.Time) []Output { return nil }

// NextTimeout returns when Advance must be called; the zero time means at once.
func (s *Store) NextTimeout() (time.Time, bool) { return time.Time{}, false }

// Repair answers a repair request with 1 to n messages, to be sent in order
// after everything that Advance returned. A nil answer means that the request
// is malformed or meant for a later holder. Call Advance afterwards.
func (s *Store) Repair(now time.Time, request []byte) (parts [][]byte) { return nil }

// Position returns the epoch and the number of the last batch.
func (s *Store) Position() (epoch, seq uint64) { return 0, 0 }

// SetDurable sets what answers say about the durable store; true at first.
func (s *Store) SetDurable(durable bool) {}

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
	Values *netstate.State
	Nulls  netstate.Mask // empty mask of length 0 if no value is nullable
}

// IsNull reports whether value i is null.
func (l *Listed) IsNull(i int) bool { return len(l.Nulls) > 0 && l.Nulls.Has(i) }

// Get returns one state.
func (s *Store) Get(key string) (Listing, *Error) { return Listing{}, nil }

// List returns at most max states in the order of their keys, beginning after
// the key after.
func (s *Store) List(after string, max int) Listing { return Listing{} }

// A Durable is one state as it is to be stored.
type Durable struct {
	Number uint64
	Data   []byte // Describe and all keyframes; nil if the state was removed
}

// TakeDirty moves up to max states that changed since they were last taken,
// oldest change first, to the end of b. The caller owns their bytes. Give those
// back with MarkDirty that could not be stored.
func (s *Store) TakeDirty(b []Durable, max int) []Durable { return b }

// MarkDirty says that a state taken by TakeDirty was not stored.
func (s *Store) MarkDirty(number uint64) {}

// DirtySince returns since when the oldest change waits to be stored.
func (s *Store) DirtySince() (time.Time, bool) { return time.Time{}, false }

// Restore brings a state back as it was stored. It must be called before the
// first Publish, Write or Advance. Every call, also one with nil data for a
// removed state, makes the store give only numbers beyond number + 2^20.
func (s *Store) Restore(number uint64, data []byte) error { return nil }

// Stats returns the counters, which go on counting.
func (s *Store) Stats() *StoreStats { return nil }

// StoreStats are the counters of a Store.
type StoreStats struct {
	Publishes, PublishErrors uint64 // messages; ops that failed
	Writes, WritesRefused    uint64
	WritesStale              uint64 // repeated or overtaken writes, answered ok
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
