// Package dnp is the Drag[en]gine Network Protocol without I/O: connections,
// reliable commands, and links that keep network states equal between peers.
//
// An [Endpoint] is one UDP socket's worth of connections, of both roles. It is
// driven by its owner and never acts on its own:
//
//	events := e.Receive(now, from, datagram, out) // a datagram arrived
//	events := e.Advance(now, out)                 // NextTimeout is due, or something was queued
//	e.Flush(now, out)                             // send changed values, if e.Pending()
//
// A [Source] is a network state that is shared by any number of connections. Its
// owner sets values of the [netstate.State] and says [Source.Changed]; Flush
// sends each linked peer the newest values of what changed since that peer was
// last sent to. Nothing is queued for a slow peer: a link remembers only up to
// which version it was sent, so the cost of being behind is four bytes.
//
// A [Conn] carries messages ([Conn.Send], [Conn.SendUnreliable]) and links of
// both directions ([Conn.Link] offers, [Conn.Accept] and [Conn.Reject] answer).
//
// One goroutine owns an Endpoint and everything that it hands out. There is no
// clock, goroutine, socket, log or lock in here: time is an argument, datagrams
// go to a [Sender], what happened is a list of [Event], and what was wrong with
// the input is a counter in [Stats]. A state's meaning, and who may see it, are
// the business of the caller.
//
// PROTOCOL.md says what real peers send and tolerate, DESIGN.md why this package
// is built as it is and what it costs.
package dnp
