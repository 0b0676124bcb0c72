package fanout

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"
)

var seed = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of random tests")

// TestCalendarModel moves the times of levels about, and compares what the calendar takes with the times themselves: all
// that is due with a batch, nothing that is not due, and nothing that waits for longer than two steps without one.
func TestCalendarModel(t *testing.T) {
	t.Logf("repeat with -seed=%d", *seed)
	rng := rand.New(rand.NewPCG(*seed, 0))
	for range 50 {
		var c calendar
		now := rng.Int64N(1e18)
		all := make([]*level, 1+rng.IntN(30))
		for i := range all {
			all[i] = &level{}
		}
		later := func() int64 { return now + 1 + rng.Int64N([]int64{1e6, 3e7, 4e9}[rng.IntN(3)]) }
		for range 1000 {
			for range rng.IntN(5) {
				l := all[rng.IntN(len(all))]
				if l.dueAt = later(); rng.IntN(4) == 0 {
					l.dueAt = 0
				}
				c.set(l)
			}
			now += rng.Int64N([]int64{2e6, 2e7, 3e9}[rng.IntN(3)])
			batch := rng.IntN(2) == 0
			c.take(now, batch, func(at int64, l *level) {
				if at != now || l.dueAt == 0 || l.dueAt > now {
					t.Fatalf("at %d, a level is taken that is due at %d", now, l.dueAt)
				}
				l.dueAt = 0
				if rng.IntN(2) == 0 {
					l.dueAt = later()
				}
				c.set(l)
			})
			compareCalendar(t, &c, all, now, batch)
		}
	}
}

func compareCalendar(t *testing.T, c *calendar, all []*level, now int64, batch bool) {
	t.Helper()
	most := now
	if !batch {
		most -= 2 * calendarStep
	}
	waiting := 0
	next, ok := c.next()
	for _, l := range all {
		if l.dueAt == 0 {
			continue
		}
		waiting++
		if l.dueAt <= most {
			t.Fatalf("at %d, batch %v, a level that was due at %d was not taken", now, batch, l.dueAt)
		}
		if !ok || next > l.dueAt+2*calendarStep {
			t.Fatalf("at %d, the calendar wants to be asked at %d (%v), and a level is due at %d", now, next, ok, l.dueAt)
		}
	}
	switch {
	case ok && (next <= now || next%calendarStep != 0):
		t.Fatalf("at %d, the calendar wants to be asked at %d", now, next)
	case c.entries > len(all)*calendarSlots:
		t.Fatalf("%d levels have %d entries", len(all), c.entries)
	case waiting == 0 && c.entries > 0 && next > now+(calendarSlots+2)*calendarStep:
		t.Fatalf("at %d, entries of levels that wait for nothing stay until %d", now, next)
	}
}
