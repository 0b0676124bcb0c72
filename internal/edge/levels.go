package edge

import (
	"container/heap"
	"time"

	"github.com/dnprelay/dnprelay/replication"
)

// sweepInterval is the least time between two looks for levels of detail that no
// client has any more.
const sweepInterval = time.Second

// A levels is the levels of detail of a space. A level that nobody has ends at the
// next change of its state, or with the sweep.
type levels struct {
	made    int      // ever; spreads their periods
	touched []*level // whose states changed
	due     levelHeap
	ended   bool // a client may have been the last of a level
	sweepAt time.Time
}

// advanceLevels brings levels up to date that are due, and returns when the next is.
func (s *space) advanceLevels(now, next time.Time) time.Time {
	v := &s.levels
	for i, l := range v.touched {
		v.touched[i] = nil
		l.touched = false
		l.changed = now
		s.advanceLevel(now, l)
	}
	v.touched = v.touched[:0]
	for len(v.due) > 0 && !v.due[0].due.After(now) {
		s.advanceLevel(now, v.due[0])
	}
	v.ended = v.ended && s.w.counts.Levels > 0
	if v.ended && !now.Before(v.sweepAt) {
		v.ended, v.sweepAt = false, now.Add(sweepInterval)
		for st := range s.replica.All() {
			s.endLevels(st, func(l *level) bool { return l.source.Links() == 0 })
		}
	}
	if v.ended {
		next = earlier(next, v.sweepAt)
	}
	if len(v.due) > 0 {
		next = earlier(next, v.due[0].due)
	}
	return next
}

func (s *space) advanceLevel(now time.Time, l *level) {
	if l.source.Links() == 0 {
		s.endLevels(l.st, func(x *level) bool { return x == l })
		return
	}
	l.advance(now)
	switch h := &s.levels.due; {
	case l.due.IsZero():
		s.dequeue(l)
	case l.place == 0:
		heap.Push(h, l)
	default:
		heap.Fix(h, l.place-1)
	}
}

func (s *space) dequeue(l *level) {
	if l.place > 0 {
		heap.Remove(&s.levels.due, l.place-1)
	}
}

// endLevels ends the levels of a state for which gone holds.
func (s *space) endLevels(st *replication.State, gone func(*level) bool) {
	f := st.Data.(*fanout)
	kept := f.levels[:0]
	for _, l := range f.levels {
		if !gone(l) {
			kept = append(kept, l)
			continue
		}
		s.dequeue(l)
		l.source.Remove()
		s.w.counts.Levels--
	}
	clear(f.levels[len(kept):])
	f.levels = kept
}

// A levelHeap has the level that is due first on top.
type levelHeap []*level

func (h levelHeap) Len() int           { return len(h) }
func (h levelHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }

func (h levelHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i+1, j+1
}

// Push and Pop are for package heap.
func (h *levelHeap) Push(x any) {
	l := x.(*level)
	*h = append(*h, l)
	l.place = len(*h)
}

func (h *levelHeap) Pop() any {
	old := *h
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	l.place = 0
	return l
}
