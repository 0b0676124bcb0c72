package fanout

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
)

// A drainer closes connections evenly over a time: clients that are told at once connect again at once,
// to the edges that are left.
type drainer struct {
	conns  []*dnp.Conn // in the order in which they are closed
	closed int
	begin  time.Time
	window time.Duration
}

// Drain begins to close the connections of the worker, the last one before window is over.
func (s *Spaces) Drain(now time.Time, window time.Duration) {
	s.drainer = drainer{conns: slices.Collect(s.Endpoint.All), begin: now, window: window}
}

// advance closes what is due, and returns when there is more to do, next at the latest.
func (d *drainer) advance(now, next time.Time) time.Time {
	for ; d.closed < len(d.conns); d.closed++ {
		at := d.begin.Add(d.window * time.Duration(d.closed) / time.Duration(len(d.conns)))
		if at.After(now) {
			return earlier(next, at)
		}
		d.conns[d.closed].Close(dnp.CloseDrain) // without effect if it has ended
		d.conns[d.closed] = nil
	}
	return next
}
