package replication

import (
	"cmp"
	"hash/crc32"
	"iter"
	"slices"
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

	states  map[uint64]*State
	byKey   map[string]*State
	order   []*State // by number; dead states stay until remove sweeps them
	dead    int      // in order
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
		states:  make(map[uint64]*State),
		byKey:   make(map[string]*State),
		schemas: newSchemas(),
	}
}

// Position returns the last batch that the replica holds.
func (r *Replica) Position() (epoch, seq uint64) { return r.epoch, r.seq }

// Complete reports whether the replica holds every state at its position and knows of no batch
// that it missed.
func (r *Replica) Complete() bool { return r.epoch > 0 && !r.wants() }

// State returns the state with this number, or nil.
func (r *Replica) State(number uint64) *State { return r.states[number].visible() }

// ByKey returns the state with this key, or nil.
func (r *Replica) ByKey(key string) *State { return r.byKey[key].visible() }

func (s *State) visible() *State {
	if s == nil || s.hidden {
		return nil
	}
	return s
}

// All yields the states in the order of their numbers.
func (r *Replica) All() iter.Seq[*State] {
	return func(yield func(*State) bool) {
		for _, st := range r.order {
			if !st.dead && !st.hidden && !yield(st) {
				return
			}
		}
	}
}

// Len returns the number of states, including those that hold groups.
func (r *Replica) Len() int { return len(r.states) }

// Groups returns the groups of a client.
func (r *Replica) Groups(client string) []string {
	st := r.byKey[groupsKey(client)]
	if st == nil {
		return nil
	}
	return parseGroups(st.Values.Value(0))
}

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
	if old := r.states[st.Number]; old != nil {
		r.remove(old)
	}
	if old := r.byKey[st.Desc.Key]; old != nil {
		r.remove(old)
	}
	r.states[st.Number] = st
	r.byKey[st.Desc.Key] = st
	at := len(r.order)
	if at > 0 && r.order[at-1].Number >= st.Number {
		at, _ = slices.BinarySearchFunc(r.order, st.Number, func(s *State, n uint64) int { return cmp.Compare(s.Number, n) })
	}
	r.order = slices.Insert(r.order, at, st)
	if st.hidden {
		r.tellGroups(st)
		return
	}
	r.obs.Added(st)
}

// remove removes st from the copy.
func (r *Replica) remove(st *State) {
	st.dead = true
	delete(r.states, st.Number)
	delete(r.byKey, st.Desc.Key)
	r.schemas.release(st.schema)
	if r.dead++; r.dead > 64 && r.dead*2 > len(r.order) {
		r.order = slices.DeleteFunc(slices.Clone(r.order), func(s *State) bool { return s.dead })
		r.dead = 0
	}
	if !st.hidden {
		r.obs.Removed(st)
		return
	}
	client, _ := groupsClient(st.Desc.Key)
	r.obs.Groups(client, nil)
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
	r.obs.Groups(client, parseGroups(st.Values.Value(0)))
}

// sums appends the checksums of all views. It returns nil if there are more than sumsMax.
func (r *Replica) sums() []byte {
	var b []byte
	for _, st := range r.order {
		if st.dead {
			continue
		}
		for i, rg := range st.schema.ranges {
			var crc uint32
			crc, r.scratch = st.crc(r.scratch, rg)
			b = appendSums(b, view.Entity(st.Number, i), sums{crc, st.sum})
		}
		if len(b) > sumsMax*sumBytes {
			return nil
		}
	}
	return b
}

// A State is a replica's copy of one state. Others may change only Data.
type State struct {
	Number uint64
	Desc   *Description
	Values *netstate.State // a null value holds its substitute
	Nulls  netstate.Mask   // of length 0 if no value is nullable
	Data   any             // belongs to the observer

	schema *schema
	sum    uint32 // CRC-32 of the Describe
	round  uint32 // of the last repair that mentioned it
	hidden bool   // the groups of a client
	dead   bool   // removed
}

// IsNull reports whether value i is null.
func (s *State) IsNull(i int) bool { return len(s.Nulls) > 0 && s.Nulls.Has(i) }

// set changes one value and reports whether it was different. It allocates only if a string or
// data value is longer than every earlier one.
func (s *State) set(i int, value []byte, null bool) bool {
	if null {
		value = s.schema.defs[i].Substitute()
	}
	changed := s.Values.Set(i, value)
	if len(s.Nulls) == 0 || null == s.Nulls.Has(i) {
		return changed
	}
	if null {
		s.Nulls.Set(i)
	} else {
		s.Nulls.Clear(i)
	}
	return true
}

// crc returns the checksum of one view. It encodes the view into b.
func (s *State) crc(b []byte, r view.Range) (uint32, []byte) {
	b = view.AppendKeyframe(b[:0], s.Values, s.Nulls, s.schema.fields, r)
	return crc32.ChecksumIEEE(b), b
}
