package viewer

import (
	"math"
	"testing"
	"time"
)

func TestPaceThrottle(t *testing.T) {
	for _, c := range []struct{ bits, limit float64 }{
		{400_000, 50_000}, {1e12, rateMax}, {0, rateLeast}, {-1, rateLeast}, {math.NaN(), rateLeast}, {math.Inf(1), rateMax},
	} {
		p := newPace(time.Unix(1000, 0))
		p.throttle(c.bits)
		if p.limit != c.limit || p.rate > p.limit {
			t.Errorf("%g bits per second are a limit of %g and a rate of %g bytes, want %g", c.bits, p.limit, p.rate, c.limit)
		}
	}
}

func TestJudge(t *testing.T) {
	const limit = 1_000_000
	for _, c := range []struct {
		why             string
		rate            float64
		delivered, lost int
		used            bool
		want            float64
	}{
		{"nothing is lost", 100_000, 50, 0, true, 112_500},
		{"a low rate grows in steps", 40_000, 50, 0, true, 48_192},
		{"the rate was not used", 100_000, 50, 0, false, 100_000},
		{"nothing was confirmed", 100_000, 0, 0, true, 100_000},
		{"a little is lost", 100_000, 95, 5, true, 100_000},
		{"a fifth is lost", 100_000, 80, 20, true, 72_000},
		{"all is lost", 100_000, 0, 20, true, 50_000},
		{"not below the least", 40_000, 0, 20, true, rateLeast},
		{"not above the limit", 990_000, 50, 0, true, limit},
	} {
		if got := judge(c.rate, limit, c.delivered, c.lost, c.used); math.Abs(got-c.want) > 1 {
			t.Errorf("%s: %g, want %g", c.why, got, c.want)
		}
	}
}
