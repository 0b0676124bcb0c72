package edge

import (
	"context"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/udp"
	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/internal/edge/takeover"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/replication"
)

// Counts are what an edge counts beside its endpoints and sockets.
type Counts struct {
	Sessions        int64  // now
	Levels          int64  // levels of detail of states that some client has, now
	Events          uint64 // published for game servers
	EventsLost      uint64 // refused by the bus
	MessagesIn      uint64 // from clients to game servers
	MessagesOut     uint64 // to clients
	MessagesLost    uint64 // refused by the bus
	MessagesRefused uint64 // to clients; empty, too large, or too many
	AnswersLost     uint64
	RepairsLost     uint64
	WritesForbidden uint64 // by clients that may not write the state
	WritesRefused   uint64 // by the holder
	WritesRepeated  uint64 // not answered in time, or answered "try again"
	WritesDropped   uint64 // by clients that write more than is kept for them
	LinksRefused    uint64 // not offered because the client has too many
	OffersRefused   uint64 // states of clients
	DropsForgotten  uint64 // states that a client took back, of which the holder hears only when it leaves
	TasksLost       uint64 // bus messages that did not fit into an inbox
	Callouts        uint64 // requests to the game's service

	takeover.Counts // of durable sessions

	Logins [auth.NumReasons]uint64 // by what became of them
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
	if w.takeover != nil {
		c.Counts = w.takeover.Counts()
	}
	return c
}

func (w *Worker) stats() Stats {
	s := Stats{Counts: w.Counts(), Protocol: *w.ep.Stats(), Replicas: w.past, Spaces: len(w.order)}
	s.TasksLost = w.lost.Load()
	s.InboxBytes, s.InboxTasks = w.queued.Load(), int64(len(w.tasks))
	for _, sp := range w.order {
		telemetry.Sum(&s.Replicas, sp.replica.Stats())
		s.States += sp.replica.Len()
	}
	return s
}
