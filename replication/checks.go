package replication

import (
	"container/heap"
	"hash/crc32"
	"time"

	"github.com/dnprelay/dnprelay/replication/view"
)

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
	stage   int       // index into checkDelays
	pos     int       // in the heap, plus one; 0 outside of it
}

// A checkHeap orders states by their next check.
type checkHeap []*stored

func (h checkHeap) due(now time.Time) bool { return len(h) > 0 && !now.Before(h[0].check.due) }

func (h checkHeap) next() (time.Time, bool) {
	if len(h) == 0 {
		return time.Time{}, false
	}
	return h[0].check.due, true
}

// touch notes an update of st. For a state that is updated all the time this costs one
// comparison: pop corrects its place in the heap when it comes up.
func (h *checkHeap) touch(now time.Time, st *stored) {
	c := &st.check
	c.updated = now
	if c.pos > 0 && c.stage == 0 {
		return
	}
	c.stage, c.since, c.due = 0, now, now.Add(checkDelays[0])
	if c.pos == 0 {
		heap.Push(h, st)
		return
	}
	heap.Fix(h, c.pos-1)
}

func (h *checkHeap) remove(st *stored) {
	if st.check.pos > 0 {
		heap.Remove(h, st.check.pos-1)
	}
}

// pop returns the next state whose checksums are due, and plans its next check.
func (h *checkHeap) pop(now time.Time) (*stored, bool) {
	for h.due(now) {
		st := (*h)[0]
		c := &st.check
		quiet, latest := c.updated.Add(checkDelays[0]), c.since.Add(checkLatest)
		if c.stage == 0 && now.Before(quiet) && now.Before(latest) {
			c.due = earlier(quiet, latest)
			heap.Fix(h, 0)
			continue
		}
		h.advance(now, st)
		return st, true
	}
	return nil, false
}

// advance plans the check after the one that is due.
func (h *checkHeap) advance(now time.Time, st *stored) {
	c := &st.check
	if c.stage == 0 && now.Before(c.updated.Add(checkDelays[0])) {
		c.since, c.due = now, c.updated.Add(checkDelays[0]) // the state does not go quiet
		heap.Fix(h, 0)
		return
	}
	for c.stage++; c.stage < len(checkDelays) && !now.Before(c.updated.Add(checkDelays[c.stage])); c.stage++ {
		// The owner was late; one checksum proves as much as two.
	}
	if c.stage == len(checkDelays) {
		heap.Pop(h)
		return
	}
	c.due = c.updated.Add(checkDelays[c.stage])
	heap.Fix(h, 0)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
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
		s.batch.place(now, begin, &s.stats)
	}
}

func (s *Store) appendChecksums(b []byte, st *stored) []byte {
	for i, r := range st.schema.ranges {
		b = view.AppendChecksum(b, st.refs[i], s.sum(st, r))
		s.stats.Checksums++
	}
	return b
}

// sum returns the checksum of one view.
func (s *Store) sum(st *stored, r view.Range) uint32 {
	s.scratch = view.AppendKeyframe(s.scratch[:0], st.values, st.nulls, st.schema.fields, r)
	return crc32.ChecksumIEEE(s.scratch)
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (h checkHeap) Len() int           { return len(h) }
func (h checkHeap) Less(i, j int) bool { return h[i].check.due.Before(h[j].check.due) }
func (h checkHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].check.pos, h[j].check.pos = i+1, j+1
}

func (h *checkHeap) Push(x any) {
	st := x.(*stored)
	*h = append(*h, st)
	st.check.pos = len(*h)
}

func (h *checkHeap) Pop() any {
	old := *h
	st := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	st.check.pos = 0
	return st
}
