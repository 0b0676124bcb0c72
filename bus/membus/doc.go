// Package membus implements bus.Bus in memory, for simulations.
//
//	hub := membus.New(membus.Config{Schedule: sim.After, Rand: rnd, Delay: time.Millisecond, Loss: 0.01})
//	relay, edge := hub.Node("relay"), hub.Node("edge")
//	...
//	hub.Cut("relay", "edge", true)
//
// It gives everything that it does to Schedule as a function, so that one seeded scheduler
// decides about order and time, and a run can be repeated. It loses, delays and duplicates
// messages and cuts nodes off from each other or from the bus. Like NATS it keeps the order of
// the messages from one publisher to one subscription.
//
// Unlike other implementations it belongs to one goroutine: the one that runs the scheduled
// functions.
package membus
