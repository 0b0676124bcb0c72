// Package sessionlog keeps the connection of a client alive when the edge that serves
// it dies, is paused, or hands it over.
//
// Each session has a log: a chain of writes in a store, each of which names the
// sequence of the one before. The log alone says who owns a session. The owner
// stores what the client sent before it acknowledges it, and what a number means
// before it is sent for the first time; so whoever reads the log can go on where the
// owner was, and the client does not notice. A write that does not follow the last one
// is refused by the store, and that is how an owner that was replaced finds out.
//
// A [Session] is one session at one edge: a state machine without clock, goroutine or
// network. Its owner tells it what happened and carries out what it wants:
//
//	s := session.Open(cfg, log, conn, info)   // a client proved its address, or
//	s := session.Adopt(cfg, log)              // somebody else's session is wanted
//	s.Handle(now, &event)                     // an event of the connection
//	for _, a := range s.Advance(now) { ... }  // write, read, deliver, ...
//	s.Answer(now, answer)                     // what the log said
//
// where log is the name of the session's log; see [Key].
//
// The connection is a [dnp.Conn] of an Endpoint with Config.Logged, which holds back
// what must wait for the log. [Batches] puts the writes of many sessions together, and
// a [Log] carries them out; memlog is one in memory, with faults.
//
// DESIGN.md is the protocol, with the failure that each odd rule prevents.
package sessionlog
