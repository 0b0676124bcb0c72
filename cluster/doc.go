// Package cluster holds the rules by which nodes share the work: which shard a
// space belongs to ([Shard]), what a node tells the others about itself
// ([Member]), who is there ([Roster]), and which relay should hold which shard
// ([Roster.Holder]).
//
// A roster is a hint. It is late by about a second, two nodes may see different
// ones, and gossip has no protection against replay. So nothing unsafe may
// follow from a wrong roster: it decides who tries to get a lease, never who has
// it. What it may cost is a detour, or a hand-over that was not needed.
//
// It is pure: rules are functions of what is given to them. The adapter
// cluster/gossip fills rosters.
package cluster
