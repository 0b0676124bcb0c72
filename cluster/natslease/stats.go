package natslease

import (
	"sync/atomic"

	"github.com/dnprelay/dnprelay/cluster"
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
	answers              [cluster.Unreachable + 1]atomic.Uint64
	lost                 [cluster.ReasonSilence + 1]atomic.Uint64
	stored, batches      atomic.Uint64
	watches, loadRetries atomic.Uint64
}

// Stats returns the counters.
func (l *Leases) Stats() Stats {
	c := &l.counts
	return Stats{
		OK: c.answers[cluster.OK].Load(), Stale: c.answers[cluster.Stale].Load(), Busy: c.answers[cluster.Busy].Load(),
		Unknown: c.answers[cluster.Unknown].Load(), Unreachable: c.answers[cluster.Unreachable].Load(),
		Stored:   c.stored.Load(),
		Released: c.lost[cluster.ReasonReleased].Load(), Taken: c.lost[cluster.ReasonTaken].Load(),
		Fenced: c.lost[cluster.ReasonEpoch].Load(), Silenced: c.lost[cluster.ReasonSilence].Load(),
		WatchRestarts: c.watches.Load(), LoadRetries: c.loadRetries.Load(),
	}
}
