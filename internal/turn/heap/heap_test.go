package heap

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
)

var seed = flag.Uint64("seed", 1, "of the random operations")

type item struct{ order, place int }

func newHeap() *Heap[*item] {
	return New(func(a, b *item) bool { return a.order < b.order }, func(x *item) *int { return &x.place })
}

// TestHeap compares the heap with a list that is searched.
func TestHeap(t *testing.T) {
	t.Logf("-seed=%d", *seed)
	r := rand.New(rand.NewPCG(*seed, 0))
	h := newHeap()
	var twin []*item
	for range 20_000 {
		switch n := r.IntN(10); {
		case n < 4:
			x := &item{order: r.IntN(50)}
			h.Set(x)
			twin = append(twin, x)
		case n < 6 && len(twin) > 0:
			x := twin[r.IntN(len(twin))]
			x.order = r.IntN(50)
			h.Set(x)
		case n < 8 && len(twin) > 0:
			i := r.IntN(len(twin))
			h.Remove(twin[i])
			if h.Remove(twin[i]); twin[i].place != 0 {
				t.Fatalf("a removed item says that it is at place %d", twin[i].place)
			}
			twin = slices.Delete(twin, i, i+1)
		case len(twin) > 0:
			x := h.Pop()
			if i := slices.Index(twin, x); i < 0 || x.place != 0 {
				t.Fatalf("Pop returns %+v, which is item %d of the twin", x, i)
			}
			twin = slices.DeleteFunc(twin, func(y *item) bool { return y == x })
			if slices.ContainsFunc(twin, func(y *item) bool { return y.order < x.order }) {
				t.Fatalf("Pop returns %d although there is a smaller item", x.order)
			}
		}
		if h.Len() != len(twin) {
			t.Fatalf("the heap has %d items, want %d", h.Len(), len(twin))
		}
		for _, x := range twin {
			if h.items[x.place-1] != x {
				t.Fatalf("item %+v is not at its place", x)
			}
			if first, _ := h.First(); x.order < first.order {
				t.Fatalf("the first item is %d although there is a %d", first.order, x.order)
			}
		}
	}
}

func TestHeapAllocates(t *testing.T) {
	h := newHeap()
	items := make([]item, 100)
	fill := func() {
		for i := range items {
			items[i].order = i * 37 % 100
			h.Set(&items[i])
		}
		for h.Len() > 0 {
			h.Pop()
		}
	}
	fill()
	if n := testing.AllocsPerRun(10, fill); n > 0 {
		t.Errorf("%v allocations for %d items that come and go, want none", n, len(items))
	}
}
