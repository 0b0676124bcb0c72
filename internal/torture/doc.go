// Package torture breaks edges under running sessions and measures what clients and the
// game server notice: NATS servers, Redis, a relay and three edges, each a process on
// loopback; 50 model clients of package dnptest behind a balancer in this process; and a
// game server made with package publisher.
//
//	verdict, err := torture.Run(ctx, torture.Config{Bin: "bin", File: "history.jsonl", …})
//
// # History and check
//
// What everybody did is written to a file, one JSON record on a line: each message as it
// is said, heard, told and got, each session that is closed, each fault with its begin
// and end, and each silence of a client longer than 25 ms. Check reads such a file, knows
// nothing of the run, and says what was lost, doubled, out of order or interrupted and
// how long clients were without a datagram around each fault.
//
// # Balancer
//
// A client's flow is pinned to an edge, as kube-proxy does it: datagrams go there, and
// only answers from there come back. An edge that dies, stops or is not ready any more
// loses its flows after a delay. In spraying phases each datagram goes to any edge.
package torture
