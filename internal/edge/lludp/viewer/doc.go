// Package viewer is what an edge says to one viewer of Second Life or OpenSimulator, and understands of it: states become
// objects in a region, values that move become terse updates, and what the viewer moves and says becomes writes and messages.
// It is a function of time, datagrams and states, without a socket, clock or goroutine:
//
//	v, err := viewer.New(now, cfg)
//	o := v.Link(state)                       // and v.Changed(o, indices…), v.Unlink(o), v.Say(data)
//	v.Receive(now, datagram, out)
//	v.Advance(now, out)                      // when v.NextTimeout() says so
//	for _, c := range v.Calls() { … }        // what a DNP client has to do for the viewer
//
// A Viewer queues no values. It knows which states the viewer lacks, and reads their newest values when it sends them.
// Updates have no order in LLUDP, so a packet with values is never repeated: what the viewer did not confirm is sent again
// with the newest values.
//
// It does not know addresses, logins or links of DNP.
package viewer
