// Package cluster holds the rules by which nodes share the work: which shard a space belongs to
// ([Shard]), what a node tells the others about itself ([Member]), which nodes there are
// ([Roster]), which relay should hold which shard ([Roster.Holder]), and which relay holds it
// ([Lease]).
//
// A roster is a hint. It is late by about a second, two nodes may see different ones, and gossip
// has no protection against replay. So nothing unsafe may follow from a wrong roster: it decides
// which relay tries to get a lease, never which one has it. A wrong roster may cost a detour, or
// a needless hand-over. Whoever has a gossip key can put ghosts into it, so relays give shards only
// to those that also announced themselves where only relays can ([Announced]).
//
// A Lease is one relay's view of one shard: a state machine that is told the time, the answers of
// the lease store and the records that the watch saw, and says what to ask of the store next and
// whether this relay holds the shard. DESIGN.md is the protocol. [Leases] is the port that a
// relay calls; natslease implements it over JetStream.
//
// [Affinity] is the port by which edges share who serves which session.
//
// The package is pure: its rules are functions of their arguments. The adapter cluster/gossip
// fills rosters.
package cluster
