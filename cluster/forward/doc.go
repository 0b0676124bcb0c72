// Package forward carries datagrams of clients between edges. A balancer may bring a
// client's datagram to an edge that does not serve the client: that edge sends it to the
// one that does, and the answers leave by the edge whose address the client knows.
//
// It is pure: a [Router] is given the time, what the local workers want to send and what
// came from other edges, and says what the edge has to do.
//
//	r.SetKeys(ring)                               // of gossip; the first key seals
//	r.SetPeers(now, peers)                        // of the roster
//	r.In(now, node, client, 0, data, out)         // a datagram of a client that node serves
//	r.Out(now, via, client, epoch, data, out)     // an answer, by the edge that the client knows
//	d := r.Receive(now, p, out)                   // from another edge: what the edge has to do with it
//	r.Advance(now, out)                           // heartbeats
//
// Datagrams between edges are sealed: authenticated, encrypted, bound to one sender process
// and one receiver process, and accepted once. Which edge serves a client, the edge has to
// know: its location table is a hint, and the log of a session decides. The router remembers
// only the highest epoch of each session, so that no answer of an owner that was replaced
// reaches a client.
//
// It opens no socket and asks no store: package forward/socket and the edge do that.
// DESIGN.md has the layout of the datagram and the reasons of its rules.
package forward
