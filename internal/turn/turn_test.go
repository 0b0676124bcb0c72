package turn

import (
	"slices"
	"sync"
	"testing"
)

func TestInboxBounds(t *testing.T) {
	woken := 0
	b := NewInbox[string](2, 10, func() { woken++ })
	for _, step := range []struct {
		value string
		size  int
		fits  bool
		why   string
	}{
		{"a", 6, true, "the inbox is empty"},
		{"b", 5, false, "11 bytes are more than the bound"},
		{"c", 4, true, "10 bytes are as many as the bound"},
		{"d", 0, false, "the inbox has two items"},
	} {
		if got := b.Post(step.value, step.size); got != step.fits {
			t.Fatalf("Post(%q) = %v, want %v: %s", step.value, got, step.fits, step.why)
		}
	}
	if b.Len() != 2 || b.Bytes() != 10 || b.Lost() != 2 || woken != 2 {
		t.Fatalf("%d items, %d bytes, %d lost, %d wake-ups, want 2, 10, 2 and 2", b.Len(), b.Bytes(), b.Lost(), woken)
	}
	var got []string
	b.Take(func(s string) {
		got = append(got, s)
		if len(got) == 1 {
			b.Post("later", 0)
		}
	})
	if !slices.Equal(got, []string{"a", "c"}) || b.Len() != 1 || b.Bytes() != 0 {
		t.Errorf("Take gives %q and leaves %d items of %d bytes, want a and c, and one item for the next turn", got, b.Len(), b.Bytes())
	}
}

func TestQueueKeepsAll(t *testing.T) {
	const writers, each = 8, 1000
	wake := NewWake()
	q := NewQueue[[2]int](wake.Wake)
	var running sync.WaitGroup
	for w := range writers {
		running.Go(func() {
			for i := range each {
				q.Put([2]int{w, i})
			}
		})
	}
	next := [writers]int{}
	for n := 0; n < writers*each; {
		<-wake
		for _, x := range q.Take() {
			if x[1] != next[x[0]] {
				t.Fatalf("item %d of writer %d comes where %d was expected: items of one writer keep their order", x[1], x[0], next[x[0]])
			}
			next[x[0]]++
			n++
		}
	}
	running.Wait()
	if rest := q.Take(); len(rest) > 0 {
		t.Errorf("%d items are left, want none", len(rest))
	}
}

func TestTurnAllocates(t *testing.T) {
	b := NewInbox[int](16, 16, func() {})
	q := NewQueue[int](func() {})
	n := testing.AllocsPerRun(100, func() {
		b.Post(1, 1)
		b.Take(func(int) {})
		q.Put(1)
		q.Take()
	})
	if n > 0 {
		t.Errorf("%v allocations for an item through each, want none", n)
	}
}
