package relay

import (
	"context"

	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/replication"
)

// Counts are what a relay counts beside its stores.
type Counts struct {
	Publishes     uint64 // messages of publishers
	Refused       uint64 // of those and gets, before they reached a store
	Batches       uint64
	Repairs       uint64 // answered
	Malformed     uint64 // messages of edges
	Lost          uint64 // messages that the bus did not take
	SpacesRefused uint64
	SessionsLost  uint64 // that no edge named any more
	InboxLost     uint64 // messages that did not fit into an inbox
}

// Stats are the counters of a relay, summed over its lanes.
type Stats struct {
	Counts
	Store  replication.StoreStats // summed over the spaces
	Spaces uint64
}

// Stats asks every lane for its counters. It fails when ctx ends before all have
// answered.
func (r *Relay) Stats(ctx context.Context) (Stats, error) {
	answers := make(chan Stats, len(r.lanes))
	for _, l := range r.lanes {
		l.postMsg(posted{kind: kindStats, stats: answers})
	}
	var sum Stats
	for range r.lanes {
		select {
		case s := <-answers:
			telemetry.Sum(&sum, &s)
		case <-ctx.Done():
			return sum, ctx.Err()
		}
	}
	return sum, nil
}

// Stats returns the counters of a lane, for a caller that turns it.
func (l *Lane) Stats() Stats { return l.stats() }

func (l *Lane) stats() Stats {
	s := Stats{Counts: l.counts, Spaces: uint64(len(l.spaces))}
	s.InboxLost = l.lost.Load()
	for _, sp := range l.spaces {
		telemetry.Sum(&s.Store, sp.store.Stats())
	}
	return s
}
