//go:build linux

package k8stest

import (
	"strings"
	"testing"
)

// TestReplicas: workloads that lack a pod are not steady; one without any has no third field.
func TestReplicas(t *testing.T) {
	for _, c := range []struct {
		text string
		sum  int
		want string
	}{
		{"dnprelay-edge 2 2\ndnprelay-redis 1 1\ndnprelay-relay 2 2\ndnprelay-nats 3 3\n", 8, ""},
		{"dnprelay-edge 2 2\ndnprelay-nats 3 2\n", 0, "dnprelay-nats has 2 of 3 pods available"},
		{"dnprelay-redis 1 \n", 0, "dnprelay-redis has 0 of 1 pods available"},
		{"dnprelay-redis\n", 0, "a workload without a number of pods"},
		{"dnprelay-redis one 1\n", 0, "the number of pods of dnprelay-redis"},
	} {
		sum, err := replicas(c.text)
		if sum != c.sum || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %d, %v; want %d, %q", c.text, sum, err, c.sum, c.want)
		}
	}
}
