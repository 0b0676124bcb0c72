//go:build linux

package bench

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/dnprelay/dnprelay/internal/latency"
)

// A Result is the figures of a case. Figures of several rounds are medians; latencies
// and staleness are those of the round whose p99 latency is the median.
type Result struct {
	Case    string  `json:"case"`
	Name    string  `json:"name"`
	States  int     `json:"states"`
	Hz      int     `json:"hz"`
	Clients int     `json:"clients"`
	Edges   int     `json:"edges"`
	Links   int     `json:"links_per_client"`
	Model   string  `json:"model"`
	Half    bool    `json:"half"`
	Carrier string  `json:"carrier"`
	Load    float64 `json:"load,omitempty"`
	Rounds  int     `json:"rounds"`

	Offered  float64 `json:"offered_per_s"` // updates × links, before precision and coalescing
	Updates  float64 `json:"updates_per_s"` // delivered, each newer than the one before
	Repeats  float64 `json:"repeats_per_s"`
	Capacity float64 `json:"capacity_per_s,omitempty"`

	PerEdgeCPU float64 `json:"updates_per_edge_cpu_s"`
	Spread     float64 `json:"updates_per_edge_cpu_s_spread"` // (most - least) / median over the rounds
	EdgeCores  float64 `json:"edge_cores"`
	RelayCores float64 `json:"relay_cores"`
	NATSCores  float64 `json:"nats_cores"`
	BenchCores float64 `json:"bench_cores"`

	Latency   Quantiles `json:"latency_ms"`
	Staleness Quantiles `json:"staleness_ms"` // age of the values that clients show; only when all values change

	BytesPerUpdate     float64 `json:"wire_bytes_per_update"` // with all headers, per update that was new
	BytesPerLink       float64 `json:"wire_bytes_per_link"`   // the same, per update or repeat
	UpdatesPerDatagram float64 `json:"links_per_datagram"`
	RSS                int64   `json:"edge_rss_bytes"`
	RSSPerClient       float64 `json:"edge_rss_bytes_per_client"`
	AllocsPerUpdate    float64 `json:"edge_allocations_per_update"`
	BytesAllocated     float64 `json:"edge_allocated_bytes_per_update"`
	Collections        float64 `json:"edge_collections_per_s"`
	PauseMax           float64 `json:"edge_gc_pause_max_ms"`
	JoinSeconds        float64 `json:"join_s"`

	BareRatio  float64 `json:"edge_cpu_to_bare_sendmmsg,omitempty"`
	BareSpread float64 `json:"edge_cpu_to_bare_sendmmsg_spread,omitempty"`
	RawRatio   float64 `json:"updates_per_cpu_to_raw_nats,omitempty"`
	NaiveRatio float64 `json:"updates_per_cpu_to_naive,omitempty"`

	FirstRatio  float64 `json:"edge_cpu_per_update_to_first,omitempty"` // case of those measured side by side
	FirstSpread float64 `json:"edge_cpu_per_update_to_first_spread,omitempty"`

	LatencyRatio  float64 `json:"p99_latency_to_undisturbed,omitempty"` // of neighbouring windows
	LatencySpread float64 `json:"p99_latency_to_undisturbed_spread,omitempty"`
	UpdatesRatio  float64 `json:"updates_to_undisturbed,omitempty"`

	Overflow uint64 `json:"generator_overflow"` // datagrams that the generator lost; they make the result doubtful
	Lost     uint64 `json:"clients_lost"`
}

// Quantiles are in milliseconds.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Result returns the figures of some windows.
func (s *Scene) Result(all []Round) Result {
	c := s.Case
	res := Result{
		Case: c.String(), Name: c.Name, States: c.States, Hz: c.Hz, Clients: c.Clients, Edges: c.Edges,
		Links: c.linksPerClient(), Model: c.Model.String(), Half: c.Half, Carrier: c.Carrier.String(), Load: c.Load, Rounds: len(all),
		RSSPerClient: float64(s.full-s.empty) / float64(c.Clients), JoinSeconds: s.joining.Seconds(),
	}
	of := func(f func(*Round) float64) float64 { return Median(values(all, f)) }
	perSecond := func(f func(*Round) float64) float64 {
		return of(func(r *Round) float64 { return f(r) / r.Wall.Seconds() })
	}
	res.Offered = of(func(r *Round) float64 { return r.offered })
	res.Updates = perSecond(updates)
	res.Repeats = perSecond(func(r *Round) float64 { return float64(r.Window.repeats) })
	cores := [kinds]*float64{&res.EdgeCores, &res.RelayCores, &res.NATSCores, &res.BenchCores}
	for i := range cores {
		*cores[i] = perSecond(func(r *Round) float64 { return r.usage[i].Seconds() })
	}
	res.PerEdgeCPU, res.Spread = of(perEdge), Spread(values(all, perEdge))
	res.traffic(of)
	res.memory(of, perSecond, all)
	res.baselines(of, all)
	res.times(all)
	return res
}

func updates(r *Round) float64 { return float64(r.Window.Updates) }
func perEdge(r *Round) float64 { return Ratio(updates(r), r.usage[edgeKind].Seconds()) }

func (res *Result) traffic(of func(func(*Round) float64) float64) {
	wire := func(r *Round) float64 {
		return float64(cmp.Or(r.Window.carried, r.Window.bytes+udpHeaders*r.Window.datagrams))
	}
	links := func(r *Round) float64 { return float64(r.Window.Updates + r.Window.repeats) }
	res.BytesPerUpdate = of(func(r *Round) float64 { return Ratio(wire(r), updates(r)) })
	res.BytesPerLink = of(func(r *Round) float64 { return Ratio(wire(r), links(r)) })
	res.UpdatesPerDatagram = of(func(r *Round) float64 { return Ratio(links(r), float64(r.Window.datagrams)) })
}

func (res *Result) memory(of, perSecond func(func(*Round) float64) float64, all []Round) {
	grown := func(r *Round, name string) float64 { return r.after.sum(name) - r.before.sum(name) }
	res.AllocsPerUpdate = of(func(r *Round) float64 { return Ratio(grown(r, "go_memstats_mallocs_total"), updates(r)) })
	res.BytesAllocated = of(func(r *Round) float64 { return Ratio(grown(r, "go_memstats_alloc_bytes_total"), updates(r)) })
	res.Collections = perSecond(func(r *Round) float64 { return grown(r, "go_gc_duration_seconds_count") })
	for i := range all {
		res.RSS = max(res.RSS, all[i].rss)
		for _, edge := range all[i].after {
			res.PauseMax = max(res.PauseMax, 1e3*edge[`go_gc_duration_seconds{quantile="1"}`]) // of the last few collections
		}
		res.Overflow += uint64(all[i].overflow)
		res.Lost += all[i].Window.lost
	}
}

func (res *Result) baselines(of func(func(*Round) float64) float64, all []Round) {
	bare := func(r *Round) float64 { return Ratio(float64(r.usage[edgeKind]), r.bare) }
	res.BareRatio, res.BareSpread = of(bare), Spread(values(all, bare))
	ours := func(r *Round) float64 { return Ratio(float64(r.usage[edgeKind]), updates(r)) }
	res.RawRatio = of(func(r *Round) float64 { return Ratio(r.raw, ours(r)) })
	res.NaiveRatio = of(func(r *Round) float64 { return Ratio(r.naive, ours(r)) })
}

// compare sets the ratio of the edges' CPU time per update to that of another case, whose windows were beside.
func (res *Result) compare(own, other []Round) {
	var ratios []float64
	for i := range own {
		ratios = append(ratios, Ratio(perEdge(&other[i]), perEdge(&own[i])))
	}
	res.FirstRatio, res.FirstSpread = Median(ratios), Spread(ratios)
}

func (res *Result) times(all []Round) {
	order := make([]*Round, len(all))
	for i := range all {
		order[i] = &all[i]
	}
	slices.SortFunc(order, func(a, b *Round) int {
		return int(a.Window.Latency.Quantile(0.99) - b.Window.Latency.Quantile(0.99))
	})
	middle := order[len(order)/2]
	res.Latency = quantiles(&middle.Window.Latency)
	if res.Model == ModelAll.String() {
		res.Staleness = quantiles(&middle.Window.staleness)
	}
}

func quantiles(h *latency.Histogram) Quantiles {
	return Quantiles{P50: ms(h.Quantile(0.5)), P99: ms(h.Quantile(0.99)), Max: ms(h.Quantile(1))}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Ratio returns a/b, and 0 if b is 0.
func Ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func values(all []Round, f func(*Round) float64) []float64 {
	list := make([]float64, len(all))
	for i := range all {
		list[i] = f(&all[i])
	}
	return list
}

// Median sorts values and returns the one in the middle.
func Median(list []float64) float64 {
	slices.Sort(list)
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}

// Spread sorts values and returns the distance from the least to the most, in units of the
// median.
func Spread(list []float64) float64 {
	m := Median(list)
	return Ratio(list[len(list)-1]-list[0], m)
}

// Write prints results as a table, and below it reasons to doubt them.
func Write(w io.Writer, results []Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "series\tstates×Hz×clients\tM upd/s\tdelivered\tM upd/edge-CPU-s\t±\tcores: edge\trelay\tNATS\tbench\t"+
		"latency ms p50\tp99\tmax\tstale ms p50\tp99\tmax\tB/upd\tKiB/client\tRSS MiB\tallocs/upd\tGC/s\tpause ms\t"+
		"CPU/bare\t±\tvs NATS\tvs naive\t\n")
	for i := range results {
		results[i].write(t)
	}
	err := t.Flush()
	for i := range results {
		for _, line := range results[i].warnings() {
			fmt.Fprintln(w, "warning:", line)
		}
	}
	for i := range results {
		if r := &results[i]; r.FirstRatio > 0 {
			fmt.Fprintf(w, "%s: %.2f times the edge CPU time per update of %s, ± %.0f %%\n", r.Case, r.FirstRatio, results[0].Case, 100*r.FirstSpread)
		}
	}
	return err
}

// WriteJSON writes figures to a file unless its name is empty; - is standard output.
func WriteJSON(file string, figures any) error {
	if file == "" {
		return nil
	}
	data, err := json.MarshalIndent(figures, "", " ")
	if err != nil {
		return err
	}
	data = append(data, '\n')
	if file == "-" {
		_, err = os.Stdout.Write(data)
		return err
	}
	return os.WriteFile(file, data, 0o644)
}

func (res *Result) write(w io.Writer) {
	name := res.Case
	if res.Load > 0 {
		name = fmt.Sprintf("%g × capacity", res.Load)
	}
	fmt.Fprintf(w, "%s\t%s\t%.3f\t%.0f%%\t%.2f\t%.0f%%\t%.3f\t%.3f\t%.3f\t%.3f\t", res.Name, name, res.Updates/1e6, 100*Ratio(res.Updates, res.Offered),
		res.PerEdgeCPU/1e6, 100*res.Spread, res.EdgeCores, res.RelayCores, res.NATSCores, res.BenchCores)
	fmt.Fprintf(w, "%.1f\t%.1f\t%.1f\t", res.Latency.P50, res.Latency.P99, res.Latency.Max)
	if res.Staleness.Max > 0 {
		fmt.Fprintf(w, "%.0f\t%.0f\t%.0f\t", res.Staleness.P50, res.Staleness.P99, res.Staleness.Max)
	} else {
		fmt.Fprint(w, "-\t-\t-\t")
	}
	fmt.Fprintf(w, "%.1f\t%.1f\t%.0f\t%.4f\t%.1f\t%.2f\t", res.BytesPerUpdate, res.RSSPerClient/1024, float64(res.RSS)/(1<<20),
		res.AllocsPerUpdate, res.Collections, res.PauseMax)
	if res.BareRatio > 0 {
		fmt.Fprintf(w, "%.2f\t%.0f%%\t%.2f\t%.2f\t\n", res.BareRatio, 100*res.BareSpread, res.RawRatio, res.NaiveRatio)
	} else {
		fmt.Fprint(w, "-\t-\t-\t-\t\n")
	}
}

func (res *Result) warnings() (list []string) {
	if res.Overflow > 0 {
		list = append(list, fmt.Sprintf("%s: the generator was too slow for %d datagrams", res.Case, res.Overflow))
	}
	if res.Lost > 0 {
		list = append(list, fmt.Sprintf("%s: edges closed %d clients", res.Case, res.Lost))
	}
	return list
}
