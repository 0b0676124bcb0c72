// Package edge is the node that terminates DNP clients.
//
// An edge is a number of workers, each with a socket of its own on every
// listener address it serves (SO_REUSEPORT), its own connections and its own
// replicas. Nothing on the path from a batch of changes to a datagram is shared
// between workers, so nothing on it is locked.
//
// What a worker does is a function of what it is given: datagrams, tasks and the
// time ([Worker.Turn]). The loop that reads the socket and the clock is in run.go
// and holds no rule, so a simulation can turn workers without either.
//
// An edge keeps no truth. Values come from the replicas, whose authority is a
// relay; what clients write goes to that relay and comes back.
package edge
