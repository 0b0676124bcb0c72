// Package forward carries datagrams of clients between edges: what a balancer
// brought to an edge that does not serve the client goes to the one that does, and
// the answers leave by the edge whose address the client knows.
//
// It is pure: a [Router] is given the time, what the local workers want and what
// came from other edges, and returns what is to be done.
//
//	r.SetKeys(ring)                        // of gossip; the first is sealed with
//	r.SetPeers(now, peers)                 // of the roster
//	r.In(now, client, 0, data, out)        // a datagram of a client that is not served here
//	r.Out(now, via, client, epoch, d, out) // an answer, by the edge that the client knows
//	d := r.Receive(now, p, out)            // from another edge: what has to be done with it
//	r.Advance(now, out)                    // heartbeats
//
// Datagrams between edges are sealed: authenticated, encrypted, bound to one sender
// and one receiver process, and accepted once. What the router believes about who
// serves whom is a hint, like everything in the cluster package: a wrong table costs
// a detour or a datagram, and the session's log decides who serves.
//
// It opens no socket and asks no store: package forward/socket and the edge do that.
// DESIGN.md has the layout of the datagram and the reasons of its rules.
package forward
