// Package redisaffinity is [cluster.Affinity] over Redis 7, or a compatible server.
//
//	aff, err := redisaffinity.Open(redisaffinity.Config{URL: "rediss://edge:secret@redis:6379/0", Node: "edge-1"})
//	aff.OnReplaced(handle)
//	go aff.Run(ctx)
//	aff.Claim(name, epoch)
//
// Open does not need Redis, and no call waits for it: while Redis is away, questions are answered at once
// with an error, and claims are written when it is back. There are four goroutines: one renews the lease
// of the node and so finds out whether Redis is there and whether it lost its data, one writes claims,
// some hundred at a time, and two ask the questions that came meanwhile, several at a time.
//
// DESIGN.md has the keys, the scripts and the cost.
package redisaffinity
