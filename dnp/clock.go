package dnp

import (
	"math"
	"time"
)

// An instant is a time in nanoseconds since the Endpoint was first told the time.
// It takes a third of the room of a time.Time and compares in one instruction.
type instant int64

// never is after every other instant.
const never = instant(math.MaxInt64)

func (t instant) add(d time.Duration) instant { return t + instant(d) }

// upTo returns the first multiple of grid that is not before t. Deadlines that need
// no precision stand on a grid, so that one wake-up serves many.
func (t instant) upTo(grid time.Duration) instant {
	if t > never-instant(grid) {
		return never
	}
	return (t + instant(grid) - 1) / instant(grid) * instant(grid)
}

func (t instant) sub(u instant) time.Duration { return time.Duration(t - u) }

// A clock turns the times that callers give into instants that never go back.
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
