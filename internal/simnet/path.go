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
	partitioned bool
}

// happens decides by chance. It draws no number for a probability of 0.
func happens(rng *rand.Rand, probability float64) bool {
	return probability > 0 && rng.Float64() < probability
}

func (s *pathState) delay(rng *rand.Rand) time.Duration {
	d := s.Delay
	if s.Jitter > 0 {
		d += time.Duration(rng.Int64N(int64(s.Jitter)))
	}
	if happens(rng, s.Reorder) {
		d += s.ReorderBy
	}
	return d
}

// damage flips one bit of p by chance.
func (s *pathState) damage(rng *rand.Rand, p []byte) {
	if len(p) > 0 && happens(rng, s.Corrupt) {
		p[rng.IntN(len(p))] ^= 1 << rng.IntN(8)
	}
}
