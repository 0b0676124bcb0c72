//go:build linux

package bench

import (
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
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
	if h.max != list[len(list)-1] || h.Quantile(1) != h.max {
		t.Errorf("max %v, quantile 1 %v, want %v", h.max, h.Quantile(1), list[len(list)-1])
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

func TestSpread(t *testing.T) {
	rounds := []Round{{bare: 4}, {bare: 1}, {bare: 2}}
	bare := func(r *Round) float64 { return r.bare }
	if m, s := Median(values(rounds, bare)), Spread(values(rounds, bare)); m != 2 || s != 1.5 {
		t.Errorf("median %v and spread %v, want 2 and 1.5", m, s)
	}
	if m := Median(values(rounds[:2], bare)); m != 2.5 {
		t.Errorf("median of 4 and 1 is %v, want 2.5", m)
	}
}

// TestWriteJSON: the name of a file, standard output, or nothing.
func TestWriteJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "figures.json")
	old := os.Stdout
	defer func() { os.Stdout = old }()
	stdout, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	os.Stdout = stdout
	for _, name := range []string{"", file, "-"} {
		if err := WriteJSON(name, []Result{{Case: "a"}}); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{file, stdout.Name()} {
		var got []Result
		text, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(text, &got)
		}
		if err != nil || len(got) != 1 || got[0].Case != "a" {
			t.Errorf("%s has %s, %v, want one result", name, text, err)
		}
	}
}
