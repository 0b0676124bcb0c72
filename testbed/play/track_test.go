//go:build linux

package play

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/testbed/history"
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

// TestPaces: those that listen have a pace of their own, and no time between messages differs from
// the pace by more than half of it, nor by more than Spread.
func TestPaces(t *testing.T) {
	var c Crowd
	c.Pace.Set(100 * time.Millisecond)
	c.Breaks.Set(2 * time.Second)
	r := rand.New(rand.NewPCG(1, 2))
	for who, bounds := range map[string][2]time.Duration{
		"c.0":                          {50 * time.Millisecond, 150 * time.Millisecond},
		history.ListenerPrefix + "c.0": {2*time.Second - Spread, 2*time.Second + Spread},
	} {
		least, most := time.Hour, time.Duration(0)
		for range 1000 {
			d := c.paceOf(who).random(r)
			least, most = min(least, d), max(most, d)
		}
		if near := (bounds[1] - bounds[0]) / 10; least < bounds[0] || most >= bounds[1] || least > bounds[0]+near || most < bounds[1]-near {
			t.Errorf("%s waits between %v and %v from one message to the next, want %v", who, least, most, bounds)
		}
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
