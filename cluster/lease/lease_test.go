package lease_test

import (
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/lease"
)

// TestRevokedBeforeItBegan revokes the lease of a relay whose first write has no answer. An incarnation that was revoked never writes again, so the
// relay begins another one. Otherwise others take its shards, although it holds them.
func TestRevokedBeforeItBegan(t *testing.T) {
	l := lease.New(lease.Config{Node: "a", Start: "a1", Shards: []int{0}, Draw: cluster.DrawShard})
	now := time.Now()
	write := func() (w lease.Action) {
		for _, a := range l.Advance(now) {
			if a.Kind == lease.ActionWrite {
				w = a
			}
		}
		return w
	}
	l.Primed()
	first := write().Record
	if first.Incarnation == "" {
		t.Fatal("a relay that knows all records does not begin")
	}
	now = now.Add(3 * time.Second)
	l.Saw(now, "a", lease.Record{Seq: 7, Incarnation: first.Incarnation, Revoked: "b"})
	if second := write(); second.Record.Incarnation == first.Incarnation || second.Expect != 7 {
		t.Errorf("after the incarnation %q was revoked by record 7, the relay writes %+v on the condition that %d is the last", first.Incarnation, second.Record, second.Expect)
	}
}
