// Package quorumlog is [sessionlog.Log] in three copies, each on a server of its own. A write
// is stored when two copies have it, so the death of one server delays nothing: there is no
// election.
//
//	log := quorumlog.New(quorumlog.Config{Copies: [3]sessionlog.Log{a, b, c}})
//	log.Append(write, func(a sessionlog.Answer) { … })
//
// The edge that writes to a log leads it: it has written a record to two copies at least, over
// exactly what they had, and they refuse whatever does not follow. DESIGN.md has the rules, with the
// failure that each one prevents.
package quorumlog
