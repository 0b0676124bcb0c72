package replication

import (
	"iter"
	"time"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/replication/view"
)

// An Observer is told what changes in a Replica, after the change. Every state that it sees is
// whole. It must not call the Replica.
type Observer interface {
	Added(s *State)
	Changed(s *State, changed netstate.Mask) // the mask is valid during the call
	Described(s *State)                      // everything but types and values may differ
	Removed(s *State)
	Groups(client string, groups []string) // all groups of the client; none when it left
}

// Bounds and intervals of a Replica.
const (
	bufferBatches = 256 // live batches held during repair
	bufferBytes   = 4 << 20
	askAfter      = 100 * time.Millisecond // wait for an answer before a request is repeated, doubled each time
	askAfterMax   = 2 * time.Second
)

// A Replica is a copy of a space. One goroutine owns it.
//
// The copy is exactly the state of the space at the position of the Replica, except while the
// Replica needs keyframes: then it buffers live batches and applies only keyframes, state by
// state, until an answer is complete.
type Replica struct {
	space string
	obs   Observer

	epoch, seq uint64 // position
	top        uint64 // highest epoch seen
	known      uint64 // highest sequence number reported for that epoch
	broken     bool   // needs keyframes
	open       bool   // may have missed batches without noticing

	states  table[*State]
	refs    []viewRef
	schemas schemas
	asm     assembly // of the batch being applied

	buffer buffer
	ask    asking
	answer answer

	mask    netstate.Mask
	scratch []byte
	stats   ReplicaStats
}

// A viewRef is the meaning of a RefId. The state is looked up when it is first used, because a
// RefId is assigned before its state exists.
type viewRef struct {
	number uint64 // 0 if the RefId is not assigned
	view   int
	st     *State
}

// NewReplica returns an empty replica, which asks for everything.
func NewReplica(space string, obs Observer) *Replica {
	return &Replica{
		space:   space,
		obs:     obs,
		broken:  true,
		states:  newTable[*State](),
		schemas: newSchemas(),
	}
}

// Position returns the last batch that the replica holds.
func (r *Replica) Position() (epoch, seq uint64) { return r.epoch, r.seq }

// Complete reports whether the replica holds every state at its position and knows of no batch
// that it missed.
func (r *Replica) Complete() bool { return r.epoch > 0 && !r.wants() }

// State returns the state with this number, or nil.
func (r *Replica) State(number uint64) *State { return r.states.byNumber[number].visible() }

// ByKey returns the state with this key, or nil.
func (r *Replica) ByKey(key string) *State { return r.states.byKey[key].visible() }

func (s *State) visible() *State {
	if s == nil || s.hidden {
		return nil
	}
	return s
}

// All yields the states in the order of their numbers.
func (r *Replica) All() iter.Seq[*State] {
	return func(yield func(*State) bool) {
		for _, st := range r.states.all {
			if !st.dead && !st.hidden && !yield(st) {
				return
			}
		}
	}
}

// Len returns the number of states, including those that hold groups.
func (r *Replica) Len() int { return len(r.states.byNumber) }

// Groups returns the groups of a client.
func (r *Replica) Groups(client string) []string { return r.states.groups(client) }

// Stats returns the counters, which the Replica keeps updating.
func (r *Replica) Stats() *ReplicaStats { return &r.stats }

// ReplicaStats are the counters of a Replica.
type ReplicaStats struct {
	Batches, Updates, Values uint64 // applied; Values also counts equal ones
	Malformed                uint64 // messages that are not batches
	OldEpoch                 uint64 // batches, replies and heads of a former holder
	Duplicates               uint64 // batches that the replica had already
	Gaps                     uint64 // batches that arrived without their predecessor
	BufferFull               uint64 // batches dropped because the buffer was full
	BadRecords               uint64 // records that were malformed or had an unknown RefId
	Checksums                uint64 // compared
	Divergence               uint64 // views whose checksum differed at an equal position
	RangeRequests            uint64
	KeyframeRequests         uint64
	UnwantedReplies          uint64 // late, repeated, or answers to no request
	Keyframed                uint64 // states that a repair brought or changed
	Epochs                   uint64 // changes of the holder
}

// insert makes st part of the copy, and removes a state with its number or key.
func (r *Replica) insert(st *State) {
	if old := r.states.byNumber[st.Number]; old != nil {
		r.remove(old)
	}
	if old := r.states.byKey[st.Desc.Key]; old != nil {
		r.remove(old)
	}
	r.states.insert(st)
	if st.hidden {
		r.tellGroups(st)
		return
	}
	r.obs.Added(st)
}

// remove removes st from the copy.
func (r *Replica) remove(st *State) {
	r.states.detach(st)
	r.schemas.release(st.schema)
	if st.hidden {
		r.tellGroups(st)
		return
	}
	r.obs.Removed(st)
}

// changed tells the observer that values of st changed.
func (r *Replica) changed(st *State, mask netstate.Mask) {
	if st.hidden {
		r.tellGroups(st)
		return
	}
	r.obs.Changed(st, mask)
}

func (r *Replica) tellGroups(st *State) {
	client, _ := groupsClient(st.Desc.Key)
	r.obs.Groups(client, r.states.groups(client))
}

// sums appends the checksums of all views. It returns nil if there are more than sumsMax.
func (r *Replica) sums() []byte {
	var b []byte
	for _, st := range r.states.all {
		if st.dead {
			continue
		}
		for i, rg := range st.schema.ranges {
			b = appendSums(b, view.Entity(st.Number, i), sums{st.crc(&r.scratch, rg), st.sum})
		}
		if len(b) > sumsMax*sumBytes {
			return nil
		}
	}
	return b
}
