// Package sessionlog keeps the connection of a client alive when the edge that serves it dies,
// is paused, or hands it over.
//
// Each session has a log: a chain of writes in a store, each of which names the sequence of
// the one before. The log alone decides who owns a session. The owner stores a command of the
// client before it acknowledges it, and the meaning of a number before it sends that number
// for the first time; so another edge that reads the log can go on where the owner was, and
// the client does not notice. The store refuses a write that does not follow the last one,
// which is how an owner that was replaced finds out.
//
// A [Session] is one session at one edge: a state machine without clock, goroutine or network.
// Its caller tells it what happened and carries out its actions:
//
//	s := sessionlog.Open(cfg, log, conn, info)   // a client proved its address, or
//	s := sessionlog.Adopt(cfg, log)              // this edge wants the session of another
//	s.Handle(now, &event)                        // an event of the connection
//	for _, a := range s.Advance(now) { ... }     // write, read, deliver, ...
//	s.Answer(now, answer)                        // the answer of the log
//
// where log is the name of the session's log; see [Key].
//
// The connection is a [dnp.Conn] of an Endpoint with Config.Logged, which holds back what must
// wait for the log. A [Log] carries the writes out; memlog is one in memory, with faults.
//
// DESIGN.md is the protocol, with the failure that each odd rule prevents.
package sessionlog
