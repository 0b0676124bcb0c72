// Package socket brings a [forward.Router] to a real network: one UDP socket and one
// goroutine, that of [Forwarder.Run], which owns the router.
//
// The workers of an edge put datagrams into a batch, which that goroutine sends as a
// whole. Datagrams from other edges go to [Config].Handle in batches. Nothing blocks a
// worker: when the goroutine does not keep up, datagrams are dropped and counted, as in a
// full socket.
package socket
