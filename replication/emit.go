package replication

import (
	"time"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/replication/view"
)

// recordsMax is the most bytes of records in a batch. It leaves room for the
// largest header, because a repair sends the same records behind a longer one.
const recordsMax = view.BatchMax - view.HeaderMax

// emit turns everything that is marked into batches, then lets those go that
// waited for them. Removals come first, because a key or a RefId that they free
// may be used again by what follows.
func (s *Store) emit(now time.Time) {
	if s.Pending() {
		s.emitted = now
	}
	s.records = s.records[:0]
	for _, st := range s.removed {
		s.emitRemove(now, st)
	}
	for _, st := range s.changed {
		st.queued = false
		if !st.dead {
			s.emitState(now, st)
		}
	}
	clear(s.removed)
	clear(s.changed)
	s.removed, s.changed = s.removed[:0], s.changed[:0]
	s.emitChecksums(now)
	s.cut(now, len(s.records))
	s.trace = s.trace[:0]
	for _, o := range s.waiting {
		s.out = append(s.out, s.stamped(o))
	}
	clear(s.waiting)
	s.waiting = s.waiting[:0]
	s.sweep()
}

func (s *Store) emitRemove(now time.Time, st *stored) {
	if !st.dead || !st.introduced {
		return
	}
	st.introduced = false
	begin := len(s.records)
	s.records = view.Record{Ref: st.refs[0], Message: view.Remove}.Append(s.records)
	s.place(now, begin)
	s.refs.give(st.refs)
	st.refs = nil
	s.checks.remove(st)
	s.store(now, st)
}

func (s *Store) emitState(now time.Time, st *stored) {
	begin := len(s.records)
	switch {
	case !st.introduced:
		for range st.schema.ranges {
			st.refs = append(st.refs, s.refs.take())
		}
		s.records = s.appendWhole(s.records, st)
	case st.redescribe:
		s.scratch = appendDescribe(s.scratch[:0], &st.desc)
		s.records = appendDescribeRecords(s.records, st.refs[0], 0, s.scratch)
		s.records = st.appendUpdates(s.records)
	default:
		s.records = st.appendUpdates(s.records)
	}
	st.introduced, st.redescribe = true, false
	st.dirty.Reset()
	if len(s.records) == begin {
		return // what was marked was taken back
	}
	s.place(now, begin)
	s.checks.touch(now, st)
	s.store(now, st)
}

// appendWhole appends what introduces a state: RefIds, Describe, keyframes.
// Together they always fit into one batch, so nobody ever holds half a state.
func (s *Store) appendWhole(b []byte, st *stored) []byte {
	b = st.appendAssigns(b)
	s.scratch = appendDescribe(s.scratch[:0], &st.desc)
	b = appendDescribeRecords(b, st.refs[0], 0, s.scratch)
	for i, r := range st.schema.ranges {
		var start int
		b, start = view.Begin(b, st.refs[i], 0, view.Keyframe)
		b = view.End(view.AppendKeyframe(b, st.values, st.nulls, st.schema.fields, r), start)
	}
	return b
}

func (st *stored) appendAssigns(b []byte) []byte {
	for i, ref := range st.refs {
		b = view.AppendAssign(b, view.Entity(st.number, i), ref)
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
		for ; ok && i < r.End; i, ok = nextMarked(st.dirty, i) {
			if st.isNull(i) {
				b = view.AppendUpdateNull(b, i-r.First)
			} else {
				b = view.AppendUpdateValue(b, i-r.First, st.values.Value(i))
			}
		}
		b = view.End(b, start)
	}
	return b
}

// nextMarked returns the smallest index in m above i.
func nextMarked(m netstate.Mask, i int) (int, bool) { return m.Next(i + 1) }

// place cuts the batch in front of what was appended since begin if that does
// not fit any more.
func (s *Store) place(now time.Time, begin int) {
	if len(s.records) > recordsMax {
		s.cut(now, begin)
	}
}

// cut sends the first n bytes of records as one batch. What is sent is a copy
// of its own, because the bus, the ring and many replicas share it.
func (s *Store) cut(now time.Time, n int) {
	if n == 0 {
		return
	}
	h := view.Header{Epoch: s.cfg.Epoch, Seq: s.seq + 1, Prev: s.seq}
	if len(s.trace) > 0 {
		h.Flags, h.Trace = view.FlagTrace, s.trace
	}
	s.seq++
	data := make([]byte, 0, view.HeaderMax+n)
	data = append(h.Append(data), s.records[:n]...)
	s.records = s.records[:copy(s.records, s.records[n:])]
	s.ring.add(now, s.seq, data)
	s.out = append(s.out, Output{Kind: OutputBatch, Data: data})
	s.stats.Batches++
	s.stats.BatchBytes += uint64(len(data))
}

// How much of the past a holder keeps for replicas that missed some of it.
const (
	ringAge   = 4 * time.Second
	ringBytes = 4 << 20
)

// A ring holds the newest batches, one behind the other.
type ring struct {
	batches []kept
	first   int // index of the oldest in batches
	bytes   int
}

type kept struct {
	at   time.Time
	seq  uint64
	data []byte
}

// add keeps a batch and drops those that are too old or too much. The newest
// always stays.
func (r *ring) add(now time.Time, seq uint64, data []byte) {
	r.batches = append(r.batches, kept{now, seq, data})
	r.bytes += len(data)
	last := len(r.batches) - 1
	for r.first < last && (r.bytes > ringBytes || now.Sub(r.batches[r.first].at) > ringAge) {
		r.bytes -= len(r.batches[r.first].data)
		r.batches[r.first] = kept{}
		r.first++
	}
	if r.first > 64 && r.first > len(r.batches)/2 {
		n := copy(r.batches, r.batches[r.first:])
		clear(r.batches[n:])
		r.batches, r.first = r.batches[:n], 0
	}
}

// from returns the batches from seq on, if the ring goes back so far.
func (r *ring) from(seq uint64) ([]kept, bool) {
	all := r.batches[r.first:]
	if len(all) == 0 || seq < all[0].seq {
		return nil, false
	}
	skip := seq - all[0].seq
	if skip > uint64(len(all)) {
		skip = uint64(len(all))
	}
	return all[skip:], true
}

// A refAllocator gives each view its RefId. It never gives one twice unless it
// was freed.
type refAllocator struct {
	live int // views of states that exist, introduced or not
	last view.RefID
	free []view.RefID
}

// take returns a RefId. The limit of views keeps it from running out.
func (a *refAllocator) take() view.RefID {
	if n := len(a.free); n > 0 {
		ref := a.free[n-1]
		a.free = a.free[:n-1]
		return ref
	}
	if a.last++; a.last == view.NoRef {
		panic("replication: more views than RefIds, although their number is limited")
	}
	return a.last
}

func (a *refAllocator) give(refs []view.RefID) { a.free = append(a.free, refs...) }
