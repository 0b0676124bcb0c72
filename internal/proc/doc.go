// Package proc runs the programs of a deployment under test: it starts them, breaks
// them, and starts them again. All of them end when this process does.
package proc
