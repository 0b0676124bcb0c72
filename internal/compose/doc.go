// Package compose has the commands that run nodes, and what other commands share with them:
// connections to NATS, and the health that /readyz reports. It belongs to the commands, so
// it may import every adapter.
package compose
