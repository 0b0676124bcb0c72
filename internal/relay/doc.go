// Package relay is the node that has authority over spaces.
//
// A relay takes what publishers, game servers and edges ask for, gives it to the
// [replication.Store] of the space, and sends what comes out: batches to whoever
// follows the space, answers, events. The shards that it holds are dealt out to
// lanes; a lane is one goroutine that owns the stores of its shards, so no store
// is ever locked.
//
// What a lane does is a function of the message and the time ([Lane.Turn]); the loop that reads the clock is in run.go and holds no rule.
package relay
