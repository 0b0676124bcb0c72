// Package compose has the commands that run nodes, and what other commands share with them:
// connections to NATS, and the health that /readyz reports. It belongs to the commands, so
// it may import every adapter.
//
// With --edges, relay dev runs the program edge for each edge, as a node of a cluster: gossip, forwarding, a session
// log, and claims in a Redis that another process of that program serves. A new port for each edge would not do, because a client of
// UDP knows one address, and the port is a part of its session's name. So all edges share one (SO_REUSEPORT), and the
// kernel is the balancer: it sends the clients of a dead edge to the others.
package compose
