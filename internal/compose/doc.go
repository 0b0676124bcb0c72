// Package compose builds what several commands run: nodes from their flags, connections
// to NATS, and the health that /readyz reports. It belongs to the commands, so it may
// import every adapter.
package compose
