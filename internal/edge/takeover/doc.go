// Package takeover keeps the durable sessions of one worker of an edge: sessions that are
// in a log, so that another edge can go on with them.
//
// It decides which sessions this worker opens, takes over from other edges, hands over
// and gives up; where orphan datagrams go, those of clients that the worker does not
// serve; and by which return path answers reach their clients. A [Takeover] is driven by
// the turns of its worker:
//
//	t.Begin(now)                                       // a turn begins
//	taken := t.Intercept(now, from, p, edge, hops)     // a datagram; if it is not taken, it is the endpoint's
//	t.Connected(now, conn, id, claims)                 // a client proved its address
//	t.Handle(now, &event)                              // of the endpoint
//	next = t.Advance(now, next)                        // do what is due
//
// It acts through its [Host] and its [Ports], and handles their answers on a later turn of the
// worker, see Host.Must. The rules of a single session, and what its log holds, are those
// of package sessionlog.
//
// It starts no goroutine, reads no clock and has no lock but the [Guard] that it is given. It
// knows nothing of links and states: the host begins and resumes the fan-out to a client.
// DESIGN.md has the failures that the rules prevent.
package takeover
