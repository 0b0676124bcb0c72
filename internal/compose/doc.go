// Package compose is what the commands put together the same way: the
// configuration of nodes from flags, the connection to NATS, and what /readyz
// says. It belongs to the commands, so it may import every adapter.
package compose
