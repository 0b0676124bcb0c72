// Package rig runs a whole deployment as processes of one machine: NATS servers, Redis,
// relays and edges, each with an address of its own. The addresses are of the loopback
// network, or of network namespaces around a bridge, which needs root. Hosts in
// namespaces can be cut off from the others.
//
//	d, err := rig.Deploy(ctx, rig.Config{Bin: "bin", NATSConf: "deploy/nats/nats-server.conf", Dir: dir, NATS: 1, Relays: 1, Edges: 3})
//	defer d.Close()
//
// All processes end with this one. Namespaces have no names; they end with the last
// process and socket in them.
package rig
