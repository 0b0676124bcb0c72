// Package torture breaks edges under running sessions and records what clients and the
// game server notice: NATS servers, Redis, a relay and three edges, each a process on
// loopback; 50 clients of package dnptest behind a balancer in this process; and a game
// server made with package publisher. Package history judges the records.
//
//	verdict, err := torture.Run(ctx, torture.Config{Bin: "bin", File: "history.jsonl", …})
//
// The balancer drops the flows of an edge that dies, stops or is no longer ready, after a
// delay. In the spray phase each datagram goes to any edge.
package torture
