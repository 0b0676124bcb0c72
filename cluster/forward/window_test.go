package forward

import (
	"math/rand/v2"
	"testing"
)

// A windowTwin is the rule as one would say it.
type windowTwin struct {
	highest uint64
	seen    map[uint64]bool
}

func (w *windowTwin) fresh(c uint64) bool {
	return c > 0 && c+windowSize > w.highest && !w.seen[c]
}

func (w *windowTwin) accept(c uint64) {
	w.seen[c] = true
	w.highest = max(w.highest, c)
}

func TestWindowTwin(t *testing.T) {
	t.Logf("-seed=%d", *seed)
	rng := rand.New(rand.NewPCG(*seed, 1))
	for range 200 {
		var w window
		twin := windowTwin{seen: map[uint64]bool{}}
		spread := uint64(1) << (1 + rng.IntN(13))
		for i := range 2000 {
			c := twin.highest + rng.Uint64N(spread)
			c -= min(c, rng.Uint64N(spread))
			if got, want := w.fresh(c), twin.fresh(c); got != want {
				t.Fatalf("step %d: counter %d with highest %d: fresh is %v, want %v", i, c, twin.highest, got, want)
			}
			if twin.fresh(c) && rng.IntN(4) > 0 {
				w.accept(c)
				twin.accept(c)
			}
		}
	}
}

func TestWindowEdges(t *testing.T) {
	var w window
	if w.fresh(0) {
		t.Error("counters begin with 1")
	}
	w.accept(1)
	w.accept(windowSize)
	for c, want := range map[uint64]bool{1: false, 2: true, windowSize: false, windowSize + 1: true, 1<<64 - 1: true} {
		if got := w.fresh(c); got != want {
			t.Errorf("counter %d: fresh is %v", c, got)
		}
	}
	w.accept(windowSize + 2)
	if w.fresh(2) {
		t.Error("2 is 1,024 behind, too late to tell")
	}
	if !w.fresh(3) {
		t.Error("3 is 1,023 behind and did not come")
	}
	w.accept(1<<64 - 1)
	if w.fresh(1<<64-1) || !w.fresh(1<<64-2) {
		t.Error("the end of the counters")
	}
}
