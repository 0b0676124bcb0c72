// Package cluster holds the rules by which nodes share the work: which shard a
// space belongs to ([Shard]), what a node tells the others about itself
// ([Member]), who is there ([Roster]), which relay should hold which shard
// ([Roster.Holder]), and which relay may speak for it ([Lease]).
//
// A roster is a hint. It is late by about a second, two nodes may see different
// ones, and gossip has no protection against replay. So nothing unsafe may
// follow from a wrong roster: it decides who tries to get a lease, never who has
// it. What it may cost is a detour, or a hand-over that was not needed.
//
// A Lease is one relay's view of one shard: a state machine that is told the
// time, what the lease store answered and what the watch saw, and says what to
// ask of the store next and whether this relay holds the shard. DESIGN.md beside
// it is the protocol. [Leases] is what a relay calls; natslease is it over
// JetStream.
//
// The package is pure: rules are functions of what is given to them. The adapter
// cluster/gossip fills rosters.
package cluster
