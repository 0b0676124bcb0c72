// Package cluster holds the rules by which nodes share the work: which shard a
// space belongs to, and which relay may speak for a shard.
//
// A [Lease] is one relay's view of one shard: a state machine that is told the
// time, what the lease store answered and what the watch saw, and says what to
// ask of the store next and whether this relay holds the shard. DESIGN.md beside
// it is the protocol. [Leases] is what a relay calls; natslease is it over
// JetStream.
//
// The package is pure: rules are functions of what is given to them.
package cluster
