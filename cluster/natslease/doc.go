// Package natslease is [cluster.Leases] over JetStream: the leases of all shards and their
// durable keyframes, in a few streams.
//
//	leases, err := natslease.Open(ctx, natslease.Config{Conn: nc, Node: "relay-1", Shards: 64})
//	leases.OnEvent(handle)
//	go leases.Run(ctx)
//	leases.Alive(7, true) // and again every lease.AliveInterval
//
// [lease.Lease] decides what to ask of the store, when, and what an answer means; this
// package carries it out. Each stream has a goroutine that owns its Lease, one that watches its records, and a few that load
// keyframes. Requests of all streams share one jetstream.Requester.
//
// The connection must not keep messages for later while it is broken
// (nats.ReconnectBufSize(-1)): a write that leaves long after it was given up does no harm,
// but costs a turn.
package natslease
