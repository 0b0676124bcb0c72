// Package systest tests the whole system.
//
// A world (world_test.go) is relays, edges and clients in one goroutine with
// virtual time: the product's own code, turned by a seeded scheduler over a
// network and a bus that lose, delay, double and reorder. A failure prints its
// seed, and -seed repeats it. Clients are the models of dnp/dnptest, which share
// nothing with package dnp. What the simulations have, do and check, and the
// deliberate faults by which they are checked themselves, is in DESIGN.md.
//
// A stack (stack_test.go) is the same with a real NATS server and real sockets. Such tests mostly
// wait, so several of them run at once, after the simulations.
package systest
