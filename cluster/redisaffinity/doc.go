// Package redisaffinity is cluster.Affinity over Redis (7, or what speaks like it).
//
//	aff, err := redisaffinity.Open(redisaffinity.Config{URL: "rediss://edge:secret@redis:6379/0", Node: "edge-1"})
//	aff.OnReplaced(handle)
//	go aff.Run(ctx)
//	aff.Claim(name, epoch)
//
// Open does not need Redis to be there, and nothing waits for it: what is asked while it
// is away is answered at once with an error, and claims are written when it is back. Four
// goroutines do everything: one renews the lease of the node and so finds out whether
// Redis is there and whether it forgot, one writes claims some hundred at a time, and two
// ask what was asked meanwhile together.
//
// DESIGN.md has the keys, the scripts and the cost.
package redisaffinity
