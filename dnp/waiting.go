package dnp

import "time"

// When the budget of a connection does not reach for all that changed, its links
// wait, each at most once, and those that are most urgent are sent first. No values
// are queued: a link that waits is sent what is newest when its turn comes.

// A waiter is a link that lacks something and could not be sent it.
type waiter struct {
	since   instant // when it began to wait
	urgency float32 // of the last look
	slot    uint16
}

// stalenessUnit is how long a link waits to become as stale as by one version that
// it lacks: the period of a state that changes 20 times a second.
const stalenessUnit = 50 * time.Millisecond

// A repeat of values that the peer most likely has counts a sixteenth of a change.
const repeatWeight = 1.0 / 16

// PriorityMax is the highest priority of a Source.
const PriorityMax = 16

// urgency returns priority × staleness. A version is only made of changes beyond
// the precision of the values, so the versions that a link lacks are the steps of
// precision by which its values are wrong at least. The age is there so that a state
// that changed once has its turn: what waits gets more urgent without limit, and
// what is sent begins anew, so nothing waits for ever.
//
// A bound: let n links wait, whose priorities differ by a factor of at most r, and
// let every sending carry k of them. In m sendings any other link is sent at most
// 1 + 2r·ln(1+m) times before one that waits since the first, because it has to grow
// as urgent from nothing, at twice r the speed at most. The link is sent after m
// sendings at the latest, for the least m with k·m > n·(1 + 2r·ln(1+m)).
func urgency(priority uint8, versions uint32, age time.Duration, repeat bool) float32 {
	u := float32(priority) * (float32(versions) + float32(age)/float32(stalenessUnit))
	if repeat {
		u *= repeatWeight
	}
	return u
}

// versionsMax bounds the versions that count, so that a link that is sent seldom
// does not outweigh every priority; its age goes on counting.
const versionsMax = 1 << 12

// await has the links in pending wait.
func (c *Conn) await(now instant) {
	kept := c.waiting[:0]
	for _, w := range c.waiting {
		if c.links.l[w.slot].has(linkWaiting) { // the link was not taken down
			kept = append(kept, w)
		}
	}
	c.waiting = kept
	for _, slot := range c.pending {
		l := &c.links.l[slot]
		l.flags &^= linkMarked
		if !l.weSend() {
			continue
		}
		s := c.e.sources[l.source]
		if l.sent == s.version {
			l.flags &^= linkChanged
			continue
		}
		if l.sent != 0 && l.sent < s.real || s.realAt == now {
			l.flags |= linkChanged
		}
		if !l.has(linkWaiting) {
			l.flags |= linkWaiting
			c.waiting = append(c.waiting, waiter{since: now, slot: slot})
			c.e.stats.Deferred++
		}
	}
	c.pending, c.pendingBytes = c.pending[:0], 0
}

// flushShort sends the most urgent of the links that wait, as far as the budget
// goes.
func (c *Conn) flushShort(now instant, out Sender) {
	c.await(now)
	t := &c.e.tariff
	if allowed := c.budget.allowance(t, c.step(), c.e.cfg.DatagramMax, now); allowed > 0 {
		c.rank(now)
		w := updateWriter{c: c, out: out}
		for len(c.waiting) > 0 && w.paid+len(w.b) < allowed {
			w.write([]uint16{c.mostUrgent()})
		}
		w.finish()
	}
	if len(c.waiting) == 0 {
		c.waiting = nil // it may be as long as the link table
	}
	c.settle(now)
}

// rank works out how urgent each waiter is and puts the most urgent on top of a heap.
func (c *Conn) rank(now instant) {
	for i := range c.waiting {
		w := &c.waiting[i]
		l := &c.links.l[w.slot]
		s := c.e.sources[l.source]
		versions := uint32(1) // for all values: how many versions that is nobody knows
		if l.sent != 0 {
			versions = min(s.version-l.sent, versionsMax)
		}
		w.urgency = urgency(s.cfg.Priority, versions, now.sub(w.since), !l.has(linkChanged))
	}
	for i := len(c.waiting)/2 - 1; i >= 0; i-- {
		c.sink(i)
	}
}

// mostUrgent takes the top of the heap.
func (c *Conn) mostUrgent() (slot uint16) {
	slot, last := c.waiting[0].slot, len(c.waiting)-1
	c.waiting[0] = c.waiting[last]
	c.waiting = c.waiting[:last]
	c.sink(0)
	return slot
}

// sink moves a waiter down to its place in the heap.
func (c *Conn) sink(i int) {
	h := c.waiting
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if right := child + 1; right < len(h) && h[right].urgency > h[child].urgency {
			child = right
		}
		if h[i].urgency >= h[child].urgency {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

// flushAt returns when a connection that is short may send values.
func (c *Conn) flushAt() instant {
	if len(c.waiting) == 0 || c.flushing {
		return never
	}
	return c.budget.allowedAt(&c.e.tariff, c.step(), c.e.cfg.DatagramMax)
}

// flushWaiting has the next Flush look at links that waited.
func (c *Conn) flushWaiting(now instant) {
	if now >= c.flushAt() {
		c.flushing = true
		c.e.flushing = append(c.e.flushing, c)
	}
}
