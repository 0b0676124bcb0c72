// Package clustertest runs a whole cluster in network namespaces, breaks it, and measures
// what players and game servers notice: three NATS servers, three relays and two edges,
// each a process in a namespace of its own, joined by a bridge. It needs root.
//
//	report, err := clustertest.Run(ctx, clustertest.Config{Bin: "bin", NATSConf: "deploy/nats/nats-server.conf", Rounds: 3})
//
// # Processes and clients
//
// A game server in this process publishes a counter to some states 50 times a second
// and changes others now and then. Clients of package dnptest in this process are
// connected to both edges: some over a clean path, some through a proxy that loses,
// doubles, delays and reorders datagrams by a seed. The edges reach NATS through proxies
// that can stall and reset. All times are of one monotonic clock.
//
// # Measurement
//
// Each round causes one fault and heals it. It measures for how long no publish was
// accepted, for how long some client received nothing, how long after the healing a
// publish was accepted again, and how long it took from the first holder until every
// client had the values of the game server. These are violations of a round: a client was
// disconnected or lost a link; a value went back without a change of holders, or more
// often than holders changed; a state that was accepted long before was lost; a removed
// state came back.
package clustertest
