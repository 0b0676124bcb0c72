// Package bustest is the suite of tests that every replication.Bus has to pass,
// so that what was proven with the one in memory holds for the real one.
//
//	bustest.Run(t, func(t *testing.T) bustest.Net { ... })
package bustest
