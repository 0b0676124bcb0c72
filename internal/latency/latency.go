// Package latency counts durations, and tells which of them most do not exceed. It needs the same memory for any number of
// them, so it knows each to a sixteenth.
//
//	var h latency.Histogram
//	h.Add(3 * time.Millisecond)
//	p99 := h.Quantile(0.99)
package latency

import (
	"math"
	"time"
)

// A Histogram counts durations in buckets that are at most 1/16 wide, relative to
// their durations. The zero value is empty and ready.
type Histogram struct {
	n      uint64
	max    time.Duration
	counts [(127 + 64) << 4]uint64 // 127 is the exponent of 1 in a float32
}

// mantissaRest is the number of bits of a float32's mantissa that do not tell its bucket.
const mantissaRest = 23 - 4

// Add counts a duration; one below 0 counts as 0.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	h.n++
	h.max = max(h.max, d)
	h.counts[bucket(uint64(d))]++
}

// Count returns how many durations were counted.
func (h *Histogram) Count() uint64 { return h.n }

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

// bucket returns the bucket of v: the exponent of v as a float32 and the first four bits of
// the mantissa.
func bucket(v uint64) int { return int(math.Float32bits(float32(v)) >> mantissaRest) }

// bucketEnd returns the largest integer in bucket i.
func bucketEnd(i int) uint64 {
	next := math.Float32frombits(uint32(i+1) << mantissaRest)
	return uint64(math.Ceil(float64(next))) - 1
}
