// Package socket brings a [forward.Router] to a real network: one UDP socket and one
// goroutine, that of [Forwarder.Run], which owns the router.
//
// Workers of an edge put what they want into a batch, which that goroutine takes as a
// whole; what comes from other edges is handed to [Config].Handle in batches. Nothing
// blocks a worker: when the goroutine does not keep up, datagrams are dropped and
// counted, as a full socket would.
package socket
