//go:build linux

package bench

import (
	"math/bits"
	"time"
)

// A Histogram counts durations in buckets that are at most 1/16 wide, relative to
// their durations.
type Histogram struct {
	n      uint64
	max    time.Duration
	counts [60 * 16]uint64
}

func (h *Histogram) add(d time.Duration) {
	if d < 0 {
		d = 0
	}
	h.n++
	h.max = max(h.max, d)
	h.counts[bucket(uint64(d))]++
}

// Quantile returns the duration that the share q of all does not exceed, rounded up to the
// end of its bucket.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	want := uint64(q*float64(h.n-1)) + 1
	for i, c := range h.counts {
		if want <= c {
			return min(time.Duration(bucketEnd(i)), h.max)
		}
		want -= c
	}
	return h.max
}

// bucket returns the bucket of v: its highest bit and the four bits below.
func bucket(v uint64) int {
	if v < 16 {
		return int(v)
	}
	e := bits.Len64(v) - 5
	return e*16 + int(v>>e)
}

// bucketEnd returns the largest value in bucket i.
func bucketEnd(i int) uint64 {
	if i < 32 {
		return uint64(i)
	}
	e := i/16 - 1
	return (uint64(i%16+17) << e) - 1
}
