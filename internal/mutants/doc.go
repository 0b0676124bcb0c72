// Package mutants proves that tests notice faults: it builds a test program over a
// deliberate fault of one line and wants it to fail.
//
//	var list = []mutants.Mutant{
//		{Name: "replica_ignores_gap", File: "replication/replicarepair.go", Old: "h.Prev == r.seq", New: "true", Run: "Chaos"},
//	}
//
//	func TestMutantsApply(t *testing.T) { mutants.Check(t, list) }
//	func TestMutants(t *testing.T)      { mutants.Run(t, mutants.Config{...}, list) }
//
// The faults are replaced text, laid over the source while it is compiled, and not
// code behind build tags: the product has none of them and reads as if they did not
// exist. Check, which takes no time, finds a fault whose place in the source has
// changed, so a list cannot go stale unnoticed.
//
// A fault counts as noticed only if a test failed or the program panicked, and only
// after the same tests passed without any fault. What it does not do is make faults
// up: each is somebody's idea of a mistake that a simulation exists to find.
package mutants
