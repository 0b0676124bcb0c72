package compose

import (
	"fmt"
	"testing"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/subject"
)

// TestProbeTellsShardsApart checks that a probe shows a server or a relay that counts another number of
// shards, if this node counts the default, or both count powers of two.
func TestProbeTellsShardsApart(t *testing.T) {
	answer := func(server, relay int) []byte {
		return fmt.Appendf(nil, `{"shard":%d,"shards":%d}`, cluster.Shard(subject.ProbeSpace, server), relay)
	}
	if problem := probeProblem(answer(64, 64), 64); problem != "" {
		t.Errorf("all count 64 shards: %s", problem)
	}
	for n := 1; n <= 1024; n++ {
		if n != 64 && (probeProblem(answer(n, 64), 64) == "" || probeProblem(answer(64, n), 64) == "") {
			t.Errorf("a server or relay with %d shards is not noticed", n)
		}
	}
	for a := 1; a <= 1<<16; a *= 2 {
		for b := 1; b <= 1<<16; b *= 2 {
			if problem := probeProblem(answer(a, b), b); (problem == "") != (a == b) {
				t.Errorf("a server with %d shards, nodes with %d: %q", a, b, problem)
			}
		}
	}
}
