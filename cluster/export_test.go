package cluster

// Phase returns the phase of the lease.
func (l *Lease) Phase() LeasePhase { return l.phase }

func (p LeasePhase) String() string {
	return [...]string{"following", "challenging", "acquiring", "holding", "releasing"}[p]
}

// Placement returns the names of the relays that should hold the shards 0 to shards-1; all are
// empty if no relay is ready.
func (r Roster) Placement(shards int) []string {
	names := make([]string, shards)
	for i := range names {
		names[i], _ = r.Holder(i)
	}
	return names
}
