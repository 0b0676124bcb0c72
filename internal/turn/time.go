package turn

import (
	"context"
	"iter"
	"time"
)

// Every yields the time at once, and then after each interval, until ctx ends.
func Every(ctx context.Context, interval time.Duration) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for now := time.Now(); yield(now); {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				now = time.Now() // that of the tick may be long ago
			}
		}
	}
}

// After yields the time after each interval, until ctx ends.
func After(ctx context.Context, interval time.Duration) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		first := true
		for now := range Every(ctx, interval) {
			if !first && !yield(now) {
				return
			}
			first = false
		}
	}
}

// Pause waits. It reports false if ctx ended meanwhile.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
