// Package logtest is the conformance suite of [sessionlog.Log]: chains of expected sequences, writers that
// race, checkpoints that delete, and a writer that follows the rules of a session while answers get lost.
//
//	logtest.Run(t, func(t *testing.T) *logtest.Store { ... })
//
// The logs of one Store share one store, as those of several edges do.
package logtest
