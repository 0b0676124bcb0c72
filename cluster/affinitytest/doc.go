// Package affinitytest is the conformance suite of cluster.Affinity.
//
//	affinitytest.Run(t, func(t *testing.T, nodes ...string) []affinitytest.Node { ... })
package affinitytest
