// Package natslease is [cluster.Leases] over JetStream: the leases of all shards and their
// durable keyframes, in a few streams.
//
//	leases, err := natslease.Open(ctx, natslease.Config{Conn: nc, Node: "relay-1", Shards: 64})
//	leases.OnEvent(handle)
//	go leases.Run(ctx)
//	leases.Want(7, 0) // and again every cluster.WantInterval
//
// [cluster.Lease] decides what to ask of the store, when, and what an answer means; this
// package carries it out. Each shard has two goroutines: one owns its Lease, the other does
// its reads and writes, one at a time. One more goroutine per stream watches the records of
// the shards, and a few load keyframes.
//
// The connection must not keep messages for later while it is broken
// (nats.ReconnectBufSize(-1)): a write that leaves long after it was given up does no harm,
// but costs a turn.
package natslease
