package simnet

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// A Path describes what happens to datagrams between any two addresses. The zero Path
// delivers everything at once.
type Path struct {
	Loss      float64       // probability of a datagram to be lost
	Delay     time.Duration // of every datagram
	Jitter    time.Duration // random further delay, evenly in [0, Jitter); it reorders
	Reorder   float64       // probability of a further delay of ReorderBy
	ReorderBy time.Duration
	Duplicate float64 // probability of a second copy, which has its own delay
	Corrupt   float64 // probability of one flipped bit

	// Rate is how many bytes a second get from one address to another, with 28 bytes of headers
	// for each datagram; 0 is no limit. Datagrams wait for each other for Queue at most.
	// Those that would have to wait for longer are lost.
	Rate  int
	Queue time.Duration
}

// headers is the size of the IPv4 and UDP headers of a datagram.
const headers = 28

// validate panics on an impossible path, because that is a mistake in a test.
func (p Path) validate() {
	for _, f := range []float64{p.Loss, p.Reorder, p.Duplicate, p.Corrupt} {
		if !(f >= 0 && f <= 1) {
			panic(fmt.Sprintf("simnet: %v is not a probability in %+v", f, p))
		}
	}
	if p.Delay < 0 || p.Jitter < 0 || p.ReorderBy < 0 || p.Rate < 0 || p.Queue < 0 {
		panic(fmt.Sprintf("simnet: negative delay or rate in %+v", p))
	}
}

// happens decides by chance. It draws no number for a probability of 0.
func happens(rng *rand.Rand, probability float64) bool {
	return probability > 0 && rng.Float64() < probability
}

func (p *Path) delay(rng *rand.Rand) time.Duration {
	d := p.Delay
	if p.Jitter > 0 {
		d += time.Duration(rng.Int64N(int64(p.Jitter)))
	}
	if happens(rng, p.Reorder) {
		d += p.ReorderBy
	}
	return d
}

// wait returns how long a datagram of size bytes takes through the queue of a path whose last datagram
// leaves it at busy, and that time for the next one. It reports false if the queue is full.
func (p *Path) wait(now, busy time.Duration, size int) (d, next time.Duration, ok bool) {
	if p.Rate == 0 {
		return 0, busy, true
	}
	start := max(now, busy)
	if start-now > p.Queue {
		return 0, busy, false
	}
	next = start + time.Duration(size+headers)*time.Second/time.Duration(p.Rate)
	return next - now, next, true
}

// damage flips one bit of b by chance.
func (p *Path) damage(rng *rand.Rand, b []byte) {
	if len(b) > 0 && happens(rng, p.Corrupt) {
		b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
	}
}
