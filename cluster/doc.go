// Package cluster holds the rules by which nodes share the work: which shard a
// space belongs to.
//
// It is pure: rules are functions of what is given to them.
package cluster
