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
// its deadline from its parts, so there is no timer per link or command. The deadlines are
// in the heap, not only in the timers, because thousands of timers do not stay in the cache.
type timerHeap struct{ h []deadline }

// A deadline is an entry of the heap: at is that of the timer.
type deadline struct {
	at    instant
	timer *timer
}

func (h *timerHeap) next() instant {
	if len(h.h) == 0 {
		return never
	}
	return h.h[0].at
}

// first returns the timer whose time is next. There must be one.
func (h *timerHeap) first() *timer { return h.h[0].timer }

// set moves t to at; never removes it.
func (h *timerHeap) set(t *timer, at instant) {
	i := int(t.place) - 1
	switch {
	case at == never:
		h.remove(t)
	case t.place == 0:
		h.h = append(h.h, deadline{})
		h.up(len(h.h)-1, deadline{at, t})
	case at < t.at:
		h.up(i, deadline{at, t})
	case at > t.at:
		h.down(i, deadline{at, t})
	}
}

func (h *timerHeap) remove(t *timer) {
	if t.place == 0 {
		return
	}
	i, last := int(t.place)-1, len(h.h)-1
	moved := h.h[last]
	h.h[last] = deadline{}
	h.h = h.h[:last]
	t.place = 0
	switch {
	case i == last:
	case moved.at < t.at:
		h.up(i, moved)
	default:
		h.down(i, moved)
	}
}

// up puts d into place i, or above it if it is before those there.
func (h *timerHeap) up(i int, d deadline) {
	for i > 0 {
		parent := (i - 1) / 2
		if h.h[parent].at <= d.at {
			break
		}
		h.put(i, h.h[parent])
		i = parent
	}
	h.put(i, d)
}

// down puts d into place i, or below it if it is behind those there.
func (h *timerHeap) down(i int, d deadline) {
	for {
		child := 2*i + 1
		if child >= len(h.h) {
			break
		}
		if right := child + 1; right < len(h.h) && h.h[right].at < h.h[child].at {
			child = right
		}
		if d.at <= h.h[child].at {
			break
		}
		h.put(i, h.h[child])
		i = child
	}
	h.put(i, d)
}

func (h *timerHeap) put(i int, d deadline) {
	h.h[i] = d
	d.timer.at, d.timer.place = d.at, int32(i+1)
}
