package relay

import (
	"context"
	"time"

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
	NotHeld       uint64 // messages for shards that this relay does not hold
	Stored        uint64 // states, by the durable store
	RestoreErrors uint64 // stored states that could not be read
}

// Stats are the counters of a relay, summed over its lanes.
type Stats struct {
	Counts
	Store  replication.StoreStats // summed over the spaces
	Spaces uint64
	Held   uint64 // shards

	InboxBytes, InboxMessages uint64 // waiting

	Unstored   uint64        // states that changed and are not stored
	DurableAge time.Duration // of the oldest of them
}

// Stats asks every lane for its counters. It fails when ctx ends before all have
// answered.
func (r *Relay) Stats(ctx context.Context) (Stats, error) {
	answers := make(chan Stats, len(r.lanes))
	for _, l := range r.lanes {
		l.command(command{kind: commandStats, stats: answers})
	}
	var sum Stats
	for range r.lanes {
		select {
		case s := <-answers:
			age := max(sum.DurableAge, s.DurableAge)
			telemetry.Sum(&sum, &s)
			sum.DurableAge = age
		case <-ctx.Done():
			return sum, ctx.Err()
		}
	}
	return sum, nil
}

// Stats returns the counters of a lane, for a caller that turns it.
func (l *Lane) Stats(now time.Time) Stats { return l.stats(now) }

// Store returns the store of a space for which the lane speaks, or else nil, for a
// caller that turns it.
func (l *Lane) Store(space string) *replication.Store {
	if sp, ok := l.spaces[space]; ok && sp.h.speaking {
		return sp.store
	}
	return nil
}

func (l *Lane) stats(now time.Time) Stats {
	s := Stats{Counts: l.counts, Store: l.past, Spaces: uint64(len(l.spaces))}
	s.InboxLost = l.lost.Load()
	s.InboxBytes, s.InboxMessages = uint64(max(0, l.queued.Load())), uint64(len(l.inbox))
	s.DurableAge = l.durableAge(now)
	for _, h := range l.holdings {
		if h.speaking {
			s.Held++
		}
		s.Unstored += uint64(h.dirty() + h.storing)
	}
	for _, sp := range l.spaces {
		telemetry.Sum(&s.Store, sp.store.Stats())
	}
	return s
}
