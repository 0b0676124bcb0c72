// Package affinitytest is what every cluster.Affinity has to pass.
//
//	affinitytest.Run(t, func(t *testing.T, nodes ...string) []affinitytest.Node { ... })
package affinitytest
