//go:build linux

// Package lab goes beyond package bench: it measures series in which one number grows,
// overload, clients that disturb others, floods of forged datagrams, and profiles of an edge.
package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/testbed/bench"
	"github.com/dnprelay/dnprelay/testbed/rig"
)

// Series are the names of the series.
func Series() (names []string) {
	for _, c := range Cases() {
		if !slices.Contains(names, c.Name) {
			names = append(names, c.Name)
		}
	}
	return append(names, "disturbed", "overload")
}

// Run measures the series with a name, or all if it is empty. With an error, the results
// have the cases before it.
func Run(ctx context.Context, runner *bench.Runner, only string) ([]bench.Result, error) {
	if only != "" && !slices.Contains(Series(), only) {
		return nil, fmt.Errorf("there is no series %q; there are %s", only, strings.Join(Series(), ", "))
	}
	results, err := runner.Cases(ctx, slices.DeleteFunc(Cases(), func(c bench.Case) bool { return only != "" && c.Name != only }))
	failed := []error{err}
	for _, s := range []struct {
		name string
		run  func() ([]bench.Result, error)
	}{
		{"disturbed", func() ([]bench.Result, error) { return Disturbed(ctx, runner) }},
		{"overload", func() ([]bench.Result, error) { return Overload(ctx, runner) }},
	} {
		if ctx.Err() == nil && (only == "" || only == s.name) {
			more, err := s.run()
			results, failed = append(results, more...), append(failed, err)
		}
	}
	return results, errors.Join(failed...)
}

// Profile returns a function for bench.Runner.Watch that writes CPU and allocation profiles
// of the first edge into a folder.
func Profile(dir string) func(s *bench.Scene, d time.Duration) error {
	return func(s *bench.Scene, d time.Duration) error {
		name := strings.NewReplacer("×", "x", "/", "-").Replace(s.Case.String())
		base := "http://" + s.Stack.HTTP[0] + "/debug/pprof/"
		err := fetch(fmt.Sprintf("%sprofile?seconds=%d", base, max(1, int(d.Seconds()))), filepath.Join(dir, name+".cpu.pprof"))
		if err == nil {
			err = fetch(base+"allocs", filepath.Join(dir, name+".allocs.pprof"))
		}
		return err
	}
}

func fetch(url, file string) error {
	answer, err := http.Get(url)
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s", url, answer.Status)
	}
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	return os.WriteFile(file, data, 0o644)
}

// Idle returns the case in which no state changes: the cost of connected clients.
func Idle() []bench.Case {
	return []bench.Case{{Name: "idle", States: 10, Hz: 10, Clients: 1000, Edges: 1, Active: -1, Alone: true, Rounds: 3, Window: 5 * time.Second}}
}

// Growth returns series in which one number grows and the others stay.
func Growth() (all []bench.Case) {
	for _, n := range []int{100, 1000, 3000, 10_000} {
		all = append(all, bench.Case{Name: "clients", States: 10, Hz: 10, Clients: n, Edges: 1, Rounds: 3, Alone: true})
	}
	for _, n := range []int{1, 100, 1000, 10_000, 50_000} {
		all = append(all, bench.Case{
			Name: "states", States: n, Hz: 10, Clients: 50, Edges: 1, Links: min(n, 50), Active: min(n, 1000), Rounds: 3, Alone: true,
		})
	}
	for _, n := range []int{1, 10, 100, 1000} {
		all = append(all, bench.Case{Name: "links", States: 1000, Hz: 10, Clients: 100, Edges: 1, Links: n, Rounds: 3, Alone: true})
	}
	return all
}

// overloads are the loads of the overload series, in units of capacity.
var overloads = []float64{0.5, 1, 2, 4}

// capacityProbes is the number of windows that find the capacity. The first of them finds
// the processes cold.
const capacityProbes = 3

// Overload offers half, one, two and four times the capacity of an edge. Windows with more
// load than any edge carries find the capacity first: the case has room for four times a
// core of 8 M updates per second.
func Overload(ctx context.Context, r *bench.Runner) (results []bench.Result, err error) {
	c := bench.Case{Name: "overload", States: 2000, Hz: 50, Clients: 400, Edges: 1, Rounds: 1, Alone: true, Window: 5 * time.Second}
	s, err := r.Open(ctx, &c)
	if err != nil {
		return nil, fmt.Errorf("overload: %w", err)
	}
	defer s.Close()
	var capacity float64
	for range capacityProbes {
		var all bench.Round
		if err := s.Measure(ctx, &all, c.States); err != nil {
			return nil, fmt.Errorf("overload: %w", err)
		}
		capacity = max(capacity, float64(all.Window.Updates)/all.Wall.Seconds())
	}
	bench.Progress("capacity: %.2f M updates/s", capacity/1e6)
	for _, load := range overloads {
		one := c
		one.Load, one.Active = load, max(1, min(int(load*capacity/float64(c.Hz*c.Clients)), c.States))
		s.Case = &one
		var round bench.Round
		if err := s.Measure(ctx, &round, one.Active); err != nil {
			return nil, fmt.Errorf("overload: %w", err)
		}
		result := s.Result([]bench.Round{round})
		result.Capacity = capacity
		results = append(results, result)
	}
	return results, nil
}

// The last two of ten clients disturb the others.
const (
	quietClients  = 8
	stalledClient = 8
	floodClient   = 9
	floodRate     = 50_000                // datagrams per second
	floodPause    = time.Millisecond      // between bursts
	shoutPause    = 50 * time.Millisecond // between reliable messages to all
)

// Disturbed measures eight clients alternately undisturbed and beside one that acknowledges
// nothing and one that floods its edge. All receive reliable messages, so that a queue
// builds up for the client that stalls.
func Disturbed(ctx context.Context, r *bench.Runner) ([]bench.Result, error) {
	s, err := r.Open(ctx, &bench.Case{Name: "disturbed", States: 100, Hz: 20, Clients: 10, Edges: 1, Alone: true})
	if err != nil {
		return nil, fmt.Errorf("disturbed: %w", err)
	}
	defer s.Close()
	s.Swarm.Do(func([]bench.Client) { s.Swarm.Counted = quietClients })
	defer shout(ctx, s)()
	var calm, loud []bench.Round
	for range r.Rounds {
		var one, other bench.Round
		err := s.Measure(ctx, &one, s.Case.States)
		if err == nil {
			err = disturb(ctx, s, &other)
		}
		if err != nil {
			return nil, fmt.Errorf("disturbed: %w", err)
		}
		calm, loud = append(calm, one), append(loud, other)
	}
	return compare(s, calm, loud), nil
}

// disturb measures a window with a client that stalls and one that floods.
func disturb(ctx context.Context, s *bench.Scene, r *bench.Round) error {
	stall := func(index int) { s.Swarm.Do(func([]bench.Client) { s.Swarm.Stalled = index }) }
	stall(stalledClient)
	defer stall(-1)
	defer flood(ctx, s)()
	return s.Measure(ctx, r, s.Case.States)
}

// compare returns the results of both kinds of windows, the second with its ratios to the
// first: medians of the ratios of each pair of windows.
func compare(s *bench.Scene, calm, loud []bench.Round) []bench.Result {
	c := *s.Case
	s.Case = &c
	c.Name = "undisturbed"
	first := s.Result(calm)
	c.Name = "disturbed"
	second := s.Result(loud)
	var latency, updates []float64
	for i := range calm {
		p99 := func(r *bench.Round) float64 { return float64(r.Window.Latency.Quantile(0.99)) }
		rate := func(r *bench.Round) float64 { return float64(r.Window.Updates) / r.Wall.Seconds() }
		latency = append(latency, bench.Ratio(p99(&loud[i]), p99(&calm[i])))
		updates = append(updates, bench.Ratio(rate(&loud[i]), rate(&calm[i])))
	}
	second.LatencyRatio, second.LatencySpread = bench.Median(latency), bench.Spread(latency)
	second.UpdatesRatio = bench.Median(updates)
	return []bench.Result{first, second}
}

// during calls f once per pause until the returned function is called.
func during(ctx context.Context, pause time.Duration, f func()) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { rig.Every(ctx, pause, f) })
	return func() { cancel(); running.Wait() }
}

// shout sends reliable messages to all clients until the returned function is called.
func shout(ctx context.Context, s *bench.Scene) (stop func()) {
	return during(ctx, shoutPause, func() {
		_ = s.Publisher.NC.Publish(s.Publisher.Subjects.ToAll(bench.Space), []byte("a reliable message to all")) // a failure shows in the figures
	})
}

// flood sends floodRate datagrams per second in the name of floodClient until the returned
// function is called. They are cheap to make and expensive to refuse.
func flood(ctx context.Context, s *bench.Scene) (stop func()) {
	socket := s.Swarm.Sender()
	kinds := [][]byte{
		wire.ReliableAck{Seq: 999, Code: wire.AckSuccess}.Append(nil),
		append([]byte{byte(wire.CommandReliableMessage), 0xF0, 0xF0}, make([]byte, 30)...),  // far outside of the window
		append([]byte{byte(wire.CommandLinkUpdate), 1, 1, 0, 1, 0, 0}, make([]byte, 12)...), // of a link that it may not write
		append([]byte{byte(wire.CommandMessage)}, make([]byte, 20)...),
		{0xFF, 1, 2, 3},
	}
	start, sent := time.Now(), 0
	return during(ctx, floodPause, func() {
		for due := int(time.Since(start).Seconds() * floodRate); sent < due; sent++ {
			socket.Send(bench.ClientAddress(floodClient), s.Stack.Edges[0], append(socket.Room(), kinds[sent%len(kinds)]...))
		}
		socket.Flush()
	})
}

// WriteSeries prints the trends of growth series and the ratios of the disturbed series.
func WriteSeries(w io.Writer, results []bench.Result) {
	for _, t := range Trends(results) {
		t.write(w)
	}
	for i := range results {
		if res := &results[i]; res.LatencyRatio > 0 {
			fmt.Fprintf(w, "%s: beside a client that stalls and one that floods, %d others had %.2f%% of their updates and %.2f times (± %.0f%%) the p99 latency\n",
				res.Case, quietClients, 100*res.UpdatesRatio, res.LatencyRatio, 100*res.LatencySpread)
		}
	}
}

// Cases returns all series of separate cases.
func Cases() []bench.Case { return slices.Concat(bench.Sweep(), Growth(), Idle()) }

// A grower is a series in which one number grows.
type grower struct {
	series, unit string
	count        func(*bench.Result) int
}

var growers = []grower{
	{"clients", "client", func(r *bench.Result) int { return r.Clients }},
	{"states", "state", func(r *bench.Result) int { return r.States }},
	{"links", "link", func(r *bench.Result) int { return r.Clients * r.Links }},
}

// A Trend is the cost of one more unit for an edge: the slope over the whole series, and
// the least and the most of the slopes between neighbouring cases. A cost that grows
// faster than linearly has its maximum at the end.
type Trend struct {
	Series, Unit string
	From, To     int
	CPU          Slope // microseconds of a core per second
	Memory       Slope // bytes
}

// A Slope is the growth of a cost with each unit.
type Slope struct{ Whole, Least, Most, Last float64 }

// Trends returns the slopes of the growth series in results. The cases of a series are in
// ascending order.
func Trends(results []bench.Result) (list []Trend) {
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

// slope returns the growth of y over x, which has at least two values, ascending.
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
