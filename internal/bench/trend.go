//go:build linux

package bench

import (
	"fmt"
	"io"
)

// A grower is a series in which one number grows, and what it counts.
type grower struct {
	series, unit string
	count        func(*Result) int
}

var growers = []grower{
	{"clients", "client", func(r *Result) int { return r.Clients }},
	{"states", "state", func(r *Result) int { return r.States }},
	{"links", "link", func(r *Result) int { return r.Clients * r.Links }},
}

// A Trend says what one more of something costs an edge: the slope over the whole
// series, and the least and the most of the slopes between neighbouring cases. A cost
// that grew faster than linearly would have its most at the end.
type Trend struct {
	Series, Unit string
	From, To     int
	CPU          Slope // microseconds of a core per second
	Memory       Slope // bytes
}

// A Slope is what a cost grows by with each more.
type Slope struct{ Whole, Least, Most, Last float64 }

// Trends returns the slopes of those growth series that results have, of which the
// cases are in ascending order.
func Trends(results []Result) (list []Trend) {
	for _, g := range growers {
		var n, cpu, memory []float64
		for i := range results {
			if r := &results[i]; r.Name == g.series {
				n = append(n, float64(g.count(r)))
				cpu = append(cpu, 1e6*r.EdgeCores)
				memory = append(memory, r.RSSPerClient*float64(r.Clients))
			}
		}
		if len(n) > 1 {
			list = append(list, Trend{
				Series: g.series, Unit: g.unit, From: int(n[0]), To: int(n[len(n)-1]), CPU: slope(n, cpu), Memory: slope(n, memory),
			})
		}
	}
	return list
}

// slope returns how y grows over x, of which there are at least two, ascending.
func slope(x, y []float64) (s Slope) {
	last := len(x) - 1
	s.Whole = (y[last] - y[0]) / (x[last] - x[0])
	for i := range last {
		s.Last = (y[i+1] - y[i]) / (x[i+1] - x[i])
		if i == 0 {
			s.Least, s.Most = s.Last, s.Last
		}
		s.Least, s.Most = min(s.Least, s.Last), max(s.Most, s.Last)
	}
	return s
}

func (t *Trend) write(w io.Writer) {
	fmt.Fprintf(w, "%s %d → %d: each %s costs %.3g µs/s of edge CPU (%.3g to %.3g between neighbours, %.3g at the end) and %.0f B (%.0f to %.0f, %.0f at the end)\n",
		t.Series, t.From, t.To, t.Unit, t.CPU.Whole, t.CPU.Least, t.CPU.Most, t.CPU.Last,
		t.Memory.Whole, t.Memory.Least, t.Memory.Most, t.Memory.Last)
}
