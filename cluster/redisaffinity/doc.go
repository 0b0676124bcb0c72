// Package redisaffinity is [cluster.Affinity] over one or two servers of Redis 7, or compatible ones.
//
//	aff, err := redisaffinity.Open(redisaffinity.Config{URLs: []string{"rediss://edge:secret@redis:6379/0"}, Node: "edge-1"})
//	aff.OnReplaced(handle)
//	go aff.Run(ctx)
//	aff.Claim(name, epoch)
//
// Open does not need Redis, and no call waits for it: while Redis is away, questions are answered at once
// with an error, and claims are written when it is back. Each server has four goroutines: one renews the lease
// of the node and so finds out whether the server is there and whether it lost its data, one writes claims,
// some hundred at a time, and two ask the questions that came meanwhile, several at a time.
//
// Two servers know nothing of each other. Each gets all claims and all questions, and the newest answer
// counts, so either may be away, or start again with nothing.
//
// DESIGN.md has the keys, the scripts and the cost.
package redisaffinity
