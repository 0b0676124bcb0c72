package replication

import (
	"time"

	"github.com/dnprelay/dnprelay/internal/turn/heap"
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

func (h *checks) remove(st *stored) { h.heap.Remove(st) }

// pop returns the next state whose checksums are due, and plans its next check.
func (h *checks) pop(now time.Time) (*stored, bool) {
	for h.due(now) {
		st, _ := h.heap.First()
		c := &st.check
		quiet, latest := c.updated.Add(checkDelays[0]), c.since.Add(checkLatest)
		if st.stage == 0 && now.Before(quiet) && now.Before(latest) {
			c.due = earlier(quiet, latest)
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
