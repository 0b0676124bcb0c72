package replication

// StoreStats are the counters of a Store.
type StoreStats struct {
	Publishes, PublishErrors uint64 // messages; ops that failed
	Writes, WritesRefused    uint64
	WritesStale              uint64 // repeated or overtaken writes, answered ok
	ValuesOutOfRange         uint64 // that clients wrote and that were refused: below min or above max
	ValuesNotFinite          uint64 // NaN or infinite
	ValuesTooOften           uint64 // above their rate
	RefusedUntold            uint64 // refused events that were left out, see refusedPause
	ValuesChanged            uint64 // marked for emission
	ValuesFiltered           uint64 // within precision of what was emitted
	Batches, BatchBytes      uint64
	Checksums                uint64 // records
	Ranges, Keyframes        uint64 // repair answers by kind
	RepairMalformed          uint64
	RepairForeign            uint64 // requests for a later epoch
	Busy                     uint64 // publishes and writes answered busy
	SessionsRefused          uint64 // joins beyond the limit
	States, Views            uint64 // current
}

// refused counts a value that a client wrote and that was refused.
func (s *StoreStats) refused(r Refusal) {
	switch r {
	case RefusedMin, RefusedMax:
		s.ValuesOutOfRange++
	case RefusedFinite:
		s.ValuesNotFinite++
	case RefusedRate:
		s.ValuesTooOften++
	}
}
