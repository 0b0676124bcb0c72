package fanout

import "time"

const (
	// calendarStep is how long a slot of a calendar is. The levels of thousands of states are due at as many times. Each
	// waits for the next batch of the space, whose values are sent anyway, but for less than two steps.
	calendarStep = int64(10 * time.Millisecond)

	// calendarSlots is how many slots a calendar has. What is due later waits in the last one, and is then put into another.
	calendarSlots = 128
)

// A calendar holds levels by the time at which they are due. Unlike in a heap, no other level is touched when one comes or
// goes. A level whose time moves back stays in its slot until that is over. One whose time moves forward leaves an entry
// behind, so a level has at most one entry in each slot.
type calendar struct {
	slots   [calendarSlots][]*level // slot n has what is due after (n-1)×calendarStep and up to n×calendarStep
	first   int64                   // the earliest slot that may have entries
	entries int
	taken   []*level
}

// set puts a level where its dueAt wants it.
func (c *calendar) set(l *level) {
	n := min(max(c.first, (l.dueAt+calendarStep-1)/calendarStep), c.first+calendarSlots-1)
	if l.dueAt == 0 || l.slot != 0 && l.slot <= n {
		return
	}
	l.slot = n
	c.slots[n%calendarSlots] = append(c.slots[n%calendarSlots], l)
	c.entries++
}

// take takes out the levels that are due, and calls do for each, which may set it: all if there is a batch, or else those
// that have waited for a step.
func (c *calendar) take(now int64, batch bool, do func(now int64, l *level)) {
	last := now/calendarStep - 1
	if batch {
		last += 2 // some of the last slot are not due yet
	}
	for n := c.first; c.entries > 0 && n <= min(last, c.first+calendarSlots-1); n++ {
		c.empty(n)
	}
	c.first = max(c.first, last)
	for i, l := range c.taken {
		c.taken[i] = nil
		if l.dueAt == 0 || l.dueAt > now {
			c.set(l)
			continue
		}
		do(now, l)
	}
	c.taken = c.taken[:0]
}

// empty takes a slot.
func (c *calendar) empty(n int64) {
	slot := &c.slots[n%calendarSlots]
	for _, l := range *slot {
		if l.slot == n { // else it moved forward
			l.slot = 0
			c.taken = append(c.taken, l)
		}
	}
	c.entries -= len(*slot)
	clear(*slot)
	*slot = (*slot)[:0]
}

// next returns when there is something to take at the latest; false for never.
func (c *calendar) next() (at int64, ok bool) {
	if c.entries == 0 {
		return 0, false
	}
	n := c.first
	for len(c.slots[n%calendarSlots]) == 0 {
		n++
	}
	return (n + 1) * calendarStep, true
}
