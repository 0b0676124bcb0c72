package compose

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"
)

// TestFlock: after two minutes all boids are in the field, move, and have come together.
func TestFlock(t *testing.T) {
	f := newFlock(rand.New(rand.NewPCG(1, 2)), flockSize)
	neighbours := func() (n int) {
		for i, a := range f {
			for _, b := range f[:i] {
				if math.Hypot(a.x-b.x, a.z-b.z) < flockSees {
					n++
				}
			}
		}
		return n
	}
	alone := neighbours()
	for range 1200 {
		f.step(0.1)
	}
	for i, b := range f {
		v := math.Hypot(b.vx, b.vz)
		if !(math.Abs(b.x) <= fieldHalf && math.Abs(b.z) <= fieldHalf && v > flockSlow-1e-6 && v < flockFast+1e-6) {
			t.Fatalf("boid %d is %+v", i, b)
		}
	}
	if n := neighbours(); n < 2*alone {
		t.Errorf("%d pairs see each other, %d did at first", n, alone)
	}
	for _, body := range []string{f.put(), f.set()} {
		var p struct{ Ops []struct{ Op, Key string } }
		if err := json.Unmarshal([]byte(body), &p); err != nil || len(p.Ops) < flockSize || p.Ops[len(p.Ops)-1].Key != "boid.199" {
			t.Errorf("%v in %.200s", err, body)
		}
	}
}

func TestWalk(t *testing.T) {
	x, z, arrived := walk(0, 0, [2]float64{3, 4}, 1)
	if math.Abs(x-0.6) > 1e-9 || math.Abs(z-0.8) > 1e-9 || arrived {
		t.Errorf("a step leads to %v %v, %v", x, z, arrived)
	}
	if x, z, arrived = walk(2.8, 3.8, [2]float64{3, 4}, 1); x != 3 || z != 4 || !arrived {
		t.Errorf("the last step leads to %v %v, %v", x, z, arrived)
	}
}
