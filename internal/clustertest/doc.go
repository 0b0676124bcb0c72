// Package clustertest runs a whole cluster on one machine, breaks it, and measures
// what players and game servers notice: three NATS servers, three relays and two
// edges, each a process in a network namespace of its own, joined by a bridge.
//
//	report, err := clustertest.Run(ctx, clustertest.Config{Bin: "bin", NATSConf: "deploy/nats/nats-server.conf", Rounds: 3})
//
// # What runs
//
// A game server in this process publishes a counter to some states 50 times a second
// and changes others now and then. Model clients of package dnptest in this process
// are connected to both edges: some over a clean path, some through a proxy that
// loses, doubles, delays and reorders datagrams by a seed. The edges reach NATS
// through proxies that can stall and reset. So everything is measured by one monotonic
// clock.
//
// # What is measured
//
// Each round strikes once and then heals. It says for how long no publish was
// accepted, for how long some client was sent nothing, how long after the healing a
// publish was accepted again, and how long it took from when there was a holder until
// every client had what the game server says. A round has violations if a client was
// disconnected or lost a link, if a value went back although no other holder took
// over, or more often than holders changed, if something that was accepted long
// before was lost, or something removed came back.
//
// Namespaces have no names: they live as long as this process, whatever ends it, and
// so do the processes in them. It needs Linux and root.
package clustertest
