// Package bustest is the test suite for implementations of bus.Bus. It makes sure that results
// of simulations with the bus in memory hold for NATS.
//
//	bustest.Run(t, func(t *testing.T) bustest.Net { ... })
package bustest
