// Package takeover keeps the durable sessions of one worker of an edge: sessions that are
// in a log, so that another edge can go on with them.
//
// It decides which sessions this worker opens, takes over from other edges, hands over
// and gives up, where datagrams of clients go that the worker does not serve (orphan
// datagrams), and how answers reach their clients (return paths). A [Takeover] is driven
// by the turns of its worker:
//
//	t.Begin(now)                                  // a turn begins
//	if !t.TakeDatagram(now, from, p, path, hops) {...} // it is the endpoint's
//	t.Connected(now, conn, id, claims)            // a client proved its address
//	t.Handle(now, &event)                         // of the endpoint
//	t.Answer(now, session, answer)                // of the log
//	t.Located(now, question, served, err)         // of the affinity
//	next = t.Advance(now, next)                   // do what is due
//
// Everything that it wants done goes through its [Host]. Answers come back as method calls
// on a later turn of the worker. The rules of a single session, and what its log holds,
// are those of package sessionlog.
//
// It starts no goroutine, reads no clock and has no lock. It knows nothing of spaces,
// links and states: the host begins and resumes the fan-out to a client. DESIGN.md has the
// failures that the rules prevent.
package takeover
