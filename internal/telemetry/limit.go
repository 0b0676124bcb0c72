package telemetry

import (
	"sync"
	"sync/atomic"
	"time"
)

// tracesPerSecond is how many traces a process begins or joins in a second, and at
// once, whatever the game servers ask for. The number is arbitrary: a trace costs about 20 µs
// in all, so this is a thousandth of a core.
const tracesPerSecond = 50

// A limit is a bucket of traces. The mutex is taken for sampled updates only, by the
// workers of a relay, none of which could own it.
type limit struct {
	refused atomic.Uint64

	mu    sync.Mutex
	level float64
	at    time.Time
}

func newLimit(now time.Time) *limit { return &limit{level: tracesPerSecond, at: now} }

// take reports whether one more may be traced, and counts if not.
func (l *limit) take(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := now.Sub(l.at); d > 0 {
		l.level = min(tracesPerSecond, l.level+d.Seconds()*tracesPerSecond)
		l.at = now
	}
	if l.level < 1 {
		l.refused.Add(1)
		return false
	}
	l.level--
	return true
}
