package simnet

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// A Path describes what happens to datagrams from one address to another. The zero
// Path delivers everything at once.
type Path struct {
	Loss      float64       // probability of a datagram to be lost
	Delay     time.Duration // of every datagram
	Jitter    time.Duration // random further delay, evenly in [0, Jitter); it reorders
	Reorder   float64       // probability of a further delay of ReorderBy
	ReorderBy time.Duration
	Duplicate float64 // probability of a second copy, which has its own delay
	Corrupt   float64 // probability of one flipped bit
	Burst     *Burst  // loss that comes in bursts, on top of Loss; nil for none
}

// A Burst is the loss model of Gilbert and Elliott: a path is good or bad, and each
// datagram may change that.
type Burst struct {
	Enter, Leave float64 // probability per datagram to become bad, and good again
	LossBad      float64 // probability of a datagram to be lost while the path is bad
}

// validate panics on an impossible path, because that is a mistake in a test.
func (p Path) validate() {
	for _, f := range []float64{p.Loss, p.Reorder, p.Duplicate, p.Corrupt} {
		if !(f >= 0 && f <= 1) {
			panic(fmt.Sprintf("simnet: %v is not a probability in %+v", f, p))
		}
	}
	if p.Delay < 0 || p.Jitter < 0 || p.ReorderBy < 0 {
		panic(fmt.Sprintf("simnet: negative delay in %+v", p))
	}
}

// A pathState is the state of one direction of a path.
type pathState struct {
	Path
	bad         bool
	partitioned bool
}

// lost decides by chance whether a datagram is lost.
func (s *pathState) lost(rng *rand.Rand) bool {
	if s.partitioned {
		return true
	}
	if b := s.Burst; b != nil {
		change := b.Enter
		if s.bad {
			change = b.Leave
		}
		if rng.Float64() < change {
			s.bad = !s.bad
		}
		if s.bad && rng.Float64() < b.LossBad {
			return true
		}
	}
	return s.Loss > 0 && rng.Float64() < s.Loss
}

func (s *pathState) copies(rng *rand.Rand) int {
	if s.Duplicate > 0 && rng.Float64() < s.Duplicate {
		return 2
	}
	return 1
}

func (s *pathState) delay(rng *rand.Rand) time.Duration {
	d := s.Delay
	if s.Jitter > 0 {
		d += time.Duration(rng.Int64N(int64(s.Jitter)))
	}
	if s.Reorder > 0 && rng.Float64() < s.Reorder {
		d += s.ReorderBy
	}
	return d
}

// damage flips one bit of p by chance.
func (s *pathState) damage(rng *rand.Rand, p []byte) {
	if s.Corrupt > 0 && len(p) > 0 && rng.Float64() < s.Corrupt {
		p[rng.IntN(len(p))] ^= 1 << rng.IntN(8)
	}
}
