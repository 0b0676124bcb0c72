// Package protocol is what an edge and a client say to each other in Godot's Variants, without sockets, goroutines and clocks.
// INTERFACES.md has the messages ("Clients that speak Variants"), DESIGN.md in the folder above the reasons.
//
// A [Core] is one client: it follows the states that the client sees, and turns what the client says into calls of its
// [Client], which is a client of DNP. A Core does not know how messages travel. A [Stream] carries them by WebSocket, where
// nothing gets lost, a [Channel] in datagrams, where it numbers, acknowledges and repeats them:
//
//	s := protocol.NewStream(protocol.Config{Dialect: variant.Godot3, Client: c}, now)
//	s.Receive(now, message)           // of the peer; calls c.Hello, which calls s.Core().Welcome when it has a connection
//	s.Core().Linked(now, id, state)   // of the edge
//	s.Advance(now, emit)              // now and at s.NextTimeout
//
// All of a peer belongs to one owner, who calls one method at a time.
package protocol
