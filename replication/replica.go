package replication

import (
	"iter"
	"time"

	"github.com/dnprelay/dnprelay/dnp/netstate"
)

// A State is a replica's copy of one state. Only Data may be changed by others.
type State struct {
	Number uint64
	Desc   *Description
	Values *netstate.State // a null value holds its substitute
	Nulls  netstate.Mask   // of length 0 if no value is nullable
	Data   any             // the observer's
}

// IsNull reports whether value i is null.
func (s *State) IsNull(i int) bool { return len(s.Nulls) > 0 && s.Nulls.Has(i) }

// An Observer is told what changes in a Replica, after it changed. States are
// whole whenever it is called. It must not call the Replica.
type Observer interface {
	Added(s *State)
	Changed(s *State, changed netstate.Mask) // the mask is valid during the call
	Described(s *State)                      // everything but types and values may differ
	Removed(s *State)
	Groups(client string, groups []string) // all groups of the client; none when it left
}

// ReplicaConfig is what a Replica is made with. The zero value is usable.
type ReplicaConfig struct {
	BufferBatches int           // live batches held during repair; 256
	BufferBytes   int           // and their bytes; 4 MiB
	AskAfter      time.Duration // time without an answer after which a request is repeated, doubled each time; 100 ms
	AskAfterMax   time.Duration // 2 s
}

// A Replica is a copy of a space. It is owned by one goroutine.
type Replica struct{}

// NewReplica returns a replica that knows nothing and wants everything.
func NewReplica(space string, cfg ReplicaConfig, obs Observer) *Replica { return &Replica{} }

// Apply takes a live batch. The replica may keep it, so it must not change.
func (r *Replica) Apply(now time.Time, batch []byte) {}

// ApplyReply takes one message of the answer to a repair request. The replica
// may keep it, so it must not change.
func (r *Replica) ApplyReply(now time.Time, part []byte) {}

// ApplyHead takes the holder's word on how far the space is.
func (r *Replica) ApplyHead(now time.Time, epoch, seq uint64) {}

// Reconnected says that messages may have been lost without a trace.
func (r *Replica) Reconnected(now time.Time) {}

// Advance returns a request to send to the holder, if one is due. The caller
// owns it.
func (r *Replica) Advance(now time.Time) (request []byte, ok bool) { return nil, false }

// NextTimeout returns when Advance must be called; the zero time means at once.
func (r *Replica) NextTimeout() (time.Time, bool) { return time.Time{}, false }

// Position returns the last batch that the replica holds.
func (r *Replica) Position() (epoch, seq uint64) { return 0, 0 }

// Complete reports whether the replica holds every state at its position and
// knows of nothing that it missed.
func (r *Replica) Complete() bool { return false }

// State returns the state with this number, or nil.
func (r *Replica) State(number uint64) *State { return nil }

// ByKey returns the state with this key, or nil.
func (r *Replica) ByKey(key string) *State { return nil }

// Len returns the number of states.
func (r *Replica) Len() int { return 0 }

// All yields the states in the order of their numbers.
func (r *Replica) All() iter.Seq[*State] { return func(func(*State) bool) {} }

// Groups returns the groups of a client. The caller must not change them.
func (r *Replica) Groups(client string) []string { return nil }

// Stats returns the counters, which go on counting.
func (r *Replica) Stats() *ReplicaStats { return nil }

// ReplicaStats are the counters of a Replica.
type ReplicaStats struct {
	Batches, Updates, Values uint64 // applied; Values also counts equal ones
	Malformed                uint64 // messages that are not batches
	OldEpoch                 uint64 // batches, replies and heads of a former holder
	Duplicates               uint64 // batches that the replica had
	Gaps                     uint64 // batches that came without their predecessor
	BufferFull               uint64 // batches dropped because the buffer was full
	BadRecords               uint64 // records that were malformed or had an unknown RefId
	Checksums                uint64 // compared
	Divergence               uint64 // states whose checksum differed at an equal position
	RangeRequests            uint64
	KeyframeRequests         uint64
	UnwantedReplies          uint64 // late, repeated, or never asked for
	Keyframed                uint64 // states that a repair brought
	Epochs                   uint64 // changes of the holder
}
