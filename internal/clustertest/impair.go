//go:build linux

package clustertest

import (
	"math/rand/v2"
	"sync"
	"time"
)

// An Impairment is what a path does to datagrams.
type Impairment struct {
	Loss, Duplicate float64       // of each datagram, 0 to 1
	Delay, Jitter   time.Duration // of each datagram, and what is added at most; what overtakes is reordered
}

// A dice decides by a seed. Proxies throw it from several goroutines, none of which
// owns it.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func newDice(seed, stream uint64) *dice { return &dice{rng: rand.New(rand.NewPCG(seed, stream))} }

// fates returns after how long each copy of a datagram arrives; none if it is lost.
func (d *dice) fates(im Impairment) (delays []time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.rng.Float64() < im.Loss {
		return nil
	}
	delays = append(delays, d.delay(im))
	if d.rng.Float64() < im.Duplicate {
		delays = append(delays, d.delay(im))
	}
	return delays
}

func (d *dice) delay(im Impairment) time.Duration {
	if im.Jitter <= 0 {
		return im.Delay
	}
	return im.Delay + time.Duration(d.rng.Int64N(int64(im.Jitter)))
}
