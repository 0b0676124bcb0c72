// Package natsbus implements bus.Bus over one NATS connection.
//
//	b, err := natsbus.Connect(natsbus.Config{URL: "nats://127.0.0.1:4222"})
//	...
//	defer b.Close()
//
// The connection is permanent: when it breaks, the package reconnects with growing pauses, and
// OnChange reports it. Meanwhile nothing is buffered: a message that is published without a
// connection is dropped with ErrDisconnected, because its receivers ask for something newer
// once they are connected again.
//
// A worker that serves players must not wait for a NATS server that does not read. Publish,
// Subscribe and Request therefore only append to an outgoing queue, bounded in bytes, which one
// goroutine empties into the connection.
//
// The package is core NATS only. Leases, keyframes and session logs, which use JetStream, have
// packages of their own.
package natsbus
