// Package simnet simulates a network and the time, so that a test with loss,
// reordering and hours of play takes a fraction of a second and repeats exactly.
//
// A [Net] is a heap of things that will happen, ordered by virtual time. Nothing
// in it runs concurrently: [Net.Run] takes the next thing, moves the time to it
// and does it. A [Node] is anything with Receive, Advance and NextTimeout; the
// Net calls Advance when the node's deadline is due and delivers datagrams,
// late, twice, damaged or not at all as the [Path] between two addresses says.
//
//	n := simnet.New(seed)
//	n.SetDefault(simnet.Path{Loss: 0.3, Delay: 20 * time.Millisecond, Jitter: 40 * time.Millisecond})
//	n.Attach(addr, node)
//	n.Send(from, to, datagram)
//	n.Run(10 * time.Second)
//
// Everything random comes from the seed. [Net.Hash] sums up all that happened,
// so that two runs can be compared.
package simnet
