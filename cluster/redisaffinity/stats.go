package redisaffinity

import "sync/atomic"

// Stats are counters since Open.
type Stats struct {
	Trips     uint64 // ways to Redis and back
	Writes    uint64 // claims, renewals and releases
	Asks      uint64 // questions that Redis answered
	Failures  uint64 // commands without an answer
	Odd       uint64 // answers that make no sense
	Refused   uint64 // questions and claims beyond the bounds
	Replaced  uint64 // claims that another node has in a later epoch
	Forgotten uint64 // times that Redis had lost its data
}

type counters struct {
	trips, writes, asks, failures, odd, refused, replaced, forgotten atomic.Uint64
}

// Stats returns the counters.
func (a *Affinity) Stats() Stats {
	c := &a.counts
	return Stats{
		Trips: c.trips.Load(), Writes: c.writes.Load(), Asks: c.asks.Load(), Failures: c.failures.Load(), Odd: c.odd.Load(),
		Refused: c.refused.Load(), Replaced: c.replaced.Load(), Forgotten: c.forgotten.Load(),
	}
}
