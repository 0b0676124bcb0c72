// Package dnp is the Drag[en]gine Network Protocol without I/O: connections,
// reliable commands, and links that keep network states equal between peers.
//
// An [Endpoint] holds the connections of one UDP socket, in both roles. Its owner
// drives it; it never acts on its own:
//
//	events := e.Receive(now, from, datagram, out) // a datagram arrived
//	events := e.Advance(now, out)                 // NextTimeout is due, or something was queued
//	e.Flush(now, out)                             // send changed values, if e.Pending()
//
// A [Source] is a network state that any number of connections share. Its owner
// sets values of the [netstate.State] and calls [Source.Changed]; Flush sends each
// linked peer the newest values that it lacks. Nothing is queued for a slow peer: a link
// remembers only, in four bytes, up to which version the peer was sent values.
//
// A [Conn] carries messages ([Conn.Send], [Conn.SendUnreliable]) and links of
// both directions ([Conn.Link] offers, [Conn.Accept] and [Conn.Reject] answer).
//
// One goroutine owns an Endpoint and everything that it hands out. The package has
// no clock, goroutine, socket, log or lock: time is an argument, datagrams go to a
// [Sender], a list of [Event] reports what happened, and the counters in [Stats]
// report what was wrong with the input. The caller decides what a state means and
// who may see it.
//
// PROTOCOL.md describes what real peers send and tolerate, DESIGN.md why this
// package is built as it is and what it costs.
package dnp
