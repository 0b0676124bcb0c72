// Package movelog is [sessionlog.Log] over two stores, between which the log of a session moves
// while the session lives: the replicated streams, whose leader is elected again when a server
// dies, and the three copies of the quorum mode, which need no leader.
//
//	log := movelog.New(movelog.Config{Replicated: a, Quorum: b, Mode: movelog.Quorum, May: …})
//	log.Append(write, func(a sessionlog.Answer) { … })
//
// Edges of both modes use both stores, side by side, for as long as a change of the mode takes. A
// log lives in one store at a time. It moves with a checkpoint that an edge of the other mode
// writes. DESIGN.md has the rules, with the failure that each one prevents, and what they cost.
package movelog
