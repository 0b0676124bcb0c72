package forward

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestFenceTwin compares the fence with a list that is in the order of use.
func TestFenceTwin(t *testing.T) {
	t.Logf("-seed=%d", *seed)
	rng := rand.New(rand.NewPCG(*seed, 2))
	for _, most := range []int{1, 2, 7, 100} {
		f := newFence(most)
		var twin []clientKey
		for i := range 5000 {
			k := client(rng.IntN(2 * most)).key()
			at := slices.Index(twin, k)
			if e := f.find(k); (e != nil) != (at >= 0) {
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
			if e := f.touch(k); e.key != k || at < 0 && (e.origin != 0 || e.epoch != 0) {
				t.Fatalf("step %d: touched %+v", i, e)
			}
		}
		if len(f.index) > most || len(f.entries) > most+1 {
			t.Errorf("%d entries, at most %d", len(f.index), most)
		}
	}
}

// TestFenceTimes: epochs do not go back, and count for an hour after they were seen.
func TestFenceTimes(t *testing.T) {
	var e fenceEntry
	for step, epoch := range []uint64{7, 6, 7, 8, 3} {
		e.observe(time.Duration(step), epoch)
		if want := []uint64{7, 7, 7, 8, 8}[step]; e.highest(time.Duration(step)) != want {
			t.Errorf("step %d: the highest is %d, want %d", step, e.highest(time.Duration(step)), want)
		}
	}
	if e.highest(3+fenceFor) != 8 || e.highest(4+fenceFor) != 0 {
		t.Error("an epoch does not count for an hour after it was seen")
	}
}

// TestFenceBound: the router forgets the clients that were longest not used first.
func TestFenceBound(t *testing.T) {
	w := newWorld(t, "a", "b")
	a := w.nodes["a"]
	a.fence = newFence(10)
	for i := range 30 {
		a.fence.touch(client(i).key()).observe(0, uint64(i))
		a.fence.touch(client(0).key()).observe(0, 99)
	}
	if e := a.fence.find(client(0).key()); e == nil || e.epoch != 99 {
		t.Errorf("the one that is used: %+v", e)
	}
	if e := a.fence.find(client(5).key()); e != nil {
		t.Errorf("an old one: %+v", e)
	}
	if s := a.Stats(w.now); s.Clients != 10 || s.ClientsForgotten != 20 {
		t.Errorf("%d clients, %d forgotten", s.Clients, s.ClientsForgotten)
	}
}
