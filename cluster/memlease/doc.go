// Package memlease is [cluster.Leases] over a store in memory, for simulations.
//
//	hub := memlease.New(memlease.Config{Schedule: net.Schedule, Now: net.Now, Rand: rnd, Loss: 0.01})
//	leases := hub.Node("relay1", "start1", 64)
//	...
//	hub.SetSilent(true) // the store elects a leader
//	hub.Cut("relay1", true)
//
// The leases are the product's ([cluster.Lease]); only the store is a model: linearizable like a
// JetStream stream, with a latency, answers that are lost, writes that are applied late, and outages in
// which it does not answer.
//
// It belongs to the goroutine that runs the scheduled functions.
package memlease
