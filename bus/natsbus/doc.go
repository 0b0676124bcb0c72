// Package natsbus is replication.Bus over one NATS connection.
//
//	bus, err := natsbus.Connect(natsbus.Config{URL: "nats://127.0.0.1:4222"})
//	...
//	defer bus.Close()
//
// The connection is kept for ever: when it breaks, it is tried again with
// growing pauses, and OnChange tells. Nothing is kept for later meanwhile: a
// message that is published without a connection is dropped with
// ErrDisconnected, because by the time of the next connection its receivers have
// asked for something newer.
//
// A worker that serves players must not wait for a NATS server that does not
// read. Publish, Subscribe and Request therefore only append to an outgoing
// queue, bounded in bytes, which one goroutine empties into the connection.
//
// Only core NATS is here. What JetStream is used for (leases, keyframes, session
// logs) has adapters of its own.
package natsbus
