// Package mutants proves that tests notice faults: it builds a test program with a deliberate
// fault in one line and requires it to fail.
//
//	var list = []mutants.Mutant{
//		{Name: "replica_ignores_gap", File: "replication/replicarepair.go", Old: "h.Prev == r.seq", New: "true", Run: "Chaos"},
//	}
//
//	func TestMutantsApply(t *testing.T) { mutants.Check(t, list) }
//	func TestMutants(t *testing.T)      { mutants.Run(t, mutants.Config{...}, list) }
//
// A fault is replaced text, laid over the source during compilation, and not code behind build
// tags: the product contains no fault and its source shows none. Check, which is fast, finds a
// fault whose place in the source has changed, so that a list cannot become stale unnoticed.
//
// A fault counts as noticed only if a test fails or the program panics, and only after the same
// tests passed without any fault. It does not count if the time of the tests is over, which says as
// much about the machine as about the fault. The package does not invent faults: each one is a plausible
// mistake that a simulation should find.
package mutants
