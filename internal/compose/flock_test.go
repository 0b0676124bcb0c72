package compose

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"
	"time"
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
	for _, body := range []string{f.put(), f.set(""), f.set(`{"op":"set","key":"player","values":{}}`)} {
		var p struct{ Ops []struct{ Op, Key string } }
		if err := json.Unmarshal([]byte(body), &p); err != nil || len(p.Ops) < flockSize || p.Ops[len(p.Ops)-1].Key != "boid.199" {
			t.Errorf("%v in %.200s", err, body)
		}
	}
}

// TestWalker: the player walks along its way, and does not go on by itself for a while when somebody else moves it.
func TestWalker(t *testing.T) {
	var w walker
	now := time.Unix(1000, 0)
	heard := make(chan [2]float32, 1000)
	corners := map[int]bool{}
	for range 2000 {
		now = now.Add(flockInterval)
		if w.turn(now, heard) == "" {
			t.Fatalf("the player rests at %v, %v although it was not moved", w.x, w.z)
		}
		heard <- [2]float32{w.x, w.z}
		corners[w.corner] = true
	}
	if far := math.Hypot(float64(w.x), float64(w.z)); len(corners) != len(walkerWay) || far > 35 {
		t.Errorf("the player went towards %d corners, and is %v from the middle", len(corners), far)
	}
	heard <- [2]float32{7, -39.5}
	for heard <- [2]float32{w.x, w.z}; now.Before(w.rests) || w.rests.IsZero(); now = now.Add(flockInterval) {
		if op := w.turn(now, heard); op != "" || w.x != 7 || w.z != -39.5 {
			t.Fatalf("somebody has moved the player, and it does %q from %v, %v", op, w.x, w.z)
		}
	}
	if op := w.turn(now, heard); op == "" || math.Hypot(float64(w.x)-7, float64(w.z)+39.5) > 0.31 {
		t.Errorf("the player does not go on from where it was moved: %q", op)
	}
}
