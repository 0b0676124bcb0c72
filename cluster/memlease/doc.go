// Package memlease is cluster.Leases over a store in memory, for simulations.
//
//	hub := memlease.New(memlease.Config{Schedule: net.Schedule, Now: net.Now, Rand: rnd, Loss: 0.01})
//	leases := hub.Node("relay1", "start1", 64)
//	...
//	hub.SetSilent(true) // the store elects a leader
//	hub.Cut("relay1", true)
//
// The leases themselves are the product's ([cluster.Lease]); only the store is a
// model: linearizable like a JetStream stream, with a latency, with answers that
// are lost, writes that are applied late, and times when nothing is answered.
//
// It belongs to one goroutine: that which runs the scheduled functions.
package memlease
