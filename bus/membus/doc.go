// Package membus is replication.Bus in memory, for simulations.
//
//	hub, err := membus.New(membus.Config{Schedule: sim.After, Rand: rnd, Delay: time.Millisecond, Loss: 0.01})
//	relay, edge := hub.Node("relay"), hub.Node("edge")
//	...
//	hub.Cut("relay", "edge", true)
//
// Everything that it does is a function that it gives to Schedule, so that one
// seeded scheduler decides about order and time, and a run can be repeated. It
// loses, delays and doubles messages and cuts nodes off from each other or from
// the bus, but like NATS it never lets the messages of one publisher overtake
// each other on the way to one subscription.
//
// Unlike other buses this one belongs to one goroutine: that which runs the
// scheduled functions.
package membus
