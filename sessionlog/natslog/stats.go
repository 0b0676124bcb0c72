package natslog

import (
	"sync/atomic"

	"github.com/dnprelay/dnprelay/internal/fence"
)

// Verdicts counts answers.
type Verdicts struct{ OK, Stale, Busy, Unknown, Unreachable uint64 }

// Stats are counters since Open.
type Stats struct {
	Appends, Reads Verdicts
	Bytes          uint64 // of writes
	Steps          uint64 // requests for reads
	Refused        uint64 // writes that the store refused for want of space, leader or time
	TooLarge       uint64 // writes that are larger than a message may be
	Late           uint64 // answers to what was given up
}

type verdicts [fence.Unreachable + 1]atomic.Uint64

func (v *verdicts) load() Verdicts {
	return Verdicts{
		OK: v[fence.OK].Load(), Stale: v[fence.Stale].Load(), Busy: v[fence.Busy].Load(),
		Unknown: v[fence.Unknown].Load(), Unreachable: v[fence.Unreachable].Load(),
	}
}

// counters are bumped by some goroutines.
type counters struct {
	appends, reads                  verdicts
	bytes, steps, refused, tooLarge atomic.Uint64
}

// Stats returns the counters.
func (l *Log) Stats() Stats {
	c := &l.counts
	return Stats{
		Appends: c.appends.load(), Reads: c.reads.load(), Bytes: c.bytes.Load(), Steps: c.steps.Load(),
		Refused: c.refused.Load(), TooLarge: c.tooLarge.Load(), Late: l.writes.Late() + l.steps.Late(),
	}
}
