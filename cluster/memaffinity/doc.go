// Package memaffinity is [cluster.Affinity] for edges in one process.
//
//	hub := memaffinity.New(time.Now)
//	a, b := hub.Node("edge-1"), hub.Node("edge-2")
package memaffinity
