package replication

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/internal/turn/heap"
	"github.com/dnprelay/dnprelay/replication/view"
)

// recordsMax is the most bytes of records in a batch. It leaves room for the largest
// header, because a repair sends the same records behind a longer one.
const recordsMax = view.BatchMax - view.HeaderMax

// emit turns all marks into batches and then releases the outputs that wait for them.
// Removals come first, because later records may use the keys and RefIds that they free.
func (s *Store) emit(now time.Time) {
	s.records.dropUnused()
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
	s.expiries.ended = 0
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
	s.checks.heap.Remove(st)
	s.unstored.add(now, st)
}

func (s *Store) emitState(now time.Time, st *stored) {
	b := &s.batch
	begin := len(b.records)
	switch {
	case !st.introduced:
		for range st.schema.ranges {
			st.refs = append(st.refs, s.refs.allocate(st))
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
	used   []*stored    // by RefId: the state whose view has it; nil for one that is free
}

// allocate returns a RefId. The limit of views keeps the allocator from running out.
func (a *refAllocator) allocate(st *stored) view.RefID {
	if n := len(a.unused); n > 0 {
		ref := a.unused[n-1]
		a.unused = a.unused[:n-1]
		a.used[ref] = st
		return ref
	}
	if a.last++; a.last == view.NoRef {
		panic("replication: more views than RefIds, although their number is limited")
	}
	for len(a.used) <= int(a.last) {
		a.used = append(a.used, nil)
	}
	a.used[a.last] = st
	return a.last
}

func (a *refAllocator) free(refs []view.RefID) {
	a.unused = append(a.unused, refs...)
	for _, ref := range refs {
		a.used[ref] = nil
	}
}

// state returns the state to which a RefId belongs, or nil.
func (a *refAllocator) state(ref view.RefID) *stored {
	if int(ref) >= len(a.used) {
		return nil
	}
	return a.used[ref]
}

// A batcher numbers batches and keeps the outputs of a Store in the order in which they
// leave: an answer, a write result or an event never overtakes the batch with its change.
type batcher struct {
	epoch, seq uint64 // of the last batch
	durable    bool   // what answers say about the durable store

	changed []*stored // states with marks, in the order of their first change
	removed []*stored // states that end with the next batch
	emitted time.Time // when the last changes were emitted

	records []byte // of the batch being built
	trace   []byte // trace block of the next batches; empty if no change in them is sampled
	ring    ring

	waiting []Output // leave behind the next batch
	ready   []Output // Advance returns them
	spare   []Output // the slice that the last Advance returned, reused by the next
}

func (b *batcher) pending() bool { return len(b.changed) > 0 || len(b.removed) > 0 }

// mark queues st for emission.
func (b *batcher) mark(st *stored) {
	if !st.queued {
		st.queued = true
		b.changed = append(b.changed, st)
	}
}

// send puts o behind everything that has changed.
func (b *batcher) send(o Output) {
	if b.pending() {
		b.waiting = append(b.waiting, o)
		return
	}
	b.sendNow(o)
}

// sendNow sends o at the current position, ahead of pending changes.
func (b *batcher) sendNow(o Output) {
	switch o.Kind {
	case OutputAnswer:
		o.Answer.Epoch, o.Answer.Seq, o.Answer.Durable = b.epoch, b.seq, b.durable
	case OutputWrite:
		o.Write.Epoch, o.Write.Seq = b.epoch, b.seq
	case OutputEvent:
		o.Event.Epoch, o.Event.Seq = b.epoch, b.seq
	}
	b.ready = append(b.ready, o)
}

// splitIfFull cuts the batch before the records that were appended since begin, if those make it
// too large.
func (b *batcher) splitIfFull(now time.Time, begin int, stats *StoreStats) {
	if len(b.records) > recordsMax {
		b.cut(now, begin, stats)
	}
}

// cut sends the first n bytes of records as one batch. The batch has bytes of its own,
// because the bus, the ring and many replicas share them.
func (b *batcher) cut(now time.Time, n int, stats *StoreStats) {
	if n == 0 {
		return
	}
	h := view.Header{Epoch: b.epoch, Seq: b.seq + 1, Prev: b.seq}
	if len(b.trace) > 0 {
		h.Flags, h.Trace = view.FlagTrace, b.trace
	}
	b.seq++
	data := make([]byte, 0, view.HeaderMax+n)
	data = append(h.Append(data), b.records[:n]...)
	b.records = b.records[:copy(b.records, b.records[n:])]
	b.ring.add(now, b.seq, data)
	b.ready = append(b.ready, Output{Kind: OutputBatch, Data: data})
	stats.Batches++
	stats.BatchBytes += uint64(len(data))
}

// release sends the outputs that waited for the batches of an emission.
func (b *batcher) release() {
	b.trace = b.trace[:0]
	for _, o := range b.waiting {
		b.sendNow(o)
	}
	clear(b.waiting)
	b.waiting = b.waiting[:0]
}

// take returns the outputs that are ready. The result is valid until the next take.
func (b *batcher) take() []Output {
	out := b.ready
	clear(b.spare)
	b.ready, b.spare = b.spare[:0], out
	return out
}

// Bounds of the batches that a holder keeps for replicas that missed some of them.
const (
	ringAge   = 4 * time.Second
	ringBytes = 4 << 20
)

// A ring holds the newest batches in the order of their sequence numbers.
type ring struct {
	batches []ringBatch
	first   int // index of the oldest in batches
	bytes   int
}

type ringBatch struct {
	at   time.Time
	seq  uint64
	data []byte
}

// add appends a batch and drops the oldest ones while the ring is beyond its bounds. The
// newest batch always stays.
func (r *ring) add(now time.Time, seq uint64, data []byte) {
	r.batches = append(r.batches, ringBatch{now, seq, data})
	r.bytes += len(data)
	last := len(r.batches) - 1
	for r.first < last && (r.bytes > ringBytes || now.Sub(r.batches[r.first].at) > ringAge) {
		r.bytes -= len(r.batches[r.first].data)
		r.batches[r.first] = ringBatch{}
		r.first++
	}
	if r.first > 64 && r.first > len(r.batches)/2 {
		n := copy(r.batches, r.batches[r.first:])
		clear(r.batches[n:])
		r.batches, r.first = r.batches[:n], 0
	}
}

// from returns the batches from seq on. It is not ok if the ring does not reach back to seq.
func (r *ring) from(seq uint64) ([]ringBatch, bool) {
	all := r.batches[r.first:]
	if len(all) == 0 || seq < all[0].seq {
		return nil, false
	}
	return all[min(seq-all[0].seq, uint64(len(all))):], true
}

// checkDelays are the times after the last update of a state at which the Store emits its
// checksums. A quiet state cannot come to differ after the last of them: a replica applies
// every later batch or notices that it missed the batch.
var checkDelays = [...]time.Duration{500 * time.Millisecond, 2 * time.Second, 5 * time.Second, 30 * time.Second}

// checkLatest is the longest time without checksums for a state that never goes quiet, so that
// it is checked too. The value is the upper decile that the original protocol shows.
const checkLatest = 5 * time.Second

// A check is the time of the next checksums of a state.
type check struct {
	due     time.Time
	updated time.Time // last update
	since   time.Time // first update after the last checksums
	place   int       // belongs to the heap
}

// checks orders states by their next check.
type checks struct{ heap *heap.Heap[*stored] }

func newChecks() checks {
	less := func(a, b *stored) bool { return a.check.due.Before(b.check.due) }
	return checks{heap.New(less, func(st *stored) *int { return &st.check.place })}
}

// next returns the time of the next check.
func (h *checks) next() (time.Time, bool) {
	st, ok := h.heap.First()
	if !ok {
		return time.Time{}, false
	}
	return st.check.due, true
}

func (h *checks) due(now time.Time) bool {
	at, ok := h.next()
	return ok && !now.Before(at)
}

// touch notes an update of st. For a state that is updated all the time this costs one
// comparison: pop corrects its place in the heap when it comes up.
func (h *checks) touch(now time.Time, st *stored) {
	c := &st.check
	c.updated = now
	if c.place == 0 || st.stage > 0 {
		st.stage, c.since, c.due = 0, now, now.Add(checkDelays[0])
		h.heap.Set(st)
	}
}

// pop returns the next state whose checksums are due, and plans its next check.
func (h *checks) pop(now time.Time) (*stored, bool) {
	for h.due(now) {
		st, _ := h.heap.First()
		c := &st.check
		quiet, latest := c.updated.Add(checkDelays[0]), c.since.Add(checkLatest)
		if st.stage == 0 && now.Before(quiet) && now.Before(latest) {
			c.due = slices.MinFunc([]time.Time{quiet, latest}, time.Time.Compare)
			h.heap.Set(st)
			continue
		}
		h.advance(now, st)
		return st, true
	}
	return nil, false
}

// advance plans the check after the one that is due.
func (h *checks) advance(now time.Time, st *stored) {
	c := &st.check
	if st.stage == 0 && now.Before(c.updated.Add(checkDelays[0])) {
		c.since, c.due = now, c.updated.Add(checkDelays[0]) // the state does not go quiet
		h.heap.Set(st)
		return
	}
	for st.stage++; int(st.stage) < len(checkDelays) && !now.Before(c.updated.Add(checkDelays[st.stage])); st.stage++ {
		// The owner was late; one checksum proves as much as two.
	}
	if int(st.stage) == len(checkDelays) {
		h.heap.Remove(st)
		return
	}
	c.due = c.updated.Add(checkDelays[st.stage])
	h.heap.Set(st)
}

// emitChecksums appends the checksums that are due. They follow every change of the batch and
// are therefore true at its position.
func (s *Store) emitChecksums(now time.Time) {
	for {
		st, ok := s.checks.pop(now)
		if !ok {
			return
		}
		begin := len(s.batch.records)
		s.batch.records = s.appendChecksums(s.batch.records, st)
		s.batch.splitIfFull(now, begin, &s.stats)
	}
}

func (s *Store) appendChecksums(b []byte, st *stored) []byte {
	for i, r := range st.schema.ranges {
		b = view.AppendChecksum(b, st.refs[i], st.crc(&s.scratch, r))
		s.stats.Checksums++
	}
	return b
}
