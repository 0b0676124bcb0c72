// Package simnet simulates a network and its clock, so that a test with loss,
// reordering and hours of play takes a fraction of a second and repeats exactly.
//
// A [Net] is a heap of future events, ordered by virtual time. Nothing in it runs
// concurrently: [Net.Run] takes the next event, sets the clock to its time and executes
// it. A [Node] is anything with Receive, Advance and NextTimeout; the Net calls Advance
// when the node's deadline is due and delivers datagrams, late, twice, damaged or not at
// all as its [Path] says.
//
//	n := simnet.New(seed)
//	n.SetPath(simnet.Path{Loss: 0.3, Delay: 20 * time.Millisecond, Jitter: 40 * time.Millisecond})
//	n.Attach(addr, node)
//	n.Send(from, to, datagram)
//	n.Run(10 * time.Second)
//
// The seed determines everything random. [Net.Hash] is a hash of all that happened, by
// which two runs can be compared.
package simnet
