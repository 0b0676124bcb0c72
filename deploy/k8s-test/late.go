//go:build linux

package main

import (
	"context"
	"sync/atomic"
	"time"
)

// latePace is how often a lateness looks at the clock.
const latePace = 20 * time.Millisecond

// A lateness is by how much the machine lets this program wait. Servers and edges wait
// as long, so it tells a busy machine from a fault of theirs.
type lateness struct{ longest atomic.Int64 }

// run measures until ctx ends.
func (l *lateness) run(ctx context.Context) {
	tick := time.NewTicker(latePace)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			now := time.Now()
			l.longest.Store(max(l.longest.Load(), int64(now.Sub(last)-latePace)))
			last = now
		}
	}
}

// take returns the longest wait since it was asked last.
func (l *lateness) take() time.Duration { return time.Duration(l.longest.Swap(0)) }
