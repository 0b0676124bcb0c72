package latency

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var seed = flag.Uint64("seed", 1, "of random numbers")

// TestHistogram compares quantiles with those of a sorted list.
func TestHistogram(t *testing.T) {
	rnd := rand.New(rand.NewPCG(*seed, 0))
	var h Histogram
	var list []time.Duration
	for range 20_000 {
		d := time.Duration(rnd.ExpFloat64() * float64(time.Duration(1)<<rnd.IntN(35)))
		list = append(list, d)
		h.Add(d)
	}
	slices.Sort(list)
	for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.99, 0.999, 1} {
		want, got := list[int(q*float64(len(list)-1))], h.Quantile(q)
		if got < want || float64(got) > float64(want)*(1+1.0/16)+1 {
			t.Errorf("-seed=%d: quantile %v is %v, want %v to 1/16 more", *seed, q, got, want)
		}
	}
	if h.Quantile(1) != list[len(list)-1] {
		t.Errorf("quantile 1 is %v, want %v", h.Quantile(1), list[len(list)-1])
	}
	h.Add(-time.Second) // clocks of two cores may differ
	h.Add(1<<63 - 1)    // the largest has a bucket
}

func TestBuckets(t *testing.T) {
	for v := range uint64(1 << 16) {
		i := bucket(v)
		if v > bucketEnd(i) || i > 0 && v <= bucketEnd(i-1) {
			t.Fatalf("%d is in bucket %d, which ends at %d after %d", v, i, bucketEnd(i), bucketEnd(max(i-1, 0)))
		}
	}
}
