// Package logtest is what every session.Log has to pass: the chain that expected
// sequences make, writers that race, checkpoints that delete, and a writer that follows
// the rules of a session while answers get lost.
//
//	logtest.Run(t, func(t *testing.T) *logtest.Store { ... })
//
// The logs of one Store share what is stored, as those of several edges do.
package logtest
