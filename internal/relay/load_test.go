package relay

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestTop takes the spaces with the most states and with the most traffic, those of equal rank by name.
func TestTop(t *testing.T) {
	var list []SpaceLoad
	for i := range 3 * loadsMax {
		list = append(list, SpaceLoad{Space: fmt.Sprintf("s%02d", i), States: uint64(i / 2), BytesPerSecond: uint64(100 - i)})
	}
	l := top(list)
	names := func(list []SpaceLoad) string {
		var all []string
		for _, s := range list {
			all = append(all, s.Space)
		}
		return strings.Join(all, " ")
	}
	if got, want := names(l.ByStates), "s28 s29 s26 s27 s24 s25 s22 s23 s20 s21"; got != want {
		t.Errorf("by states: %s, want %s", got, want)
	}
	if got, want := names(l.ByBytes), "s00 s01 s02 s03 s04 s05 s06 s07 s08 s09"; got != want {
		t.Errorf("by traffic: %s, want %s", got, want)
	}
	if l := top(nil); len(l.ByStates)+len(l.ByBytes) != 0 {
		t.Errorf("of nothing: %v", l)
	}
}

// TestMeter measures a space that is older than the measurement, and goes quiet.
func TestMeter(t *testing.T) {
	var m meter
	start := time.Unix(1e9, 0)
	for _, step := range []struct {
		second      int
		bytes, rate uint64
		why         string
	}{
		{0, 5_000_000, 0, "what it published before does not count"},
		{9, 5_000_900, 0, "not long enough"},
		{10, 5_001_000, 100, "1,000 bytes in 10 s"},
		{19, 5_009_000, 100, "not long enough"},
		{30, 5_011_000, 500, "10,000 bytes in 20 s"},
		{40, 5_011_000, 0, "quiet"},
	} {
		if m.measure(start.Add(time.Duration(step.second)*time.Second), step.bytes); m.rate != step.rate {
			t.Errorf("second %d, %s: %d bytes per second, want %d", step.second, step.why, m.rate, step.rate)
		}
	}
}
