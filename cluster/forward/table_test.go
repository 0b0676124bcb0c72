package forward

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestTableTwin compares the table with a list that is in the order of use.
func TestTableTwin(t *testing.T) {
	t.Logf("-seed=%d", *seed)
	rng := rand.New(rand.NewPCG(*seed, 2))
	for _, most := range []int{1, 2, 7, 100} {
		table := newTable(most)
		var twin []clientKey
		for i := range 5000 {
			k := client(rng.IntN(2 * most)).key()
			at := slices.Index(twin, k)
			if e := table.find(k); (e != nil) != (at >= 0) {
				t.Fatalf("step %d: found %v, want %v", i, e != nil, at >= 0)
			}
			if rng.IntN(3) == 0 {
				continue
			}
			if at >= 0 {
				twin = slices.Delete(twin, at, at+1)
			} else if len(twin) == most {
				twin = slices.Delete(twin, 0, 1)
			}
			twin = append(twin, k)
			if e := table.touch(k); e.key != k || at < 0 && (e.node != 0 || e.epoch != 0) {
				t.Fatalf("step %d: touched %+v", i, e)
			}
		}
		if len(table.index) > most || len(table.entries) > most+1 {
			t.Errorf("%d entries, at most %d", len(table.index), most)
		}
	}
}

func TestEntryTimes(t *testing.T) {
	e := entry{node: 5, confirmed: time.Second}
	if e.route(time.Second+freshFor-1) != 5 || e.route(time.Second+freshFor) != 0 {
		t.Error("a route counts for less than two seconds")
	}
	if !e.observe(0, 7) || e.observe(1, 6) || !e.observe(1, 7) || !e.observe(2, 8) {
		t.Error("epochs do not go back")
	}
	if e.highest(2+fenceFor) != 8 || e.highest(3+fenceFor) != 0 {
		t.Error("an epoch counts for an hour after it was seen")
	}
}

// TestTableBound: the clients that are not spoken of are forgotten first.
func TestTableBound(t *testing.T) {
	w := newWorld(t, "a", "b")
	a := w.nodes["a"]
	a.table = newTable(10)
	for i := range 30 {
		a.Learn(w.now, client(i), "b", uint64(i))
		a.Learn(w.now, client(0), "b", 99)
	}
	if node, epoch := a.Route(w.now, client(0)); node != "b" || epoch != 99 {
		t.Errorf("the one that is spoken of: %q, %d", node, epoch)
	}
	if node, _ := a.Route(w.now, client(5)); node != "" {
		t.Errorf("an old one is at %q", node)
	}
	if s := a.Stats(w.now); s.Routes != 10 || s.RoutesForgotten != 20 {
		t.Errorf("%d routes, %d forgotten", s.Routes, s.RoutesForgotten)
	}
}
