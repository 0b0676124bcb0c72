package natslease

import (
	"sync/atomic"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/fence"
)

// Stats are counters since Open.
type Stats struct {
	OK, Stale, Busy, Unknown, Unreachable uint64 // answers of the store
	Stored                                uint64 // keyframes
	Released, Taken, Fenced, Silenced     uint64 // holdings that ended, by reason
	WatchRestarts, LoadRetries            uint64
}

// counters are bumped by many goroutines.
type counters struct {
	answers              [fence.Unreachable + 1]atomic.Uint64
	lost                 [cluster.ReasonSilence + 1]atomic.Uint64
	stored, batches      atomic.Uint64
	watches, loadRetries atomic.Uint64
}

// Stats returns the counters.
func (l *Leases) Stats() Stats {
	c := &l.counts
	return Stats{
		OK: c.answers[fence.OK].Load(), Stale: c.answers[fence.Stale].Load(), Busy: c.answers[fence.Busy].Load(),
		Unknown: c.answers[fence.Unknown].Load(), Unreachable: c.answers[fence.Unreachable].Load(),
		Stored:   c.stored.Load(),
		Released: c.lost[cluster.ReasonReleased].Load(), Taken: c.lost[cluster.ReasonTaken].Load(),
		Fenced: c.lost[cluster.ReasonEpoch].Load(), Silenced: c.lost[cluster.ReasonSilence].Load(),
		WatchRestarts: c.watches.Load(), LoadRetries: c.loadRetries.Load(),
	}
}
