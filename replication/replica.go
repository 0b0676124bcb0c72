package replication

import (
	"hash/crc32"
	"iter"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/replication/view"
)

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

func (c ReplicaConfig) withDefaults() ReplicaConfig {
	if c.BufferBatches == 0 {
		c.BufferBatches = 256
	}
	if c.BufferBytes == 0 {
		c.BufferBytes = 4 << 20
	}
	if c.AskAfter == 0 {
		c.AskAfter = 100 * time.Millisecond
	}
	if c.AskAfterMax == 0 {
		c.AskAfterMax = 2 * time.Second
	}
	return c
}

// A Replica is a copy of a space. It is owned by one goroutine.
//
// It holds exactly what its position says, except while it needs keyframes:
// then it holds live batches back and only takes keyframes, state by state,
// until an answer is complete.
type Replica struct {
	space string
	cfg   ReplicaConfig
	obs   Observer

	epoch, seq uint64 // position
	top        uint64 // highest epoch seen
	known      uint64 // highest seq of that epoch heard of
	broken     bool   // needs keyframes
	open       bool   // may have missed something without a trace

	states  map[uint64]*State
	byKey   map[string]*State
	order   []*State // by number; has dead ones until swept
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

// A viewRef is what a RefId stands for. The state is looked up when first used,
// because a RefId is assigned before its state exists.
type viewRef struct {
	number uint64 // 0 if the RefId is not assigned
	view   int
	st     *State
}

// NewReplica returns a replica that knows nothing and wants everything.
func NewReplica(space string, cfg ReplicaConfig, obs Observer) *Replica {
	r := &Replica{
		space:   space,
		cfg:     cfg.withDefaults(),
		obs:     obs,
		broken:  true,
		states:  make(map[uint64]*State),
		byKey:   make(map[string]*State),
		schemas: newSchemas(),
	}
	r.buffer.batches, r.buffer.bytes = r.cfg.BufferBatches, r.cfg.BufferBytes
	return r
}

// Position returns the last batch that the replica holds.
func (r *Replica) Position() (epoch, seq uint64) { return r.epoch, r.seq }

// Complete reports whether the replica holds every state at its position and
// knows of nothing that it missed.
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

// Len returns the number of states, those that hold groups included.
func (r *Replica) Len() int { return len(r.states) }

// Groups returns the groups of a client.
func (r *Replica) Groups(client string) []string {
	st := r.byKey[groupsKey(client)]
	if st == nil {
		return nil
	}
	return parseGroups(st.Values.Value(0))
}

// Stats returns the counters, which go on counting.
func (r *Replica) Stats() *ReplicaStats { return &r.stats }

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
	Divergence               uint64 // views whose checksum differed at an equal position
	RangeRequests            uint64
	KeyframeRequests         uint64
	UnwantedReplies          uint64 // late, repeated, or never asked for
	Keyframed                uint64 // states that a repair brought or changed
	Epochs                   uint64 // changes of the holder
}

// insert makes st part of the copy. A state with its number or key ends.
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
		at, _ = slices.BinarySearchFunc(r.order, st.Number, func(s *State, n uint64) int { return compare(s.Number, n) })
	}
	r.order = slices.Insert(r.order, at, st)
	if st.hidden {
		r.tellGroups(st)
		return
	}
	r.obs.Added(st)
}

// remove ends st.
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

// changed tells the observer about values of st.
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

// sums appends checksums of all views, or nothing if that would be too much.
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

// A State is a replica's copy of one state. Only Data may be changed by others.
type State struct {
	Number uint64
	Desc   *Description
	Values *netstate.State // a null value holds its substitute
	Nulls  netstate.Mask   // of length 0 if no value is nullable
	Data   any             // the observer's

	schema *schema
	sum    uint32 // CRC-32 of the Describe
	round  uint32 // of the last repair that mentioned it
	hidden bool   // the groups of a client
	dead   bool   // removed
}

// IsNull reports whether value i is null.
func (s *State) IsNull(i int) bool { return len(s.Nulls) > 0 && s.Nulls.Has(i) }

// set changes one value and reports whether it was different. It allocates
// nothing unless a string or data value is longer than ever before.
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

// crc returns the checksum of one view, using b to encode it.
func (s *State) crc(b []byte, r view.Range) (uint32, []byte) {
	b = view.AppendKeyframe(b[:0], s.Values, s.Nulls, s.schema.fields, r)
	return crc32.ChecksumIEEE(b), b
}
