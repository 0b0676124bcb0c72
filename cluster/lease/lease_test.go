package lease_test

import (
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/lease"
	"github.com/dnprelay/dnprelay/internal/fence"
)

// TestRevokedBeforeItBegan revokes the lease of a relay whose first write has no answer. An incarnation that was revoked never writes again, so the
// relay begins another one. Otherwise others take its shards, although it holds them.
func TestRevokedBeforeItBegan(t *testing.T) {
	l := newLease()
	now := time.Now()
	first := written(l.Advance(now)).Record
	if first.Incarnation == "" {
		t.Fatal("a relay that knows all records does not begin")
	}
	now = now.Add(3 * time.Second)
	l.Saw(now, "a", lease.Record{Seq: 7, Incarnation: first.Incarnation, Revoked: "b"})
	if second := written(l.Advance(now)); second.Record.Incarnation == first.Incarnation || second.Expect != 7 {
		t.Errorf("after the incarnation %q was revoked by record 7, the relay writes %+v on the condition that %d is the last", first.Incarnation, second.Record, second.Expect)
	}
}

// TestRefusedWritesAreRepeated refuses writes of a lease, as a store does that has another write under way. The relay repeats them at once: others
// revoke a lease that has not changed for 1.1 s.
func TestRefusedWritesAreRepeated(t *testing.T) {
	l := newLease()
	now := time.Now()
	l.Wrote(now, now, written(l.Advance(now)).Record, lease.Answer{Verdict: fence.OK, Seq: 1})
	now = now.Add(400 * time.Millisecond) // so that the next write is due
	began, n := now, 0
	for now.Sub(began) < time.Second {
		if w := written(l.Advance(now)); w.Record.Incarnation != "" {
			l.Wrote(now, now, w.Record, lease.Answer{Verdict: fence.Busy})
			n++
		}
		at, ok := l.NextTimeout()
		if !ok || !at.After(now) {
			t.Fatalf("after %d refusals the relay asks for no pause", n)
		}
		now = at
	}
	if n < 6 || n > 20 {
		t.Errorf("a write that is refused is asked %d times in a second, want 6 to 20", n)
	}
}

// newLease returns the lease of relay a, in a stream without records.
func newLease() *lease.Lease {
	l := lease.New(lease.Config{Node: "a", Start: "a1", Shards: []int{0}, Draw: cluster.DrawShard})
	l.Primed()
	return l
}

// written returns the write among actions; the zero Action if there is none.
func written(all []lease.Action) (w lease.Action) {
	for _, a := range all {
		if a.Kind == lease.ActionWrite {
			w = a
		}
	}
	return w
}
