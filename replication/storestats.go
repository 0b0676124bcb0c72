package replication

// StoreStats are the counters of a Store.
type StoreStats struct {
	Publishes, PublishErrors uint64 // messages; ops that failed
	Writes, WritesRefused    uint64
	WritesStale              uint64 // repeated or overtaken writes, answered ok
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
