//go:build linux

package play

import (
	"testing"
	"time"
)

func TestGap(t *testing.T) {
	zero := time.Unix(1000, 0)
	at := func(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }
	var tr Track
	for _, ms := range []int{10, 20, 30, 130, 140, 500} {
		tr.Add(at(ms))
	}
	for _, c := range []struct {
		from, to, want int
		why            string
	}{
		{0, 40, 10, "the pace, and 10 ms at each end"},
		{0, 200, 100, "between two moments"},
		{50, 120, 70, "nothing at all happened"},
		{140, 600, 360, "before the last"},
		{510, 1000, 490, "after the last"},
		{25, 135, 100, "what happened before does not count"},
	} {
		if got := tr.Gap(at(c.from), at(c.to)); got != time.Duration(c.want)*time.Millisecond {
			t.Errorf("gap from %d to %d ms is %v, want %d ms: %s", c.from, c.to, got, c.want, c.why)
		}
	}
	if first, ok := tr.First(at(31)); !ok || !first.Equal(at(130)) {
		t.Errorf("first after 31 ms is %v, %v", first, ok)
	}
	if _, ok := tr.First(at(501)); ok {
		t.Error("there is nothing after 500 ms")
	}
}

func TestTrackForgets(t *testing.T) {
	var tr Track
	zero := time.Unix(1000, 0)
	for i := range 3 * trackMax {
		tr.Add(zero.Add(time.Duration(i) * time.Millisecond))
	}
	if n := len(tr.at); n > trackMax {
		t.Errorf("a track keeps %d moments, at most %d wanted", n, trackMax)
	}
	if last := tr.at[len(tr.at)-1]; !last.Equal(zero.Add((3*trackMax - 1) * time.Millisecond)) {
		t.Errorf("the last is %v", last)
	}
}
