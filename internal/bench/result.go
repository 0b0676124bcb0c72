//go:build linux

package bench

import (
	"slices"
	"time"
)

// A Result is what a case showed. Figures of several rounds are medians; latencies
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
	Staleness Quantiles `json:"staleness_ms"` // age of what clients show; only when all values change

	BytesPerUpdate     float64 `json:"wire_bytes_per_update"` // with UDP and IPv4 headers, for updates that were new
	BytesPerLink       float64 `json:"wire_bytes_per_link"`   // the same, for repeats too
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

	LatencyRatio  float64 `json:"p99_latency_to_undisturbed,omitempty"` // of neighbouring windows
	LatencySpread float64 `json:"p99_latency_to_undisturbed_spread,omitempty"`
	UpdatesRatio  float64 `json:"updates_to_undisturbed,omitempty"`

	Overflow uint64 `json:"generator_overflow"` // datagrams that the generator lost: the round counts for little
	Lost     uint64 `json:"clients_lost"`
}

// Quantiles are in milliseconds.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

const headerBytes = 28 // of UDP and IPv4

func (s *scene) result(all []round) Result {
	c := s.c
	res := Result{
		Case: c.String(), Name: c.Name, States: c.States, Hz: c.Hz, Clients: c.Clients, Edges: c.Edges,
		Links: c.linksPerClient(), Model: c.Model.String(), Half: c.Half, Load: c.Load, Rounds: len(all),
		RSSPerClient: float64(s.full-s.empty) / float64(c.Clients), JoinSeconds: s.joining.Seconds(),
	}
	of := func(f func(*round) float64) float64 { return median(all, f) }
	perSecond := func(f func(*round) float64) float64 {
		return of(func(r *round) float64 { return f(r) / r.wall.Seconds() })
	}
	res.Offered = of(func(r *round) float64 { return r.offered })
	res.Updates = perSecond(updates)
	res.Repeats = perSecond(func(r *round) float64 { return float64(r.window.repeats) })
	cores := [4]*float64{&res.EdgeCores, &res.RelayCores, &res.NATSCores, &res.BenchCores}
	for i := range cores {
		*cores[i] = perSecond(func(r *round) float64 { return r.usage[i].Seconds() })
	}
	res.PerEdgeCPU, res.Spread = of(perEdge), spread(all, perEdge)
	res.traffic(of)
	res.memory(of, perSecond, all)
	res.baselines(of, all)
	res.times(all)
	return res
}

func updates(r *round) float64 { return float64(r.window.updates) }
func perEdge(r *round) float64 { return ratio(updates(r), r.usage[0].Seconds()) }

func (res *Result) traffic(of func(func(*round) float64) float64) {
	wire := func(r *round) float64 { return float64(r.window.bytes + headerBytes*r.window.datagrams) }
	links := func(r *round) float64 { return float64(r.window.updates + r.window.repeats) }
	res.BytesPerUpdate = of(func(r *round) float64 { return ratio(wire(r), updates(r)) })
	res.BytesPerLink = of(func(r *round) float64 { return ratio(wire(r), links(r)) })
	res.UpdatesPerDatagram = of(func(r *round) float64 { return ratio(links(r), float64(r.window.datagrams)) })
}

func (res *Result) memory(of, perSecond func(func(*round) float64) float64, all []round) {
	res.AllocsPerUpdate = of(func(r *round) float64 { return ratio(r.after.allocations-r.before.allocations, updates(r)) })
	res.BytesAllocated = of(func(r *round) float64 { return ratio(r.after.bytes-r.before.bytes, updates(r)) })
	res.Collections = perSecond(func(r *round) float64 { return r.after.collections - r.before.collections })
	for i := range all {
		res.RSS = max(res.RSS, all[i].rss)
		res.PauseMax = max(res.PauseMax, ms(all[i].after.pauseMax))
		res.Overflow += uint64(all[i].overflow)
		res.Lost += all[i].window.lost
	}
}

func (res *Result) baselines(of func(func(*round) float64) float64, all []round) {
	bare := func(r *round) float64 { return ratio(float64(r.usage[0]), r.bare) }
	res.BareRatio, res.BareSpread = of(bare), spread(all, bare)
	ours := func(r *round) float64 { return ratio(float64(r.usage[0]), updates(r)) }
	res.RawRatio = of(func(r *round) float64 { return ratio(r.raw, ours(r)) })
	res.NaiveRatio = of(func(r *round) float64 { return ratio(r.naive, ours(r)) })
}

func (res *Result) times(all []round) {
	order := make([]*round, len(all))
	for i := range all {
		order[i] = &all[i]
	}
	slices.SortFunc(order, func(a, b *round) int {
		return int(a.window.latency.quantile(0.99) - b.window.latency.quantile(0.99))
	})
	middle := order[len(order)/2]
	res.Latency = quantiles(&middle.window.latency)
	if res.Model == ModelAll.String() {
		res.Staleness = quantiles(&middle.window.staleness)
	}
}

func quantiles(h *histogram) Quantiles {
	return Quantiles{P50: ms(h.quantile(0.5)), P99: ms(h.quantile(0.99)), Max: ms(h.max)}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func values(all []round, f func(*round) float64) []float64 {
	list := make([]float64, len(all))
	for i := range all {
		list[i] = f(&all[i])
	}
	slices.Sort(list)
	return list
}

func median(all []round, f func(*round) float64) float64 {
	list := values(all, f)
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}

// spread returns the distance from the least to the most, in units of the median.
func spread(all []round, f func(*round) float64) float64 {
	list := values(all, f)
	return ratio(list[len(list)-1]-list[0], median(all, f))
}
