package replication

import (
	"iter"
	"strings"
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

	// Interest tells an interest that is there, changed, or gone, and then is nil, as one that this release cannot
	// read. A state may come before its interest.
	Interest(name string, x *Interest)

	// Eyes tells that the eyes of a client changed, or of every client, if client is empty: see Replica.Eyes.
	Eyes(client string)
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
	doubt  doubt

	strict bool // an answer to a request for keyframes or states is being applied
	faulty bool // that answer has a bad record

	witness Witness
	from    Witnessed // what witnesses are told of the position of the records under way

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

// Whole reports whether the replica holds every state at its position. Unlike one that is Complete, it
// may have missed later batches.
func (r *Replica) Whole() bool { return r.epoch > 0 && !r.broken }

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

// Len returns the number of states, including records.
func (r *Replica) Len() int { return len(r.states.byNumber) }

// Groups returns the groups of a client.
func (r *Replica) Groups(client string) []string { return r.states.groups(client) }

// Stats returns the counters, which the Replica keeps updating.
func (r *Replica) Stats() *ReplicaStats { return &r.stats }

// ReplicaStats are the counters of a Replica.
type ReplicaStats struct {
	Batches          uint64 // applied
	Malformed        uint64 // messages that are not batches
	OldEpoch         uint64 // batches, replies and heads of a former holder
	Duplicates       uint64 // batches that the replica had already
	Gaps             uint64 // batches that arrived without their predecessor
	BufferFull       uint64 // batches dropped because the buffer was full
	BadRecords       uint64 // records that were malformed or had an unknown RefId
	Checksums        uint64 // compared
	Divergence       uint64 // views, or groups of states, whose checksum differed at an equal position, and which were not in doubt
	RangeRequests    uint64
	KeyframeRequests uint64
	StateRequests    uint64 // for single states, and for sums of groups of states that are in doubt
	AuditRequests    uint64 // for sums of groups of states, from time to time
	AskedBytes       uint64 // of all requests
	AnsweredBytes    uint64 // of all answers
	UnwantedReplies  uint64 // late, repeated, or answers to no request
	Keyframed        uint64 // states that a repair brought or changed
	Epochs           uint64 // changes of the holder
}

// Requests returns how many requests there were, of all kinds.
func (s *ReplicaStats) Requests() uint64 {
	return s.RangeRequests + s.KeyframeRequests + s.StateRequests + s.AuditRequests
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
	if !r.tellRecord(st) {
		r.obs.Added(st)
	}
}

// remove removes st from the copy.
func (r *Replica) remove(st *State) {
	r.states.detach(st)
	r.schemas.release(st.schema)
	if !r.tellRecord(st) {
		r.obs.Removed(st)
	}
}

// tellRecord tells the observer that a state came, changed or ended, if it is a record. It reports whether it is.
func (r *Replica) tellRecord(st *State) bool {
	if !st.hidden {
		return false
	}
	first, name, _ := strings.Cut(st.Desc.Key, ".")
	switch first {
	case groupsToken:
		r.obs.Groups(name, r.states.groups(name))
	case interestToken:
		r.obs.Interest(name, r.states.interest(name))
	case eyesToken:
		r.obs.Eyes(name)
	}
	return true
}

// sums appends the checksums of all views. It returns nil if there are more than sumsMax.
func (r *Replica) sums() []byte {
	var b []byte
	for _, st := range r.states.all {
		if st.dead {
			continue
		}
		if b = r.appendViewSums(b, st); len(b) > sumsMax*sumBytes {
			return nil
		}
	}
	return b
}

// records applies the records of a batch or of a part of an answer, in order. If a record
// cannot be applied, the replica drops it and doubts the state, because it does not know what
// the record would have changed.
func (r *Replica) records(p []byte) {
	records := view.NewRecords(p)
	for m, ok := records.Next(); ok; m, ok = records.Next() {
		if !r.witnessed(&m) {
			r.stats.BadRecords++
			r.doubtRecord(&m)
		}
	}
	if records.Err() != nil || r.asm.number != 0 {
		r.stats.BadRecords++
		r.doubtAll()
		r.dropAssembly()
	}
}

func (r *Replica) record(m *view.Record) bool {
	if m.Message == view.RefIDAssign {
		ref, err := m.Assigned()
		if err != nil || m.Entity.State() == 0 {
			return false
		}
		r.assign(ref, m.Entity)
		return true
	}
	v := r.ref(m.Ref)
	switch {
	case v == nil:
		return false
	case m.Message == view.DescribePart || m.Message == view.Describe:
		return v.view == 0 && r.assemble(v, m)
	case m.Message == view.Keyframe && v.number == r.asm.number:
		return r.assemble(v, m)
	case v.st == nil || v.view >= len(v.st.schema.ranges):
		if r.strict && m.Message == view.Checksum { // in the answer to another replica, which has the state
			r.doubtState(v.number, m.Ref)
			return true
		}
		return false
	}
	rg := v.st.schema.ranges[v.view]
	switch m.Message {
	case view.Update:
		return r.update(v.st, rg, m.Data)
	case view.Keyframe:
		return r.keyframe(v.st, rg, m.Data)
	case view.Checksum:
		return r.checksum(v.st, rg, m)
	case view.Remove:
		return v.view == 0 && r.removeRecord(v)
	}
	return false
}

// assign binds a RefId to a view. In a repair the assignment also proves that the state exists.
func (r *Replica) assign(ref view.RefID, e view.EntityID) {
	if n := int(ref) + 1; n > len(r.refs) {
		grown := make([]viewRef, min(max(n, 2*len(r.refs)), int(view.NoRef)))
		copy(grown, r.refs)
		r.refs = grown
	}
	st := r.states.byNumber[e.State()]
	r.refs[ref] = viewRef{number: e.State(), view: e.View(), st: st}
	if st != nil {
		st.round = r.answer.round
	}
}

// ref returns the meaning of a RefId, or nil if it is not assigned.
func (r *Replica) ref(ref view.RefID) *viewRef {
	if int(ref) >= len(r.refs) || r.refs[ref].number == 0 {
		return nil
	}
	v := &r.refs[ref]
	if v.st == nil || v.st.dead {
		v.st = r.states.byNumber[v.number]
	}
	return v
}

// update applies changed values. It checks all of them first, because half an update would be a
// value that the state never had.
func (r *Replica) update(st *State, rg view.Range, data []byte) bool {
	values, ok := view.ReadUpdate(data, st.schema.fields, rg)
	if ok {
		r.change(st, values)
	}
	return ok
}

// change applies the values of a record to st and tells the observer which differ.
func (r *Replica) change(st *State, values view.Values) (differs bool) {
	mask := emptyMask(&r.mask, len(st.schema.defs))
	for i, value, null, ok := values.Next(); ok; i, value, null, ok = values.Next() {
		if st.set(i, value, null) {
			mask.Set(i)
			differs = true
		}
	}
	if differs && !r.tellRecord(st) {
		r.obs.Changed(st, mask)
	}
	return differs
}

// checksum compares a view. The replica applies batches in order, so that the position of the checksum of a batch is its
// own. The checksum in an answer says what the request listed, which may be older than a part of an earlier answer to
// the same request: then the view is not damaged, but has to be asked for. A state that is in doubt differs until then.
func (r *Replica) checksum(st *State, rg view.Range, m *view.Record) bool {
	want, err := m.CRC()
	if err != nil {
		return false
	}
	r.stats.Checksums++
	if st.crc(&r.scratch, rg) != want {
		if !r.strict && !r.doubt.states[st.Number] {
			r.stats.Divergence++
		}
		r.doubtState(st.Number, m.Ref)
	}
	return true
}

func (r *Replica) removeRecord(v *viewRef) bool {
	st := v.st
	v.number, v.st = 0, nil
	r.remove(st)
	return true
}

// assemble adds a record to the assembly of a state. If the state exists with the described
// layout, only its description changes; otherwise the assembly builds it from the keyframes that
// follow.
func (r *Replica) assemble(v *viewRef, m *view.Record) bool {
	if r.asm.number != v.number {
		r.dropAssembly()
		r.asm.number = v.number
	}
	if r.asm.record(&r.schemas, v.view, *m) != nil {
		r.dropAssembly()
		return false
	}
	switch old := v.st; {
	case m.Message == view.Describe && old != nil &&
		old.schema.sameLayout(r.asm.st.schema) && old.Desc.Key == r.asm.st.Desc.Key:
		r.redescribe(old)
	case r.asm.whole():
		r.install()
	}
	return true
}

// redescribe gives st the description in the assembly.
func (r *Replica) redescribe(st *State) {
	if st.sum != r.asm.st.sum {
		st.Desc, st.sum = r.asm.st.Desc, r.asm.st.sum
		st.schema, r.asm.st.schema = r.asm.st.schema, st.schema // dropAssembly releases it
		if !st.hidden {
			r.obs.Described(st)
		}
	}
	r.dropAssembly()
}

func (r *Replica) dropAssembly() {
	r.asm.release(&r.schemas)
	r.asm = assembly{}
}

// keyframe applies the keyframe of a view that exists.
func (r *Replica) keyframe(st *State, rg view.Range, data []byte) bool {
	values, ok := view.ReadKeyframe(data, st.schema.fields, rg)
	if ok && r.change(st, values) {
		r.stats.Keyframed++
	}
	return ok
}

// install makes the assembled state part of the copy.
func (r *Replica) install() {
	st := r.asm.st
	st.round = r.answer.round
	r.asm = assembly{} // st holds its schema
	r.stats.Keyframed++
	r.insert(st)
}
