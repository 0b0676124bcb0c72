// Package cluster holds the rules by which nodes share the work: which shard a space belongs to
// ([Shard]), what a node tells the others about itself ([Member]), which nodes there are
// ([Roster]), and which relay should hold which shard ([DrawShard]).
//
// A roster is a hint. It is late by about a second, two nodes may see different ones, and gossip
// has no protection against replay. So nothing unsafe may follow from a wrong roster: for edges it decides
// who tries to take a session over, never who has it. Relays do not need it: which relays live and which one holds a shard is
// in the store ([lease]). [Leases] is the port that a relay calls; natslease implements it over JetStream.
//
// [Affinity] is the port by which edges share who serves which session.
//
// The package is pure: its rules are functions of their arguments. The adapter cluster/gossip
// fills rosters.
package cluster
