package memaffinity_test

import (
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/memaffinity"
)

// TestTryEnds checks that an attempt without a claim is over after a second.
func TestTryEnds(t *testing.T) {
	now := time.Unix(1000, 0)
	hub := memaffinity.New(func() time.Time { return now })
	trying := func(n *memaffinity.Node) (who string) {
		n.Try("S", cluster.Served{}, func(s cluster.Served, _ error) { who = s.Trying })
		return who
	}
	a, b := hub.Node("a"), hub.Node("b")
	if trying(a) != "a" || trying(b) != "a" {
		t.Error("a does not get the permission")
	}
	now = now.Add(time.Second)
	if got := trying(b); got != "b" {
		t.Errorf("%q tries, want b: the second of a is over", got)
	}
}
