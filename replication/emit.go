package replication

import (
	"time"

	"github.com/dnprelay/dnprelay/replication/view"
)

// recordsMax is the most bytes of records in a batch. It leaves room for the largest
// header, because a repair sends the same records behind a longer one.
const recordsMax = view.BatchMax - view.HeaderMax

// emit turns all marks into batches and then releases the outputs that wait for them.
// Removals come first, because later records may use the keys and RefIds that they free.
func (s *Store) emit(now time.Time) {
	b := &s.batch
	if b.pending() {
		b.emitted = now
	}
	b.records = b.records[:0]
	for _, st := range b.removed {
		s.emitRemove(now, st)
	}
	for _, st := range b.changed {
		st.queued = false
		if !st.dead {
			s.emitState(now, st)
		}
	}
	clear(b.removed)
	clear(b.changed)
	b.removed, b.changed = b.removed[:0], b.changed[:0]
	s.emitChecksums(now)
	b.cut(now, len(b.records), &s.stats)
	b.release()
	s.states.sweep(func(st *stored) { s.schemas.release(st.schema) })
}

func (s *Store) emitRemove(now time.Time, st *stored) {
	if !st.dead || !st.introduced {
		return
	}
	st.introduced = false
	begin := len(s.batch.records)
	s.batch.records = view.Record{Ref: st.refs[0], Message: view.Remove}.Append(s.batch.records)
	s.batch.splitIfFull(now, begin, &s.stats)
	s.refs.free(st.refs)
	st.refs = nil
	s.checks.remove(st)
	s.unstored.add(now, st)
}

func (s *Store) emitState(now time.Time, st *stored) {
	b := &s.batch
	begin := len(b.records)
	switch {
	case !st.introduced:
		for range st.schema.ranges {
			st.refs = append(st.refs, s.refs.allocate())
		}
		b.records = s.appendWhole(b.records, st)
	case st.redescribe:
		s.scratch = appendDescribe(s.scratch[:0], st.Desc)
		b.records = appendDescribeRecords(b.records, st.refs[0], 0, s.scratch)
		fallthrough
	default:
		b.records = st.appendUpdates(b.records)
	}
	st.introduced, st.redescribe = true, false
	st.dirty.Reset()
	if len(b.records) == begin {
		return // a rollback took the marked change back
	}
	b.splitIfFull(now, begin, &s.stats)
	s.checks.touch(now, st)
	s.unstored.add(now, st)
}

// appendWhole appends the records that introduce a state: RefIds, Describe, keyframes.
// Together they fit into one batch, so that a replica never holds half a state.
func (s *Store) appendWhole(b []byte, st *stored) []byte {
	s.scratch = appendDescribe(s.scratch[:0], st.Desc)
	return st.appendRecords(st.appendAssigns(b), st.refs, s.scratch)
}

func (st *stored) appendAssigns(b []byte) []byte {
	for i, ref := range st.refs {
		b = view.AppendAssign(b, view.Entity(st.Number, i), ref)
	}
	return b
}

// appendUpdates appends an update for each view that has a marked value.
func (st *stored) appendUpdates(b []byte) []byte {
	i, ok := st.dirty.Next(0)
	for n, r := range st.schema.ranges {
		if !ok {
			break
		}
		if i >= r.End {
			continue
		}
		var start int
		b, start = view.Begin(b, st.refs[n], 0, view.Update)
		for ; ok && i < r.End; i, ok = st.dirty.Next(i + 1) {
			if st.IsNull(i) {
				b = view.AppendUpdateNull(b, i-r.First)
			} else {
				b = view.AppendUpdateValue(b, i-r.First, st.Values.Value(i))
			}
		}
		b = view.End(b, start)
	}
	return b
}

// A refAllocator assigns RefIds to views. A RefId in use is never assigned again.
type refAllocator struct {
	last   view.RefID
	unused []view.RefID // freed
}

// allocate returns a RefId. The limit of views keeps the allocator from running out.
func (a *refAllocator) allocate() view.RefID {
	if n := len(a.unused); n > 0 {
		ref := a.unused[n-1]
		a.unused = a.unused[:n-1]
		return ref
	}
	if a.last++; a.last == view.NoRef {
		panic("replication: more views than RefIds, although their number is limited")
	}
	return a.last
}

func (a *refAllocator) free(refs []view.RefID) { a.unused = append(a.unused, refs...) }
