package nearby

import (
	"math"
	"slices"
	"testing"
	"time"
)

func testLoad() *Load {
	return &Load{States: 70, Clients: 3, Hz: 20, Side: 400, Bands: []Band{{Within: 20}, {Within: 60, Rate: 5}, {Within: 120, Rate: 1, Precision: 16}}, Seed: 1}
}

func TestParseBands(t *testing.T) {
	got, err := ParseBands([]string{"100", "300:5:4", "600:1:16"})
	want := []Band{{Within: 100}, {300, 5, 4}, {600, 1, 16}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("bands are %v, %v, want %v", got, err, want)
	}
	for _, wrong := range [][]string{{}, {"0"}, {"100", "100"}, {"100", "50"}, {"100:x"}, {"-1"}, {"NaN"}, {"1:2:3:4"}, {"1", "2", "3", "4", "5", "6", "7", "8", "9"}} {
		if got, err := ParseBands(wrong); err == nil {
			t.Errorf("bands %q are %v, want an error", wrong, got)
		}
	}
}

func TestValidate(t *testing.T) {
	if err := testLoad().Validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Load){
		"no states":                func(l *Load) { l.States = 0 },
		"more clients than bound":  func(l *Load) { l.States, l.Clients = 60_000, clientsMax+1 },
		"more clients than states": func(l *Load) { l.Clients = l.States + 1 },
		"too many pairs":           func(l *Load) { l.States, l.Clients = 60_000, 500 },
		"no ticks":                 func(l *Load) { l.Hz = 0 },
		"a field of NaN":           func(l *Load) { l.Side = math.NaN() },
		"a field beyond halves":    func(l *Load) { l.Side = 30_000 },
	} {
		l := testLoad()
		if change(l); l.Validate() == nil {
			t.Errorf("%s: want an error", name)
		}
	}
}

// TestParts checks that each state is in the part whose span has it, and that parts come one after the other within a tick.
func TestParts(t *testing.T) {
	for _, states := range []int{1, 3, 19, 20, 21, 70, 10_000} {
		l := testLoad()
		l.States = states
		next := 0
		for part := range l.parts() {
			first, end := l.span(part)
			if first != next || end <= first {
				t.Fatalf("%d states: part %d is %d to %d, want it to begin with %d", states, part, first, end, next)
			}
			for i := first; i < end; i++ {
				if got := l.partOf(i); got != part {
					t.Fatalf("%d states: state %d is of part %d, and in the span of %d", states, i, got, part)
				}
			}
			next = end
		}
		if next != states {
			t.Errorf("%d states: parts have %d", states, next)
		}
	}
	l := testLoad()
	if got := l.after(10); got != 25*time.Millisecond {
		t.Errorf("part 10 of 20 is due %v after the tick, want 25 ms", got)
	}
	if l.AtOnce = true; l.after(10) != 0 {
		t.Error("parts of a tick that is published at once are due later than the tick")
	}
}

func TestBand(t *testing.T) {
	l := testLoad()
	for _, c := range []struct {
		was      uint8
		distance float64
		want     uint8
		why      string
	}{
		{beyond, 20, 0, "an object enters at the border"},
		{beyond, 21, 1, "an object outside of the border is not in the band"},
		{0, 21, 0, "an object leaves a tenth outside"},
		{0, 23, 1, "more than a tenth outside it is in the next band"},
		{0, 121, beyond, "an object that jumped is where it is"},
		{2, 131, 2, "the last band has a gap, too"},
		{2, 133, beyond, "beyond the gap it is out of sight"},
		{1, 19, 0, "an object enters a nearer band at once"},
	} {
		if got := l.band(c.was, c.distance*c.distance); got != c.want {
			t.Errorf("at %v, after band %d: band %d, want %d: %s", c.distance, c.was, got, c.want, c.why)
		}
	}
}

// TestWorld compares the index with all distances, and checks that everything moves within the field.
func TestWorld(t *testing.T) {
	l := testLoad()
	l.States = 500
	w, same := newWorld(l), newWorld(l)
	for range 100 {
		before := slices.Clone(w.history[w.tick%historyTicks])
		w.step()
		same.step()
		still := 0
		for i := range l.States {
			p := w.at(w.tick, i)
			if math.Abs(float64(p.x)) > l.Side/2 || math.Abs(float64(p.z)) > l.Side/2 {
				t.Fatalf("object %d is at %v, outside of the field", i, p)
			}
			if p != same.at(same.tick, i) {
				t.Fatal("two worlds of one seed differ")
			}
			if p == before[i] {
				still++
			}
		}
		if still > l.States/10 {
			t.Fatalf("%d of %d objects stand still", still, l.States)
		}
	}
	for i := range 50 {
		p, found := w.at(w.tick, i), map[int]bool{}
		w.near(p, l.reach(), func(i int, square float64) {
			if found[i] {
				t.Fatalf("object %d is found twice", i)
			}
			found[i] = true
		})
		for j := range l.States {
			if square(p, w.at(w.tick, j)) <= l.reach()*l.reach() && !found[j] {
				t.Fatalf("object %d is in the reach of %d, and not found", j, i)
			}
		}
	}
}
