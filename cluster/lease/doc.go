// Package lease has the rules by which relays agree on the holder of each shard of a store stream, without clock and network.
// DESIGN.md has the protocol and the failure that each rule prevents.
package lease
