package replication

import (
	"slices"
	"testing"
	"time"
)

// TestRemoved: a state that was removed is among those to be told to the durable store from the removal until TakeDirty.
func TestRemoved(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.ok(mortal("a", time.Second))
	s.ok(mortal("b", time.Minute))
	s.passes(500 * time.Millisecond)
	s.TakeDirty(nil, 9)
	a, b := s.states.byKey["a"].Number, s.states.byKey["b"].Number
	want := func(why string, has bool, removed ...uint64) {
		t.Helper()
		if got := slices.Collect(s.Removed()); !slices.Equal(got, removed) || s.Has(a) != has || !s.Has(b) {
			t.Errorf("%s: %v were removed, want %v; a is there: %v, b is there: %v", why, got, removed, s.Has(a), s.Has(b))
		}
	}
	want("both are stored", true)
	s.ok(Op{Kind: OpRemove, Key: "a"})
	want("a was removed, before the batch", false, a)
	s.passes(time.Second)
	want("a was removed", false, a)
	s.TakeDirty(nil, 9)
	want("its end is on the way", false)
	s.MarkDirty(s.now, a)
	want("it could not be stored", false, a)
}
