package edge

import (
	"context"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/udp"
	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/internal/edge/fanout"
	"github.com/dnprelay/dnprelay/internal/edge/takeover"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/replication"
)

// Counts are what an edge counts beside its endpoints and sockets.
type Counts struct {
	fanout.Counts
	TasksLost uint64 // bus messages that did not fit into an inbox
	Callouts  uint64 // requests to the game's service

	Durable takeover.Counts         // of durable sessions
	Logins  [auth.NumReasons]uint64 // by what became of them
}

// Stats are the counters of an edge, summed over its workers.
type Stats struct {
	Counts
	Protocol   dnp.Stats
	Socket     udp.Stats
	Replicas   replication.ReplicaStats
	Spaces     int    // followed, per worker
	States     int    // in the replicas of all workers
	InboxBytes int64  // of the bus, waiting
	InboxTasks int64  // the same, in tasks
	BadHeads   uint64 // heads that were malformed
}

// Stats asks every worker for its counters. It fails when ctx ends before all
// have answered.
func (e *Edge) Stats(ctx context.Context) (Stats, error) {
	answers := make(chan Stats, len(e.workers))
	for _, w := range e.workers {
		w.post(0, func(w *Worker, _ time.Time) { answers <- w.stats() })
	}
	var sum Stats
	for range e.workers {
		select {
		case s := <-answers:
			telemetry.Sum(&sum, &s)
		case <-ctx.Done():
			return sum, ctx.Err()
		}
	}
	sum.BadHeads = e.feeds.badHeads.Load()
	for _, s := range e.sockets {
		stats := s.Stats()
		telemetry.Sum(&sum.Socket, &stats)
	}
	return sum, nil
}

// Counts returns what the worker counted, for a caller that turns it.
func (w *Worker) Counts() Counts {
	c := w.counts
	telemetry.Sum(&c.Counts, w.spaces.Counts())
	if w.takeover != nil {
		c.Durable = w.takeover.Counts()
	}
	return c
}

func (w *Worker) stats() Stats {
	s := Stats{Counts: w.Counts(), Protocol: *w.ep.Stats(), Replicas: w.past}
	s.TasksLost, s.InboxBytes, s.InboxTasks = w.tasks.Lost(), w.tasks.Bytes(), int64(w.tasks.Len())
	for r := range w.spaces.Replicas {
		telemetry.Sum(&s.Replicas, r.Stats())
		s.Spaces++
		s.States += r.Len()
	}
	return s
}
