package dnp

import (
	"math"
	"time"
)

// An instant is a time in nanoseconds since the Endpoint was first told the time.
// It takes a third of the memory of a time.Time and compares in one instruction.
type instant int64

// never is after every other instant.
const never = instant(math.MaxInt64)

func (t instant) add(d time.Duration) instant { return t + instant(d) }

func (t instant) sub(u instant) time.Duration { return time.Duration(t - u) }

// upTo returns the first multiple of grid that is not before t. Deadlines that need
// no precision lie on a grid, so that one wake-up serves many.
func (t instant) upTo(grid time.Duration) instant {
	if t > never-instant(grid) {
		return never
	}
	return (t + instant(grid) - 1) / instant(grid) * instant(grid)
}

// A clock turns the times that callers pass into instants that never go back.
type clock struct {
	base time.Time
	now  instant
}

func (c *clock) advance(now time.Time) instant {
	if c.base.IsZero() {
		c.base = now
	}
	if t := instant(now.Sub(c.base)); t > c.now {
		c.now = t
	}
	return c.now
}

func (c *clock) time(t instant) time.Time { return c.base.Add(time.Duration(t)) }

// A timer is the one deadline of a Conn or a Source, and a field of it.
type timer struct {
	at     instant
	place  int32 // in the heap, counted from 1; 0 is not set
	conn   *Conn // either conn or source is the owner
	source *Source
}

// A timerHeap has all deadlines of an Endpoint, the earliest on top. A Conn derives
// its deadline from its parts, so there is no timer per link or command.
type timerHeap struct{ h []*timer }

func (h *timerHeap) next() instant {
	if len(h.h) == 0 {
		return never
	}
	return h.h[0].at
}

// set moves t to at; never removes it.
func (h *timerHeap) set(t *timer, at instant) {
	switch {
	case at == never:
		h.remove(t)
	case t.place == 0:
		t.at = at
		h.h = append(h.h, t)
		t.place = int32(len(h.h))
		h.up(len(h.h) - 1)
	case at < t.at:
		t.at = at
		h.up(int(t.place) - 1)
	case at > t.at:
		t.at = at
		h.down(int(t.place) - 1)
	}
}

func (h *timerHeap) remove(t *timer) {
	if t.place == 0 {
		return
	}
	i, last := int(t.place)-1, len(h.h)-1
	h.swap(i, last)
	h.h[last] = nil
	h.h = h.h[:last]
	t.place = 0
	if i < last {
		h.up(i)
		h.down(i)
	}
}

func (h *timerHeap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if h.h[parent].at <= h.h[i].at {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h *timerHeap) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h.h) {
			return
		}
		if right := child + 1; right < len(h.h) && h.h[right].at < h.h[child].at {
			child = right
		}
		if h.h[i].at <= h.h[child].at {
			return
		}
		h.swap(i, child)
		i = child
	}
}

func (h *timerHeap) swap(i, j int) {
	h.h[i], h.h[j] = h.h[j], h.h[i]
	h.h[i].place, h.h[j].place = int32(i+1), int32(j+1)
}
