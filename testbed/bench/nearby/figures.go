//go:build linux

package nearby

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dnprelay/dnprelay/testbed/bench"
)

// Figures are what a run measured. Those of several rounds are medians; ± is the distance from the least to the most, relative
// to the median.
type Figures struct {
	States  int     `json:"states"`
	Clients int     `json:"clients"`
	Hz      int     `json:"hz"`
	Side    float64 `json:"field"`
	Bands   []Band  `json:"bands"`
	AtOnce  bool    `json:"at_once"`
	Workers int     `json:"workers"`
	Rounds  int     `json:"rounds"`

	KiBP50      float64 `json:"client_kib_per_s_p50"` // with UDP and IPv4 headers
	KiBP95      float64 `json:"client_kib_per_s_p95"`
	KiBMean     float64 `json:"client_kib_per_s_mean"`
	KiBRepeats  float64 `json:"client_kib_per_s_repeats"`          // of these, values that the client had
	KiBOffers   float64 `json:"client_kib_per_s_offers"`           // of these, offers of links with their values
	KiBRest     float64 `json:"client_kib_per_s_rest"`             // of these, what brings no values
	KiBAll      float64 `json:"client_kib_per_s_without_interest"` // all states in all ticks, with as many bytes per update
	Updates     float64 `json:"updates_per_s"`
	Repeats     float64 `json:"repeats_per_s"`
	PerUpdate   float64 `json:"wire_bytes_per_update"` // or repeat
	EdgeCores   float64 `json:"edge_cores"`
	PerCore     float64 `json:"clients_per_edge_core"`
	PlainCores  float64 `json:"edge_cores_without_interest"` // of an edge that follows the same states and has no clients
	RelayCores  float64 `json:"relay_cores"`
	NATSCores   float64 `json:"nats_cores"`
	BenchCores  float64 `json:"bench_cores"`    // of the publisher and the clients
	LatencyP50  float64 `json:"latency_ms_p50"` // within the inner band
	LatencyP99  float64 `json:"latency_ms_p99"`
	LatencyMax  float64 `json:"latency_ms_max"`
	NATSRatio   float64 `json:"nats_bytes_to_without_interest"`
	NATSBytes   float64 `json:"nats_bytes_per_s"`
	RelayRatio  float64 `json:"relay_cpu_to_without_interest"`
	RelaySpread float64 `json:"relay_cpu_to_without_interest_spread"`

	// CPU time of each role for each change of a state, whoever gets it. It depends less than cores and times do
	// on whether the cores keep up: programs that are late do more at once, and edges repeat more.
	BenchMicros float64 `json:"bench_us_per_change"`
	NATSMicros  float64 `json:"nats_us_per_change"`
	RelayMicros float64 `json:"relay_us_per_change"`
	EdgeMicros  float64 `json:"edge_us_per_change"`
	EdgeUpdate  float64 `json:"edge_us_per_update"` // that clients receive, or repeat

	Cores      float64 `json:"cores"`       // of the machine
	IdleCores  float64 `json:"idle_cores"`  // the least of a round
	OtherCores float64 `json:"other_cores"` // used by programs that do not belong to the run, the most of a round
	LateMax    float64 `json:"publish_late_ms_max"`

	Crossings   []Crossing `json:"crossings"`
	CrossingP99 float64    `json:"crossing_ms_p99"`

	LinkIDs int     `json:"link_ids"`             // of objects, of all clients, since they connected
	Pairs   int     `json:"link_ids_first"`       // of these, the first of a client and an object
	Missing float64 `json:"without_link"`         // share of the objects in a band of a client
	Unseen  float64 `json:"out_of_sight_updates"` // share of updates

	Overflow uint64 `json:"generator_overflow"` // datagrams that the generator lost; they make the result doubtful
	Closed   int    `json:"clients_closed"`

	picture *picture
}

// A Crossing is how long it took until objects showed that came into a band.
type Crossing struct {
	Count  uint64  `json:"count"`
	P99    float64 `json:"shown_ms_p99"`
	AgeP99 float64 `json:"age_ms_p99"` // of what clients show in the band, at random moments
	AgeMax float64 `json:"age_ms_bar"`
}

// A round is one window of each space.
type round struct {
	near    window
	bytes   []uint64 // of each client
	with    played
	without played
}

func (p *played) cores(d time.Duration) float64 { return bench.Ratio(d.Seconds(), p.wall.Seconds()) }

func (r *round) edgeCores() float64 { return r.with.cores(r.with.cpu.edge) }

// kib returns what the share q of clients does not exceed, in KiB per second.
func (r *round) kib(q float64) float64 {
	list := slices.Sorted(slices.Values(r.bytes))
	at := max(0, min(len(list)-1, int(q*float64(len(list)))))
	return bench.Ratio(float64(list[at]), r.with.wall.Seconds()*1024)
}

// summary returns the figures of some rounds.
func (s *scene) summary(rounds []round) *Figures {
	l := &s.Load
	f := &Figures{
		States: l.States, Clients: l.Clients, Hz: l.Hz, Side: l.Side, Bands: l.Bands, AtOnce: l.AtOnce, Workers: s.Workers, Rounds: len(rounds),
		Overflow: uint64(s.swarm.Overflows()), Closed: s.swarm.Closed(),
	}
	list := func(of func(*round) float64) (list []float64) {
		for i := range rounds {
			list = append(list, of(&rounds[i]))
		}
		return list
	}
	middle := func(of func(*round) float64) float64 { return bench.Median(list(of)) }
	s.bytes(f, middle)
	f.EdgeCores = middle((*round).edgeCores)
	f.PerCore = bench.Ratio(float64(l.Clients), f.EdgeCores)
	f.PlainCores = middle(func(r *round) float64 { return r.without.cores(r.without.cpu.edge) })
	s.costs(f, rounds, middle)
	played := s.played().Seconds()
	f.NATSBytes = middle(func(r *round) float64 { return float64(r.with.nats) / played })
	f.NATSRatio = middle(func(r *round) float64 { return bench.Ratio(float64(r.with.nats), float64(r.without.nats)) })
	relay := list(func(r *round) float64 { return bench.Ratio(float64(r.with.all.relay), float64(r.without.all.relay)) })
	f.RelayRatio, f.RelaySpread = bench.Median(relay), bench.Spread(relay)
	s.times(f, rounds, middle)
	s.swarm.Do(func([]bench.Client) {
		f.LinkIDs, f.Pairs = s.watch.ids, s.watch.offered
		f.picture = s.watch.picture(&rounds[len(rounds)-1])
	})
	return f
}

// bytes sets what clients receive.
func (s *scene) bytes(f *Figures, middle func(func(*round) float64) float64) {
	l := &s.Load
	wall := func(r *round) float64 { return r.with.wall.Seconds() }
	f.KiBP50 = middle(func(r *round) float64 { return r.kib(0.5) })
	f.KiBP95 = middle(func(r *round) float64 { return r.kib(0.95) })
	mean := func(bytes func(*window) uint64) float64 {
		return middle(func(r *round) float64 {
			return bench.Ratio(float64(bytes(&r.near)), wall(r)*1024*float64(l.Clients))
		})
	}
	f.KiBMean = mean(func(w *window) uint64 { return w.bytes })
	f.KiBRepeats = mean(func(w *window) uint64 { return w.again })
	f.KiBOffers = mean(func(w *window) uint64 { return w.offers })
	f.KiBRest = mean(func(w *window) uint64 { return w.rest })
	f.Updates = middle(func(r *round) float64 { return float64(r.near.updates) / wall(r) })
	f.Repeats = middle(func(r *round) float64 { return float64(r.near.repeats) / wall(r) })
	f.PerUpdate = middle(func(r *round) float64 {
		return bench.Ratio(float64(r.near.bytes), float64(r.near.updates+r.near.repeats))
	})
	f.KiBAll = float64(l.States*l.Hz) * f.PerUpdate / 1024
}

// costs sets what the processes and the rest of the machine used.
func (s *scene) costs(f *Figures, rounds []round, middle func(func(*round) float64) float64) {
	f.BenchCores = middle(func(r *round) float64 { return r.with.cores(r.with.cpu.generator) })
	f.NATSCores = middle(func(r *round) float64 { return r.with.cores(r.with.cpu.nats) })
	f.RelayCores = middle(func(r *round) float64 { return r.with.cores(r.with.cpu.relay) })
	each := func(of func(*roles) time.Duration) float64 {
		return middle(func(r *round) float64 { return bench.Ratio(micros(of(&r.with.all)), float64(r.with.changes)) })
	}
	f.BenchMicros = each(func(r *roles) time.Duration { return r.generator })
	f.NATSMicros = each(func(r *roles) time.Duration { return r.nats })
	f.RelayMicros = each(func(r *roles) time.Duration { return r.relay })
	f.EdgeMicros = each(func(r *roles) time.Duration { return r.edge })
	f.EdgeUpdate = middle(func(r *round) float64 {
		return bench.Ratio(micros(r.with.cpu.edge), float64(r.near.updates+r.near.repeats))
	})
	for i := range rounds {
		p := &rounds[i].with
		if idle := p.cores(p.idle); i == 0 || idle < f.IdleCores {
			f.Cores, f.IdleCores = p.cores(p.busy+p.idle), idle
		}
		f.OtherCores = max(f.OtherCores, p.cores(p.busy-p.cpu.sum()))
		f.LateMax = max(f.LateMax, ms(p.late))
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// played returns how long a window is with the ticks before those that count.
func (s *scene) played() time.Duration {
	return time.Duration(s.Load.ticks(warmTime)+s.Load.ticks(s.Window)) * s.Load.period()
}

// times sets latencies, crossings and ages.
func (s *scene) times(f *Figures, rounds []round, middle func(func(*round) float64) float64) {
	f.LatencyP50 = middle(func(r *round) float64 { return ms(r.near.latency.Quantile(0.5)) })
	f.LatencyP99 = middle(func(r *round) float64 { return ms(r.near.latency.Quantile(0.99)) })
	f.LatencyMax = middle(func(r *round) float64 { return ms(r.near.latency.Quantile(1)) })
	for band := range s.Load.Bands {
		one := Crossing{AgeMax: ms(s.Load.ageMax(band))}
		for i := range rounds {
			one.Count += rounds[i].near.crossings[band].Count()
		}
		one.P99 = middle(func(r *round) float64 { return ms(r.near.crossings[band].Quantile(0.99)) })
		one.AgeP99 = middle(func(r *round) float64 { return ms(r.near.ages[band].Quantile(0.99)) })
		f.Crossings = append(f.Crossings, one)
		f.CrossingP99 = max(f.CrossingP99, one.P99)
	}
	f.Missing = middle(func(r *round) float64 { return bench.Ratio(float64(r.near.missing), float64(r.near.samples)) })
	f.Unseen = middle(func(r *round) float64 { return bench.Ratio(float64(r.near.unseen), float64(r.near.updates)) })
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// doubt returns an error if the figures are not those of the load.
func (f *Figures) doubt() error {
	var err error
	add := func(wrong bool, format string, args ...any) {
		if wrong {
			err = errors.Join(err, fmt.Errorf(format, args...))
		}
	}
	add(f.Updates == 0 || f.LatencyMax == 0, "clients received no updates within the inner band")
	add(f.NATSBytes == 0, "no messages went over NATS")
	add(f.Closed > 0, "edges closed %d of %d clients", f.Closed, f.Clients)
	for i, c := range f.Crossings {
		add(c.AgeP99 == 0, "clients were not seen to show objects in band %d", i)
	}
	return err
}

// A bar is a row of the table.
type bar struct {
	what, figure, asked string
	met                 bool
}

// bars returns the rows of the table.
func (f *Figures) bars() []bar {
	ages, old := "", false
	crossings := ""
	for i, c := range f.Crossings {
		crossings += fmt.Sprintf("%s%.0f (%d × into %v)", separator(i), c.P99, c.Count, f.Bands[i].Within)
		ages += fmt.Sprintf("%s%.0f of %.0f", separator(i), c.AgeP99, c.AgeMax)
		old = old || c.AgeP99 > c.AgeMax
	}
	within := func(ratio float64) bool { return ratio >= 1-ratioMax && ratio <= 1+ratioMax }
	return []bar{
		{"KiB/s per client, p95", fmt.Sprintf("%.1f (p50 %.1f; everything would be %.0f)", f.KiBP95, f.KiBP50, f.KiBAll), fmt.Sprintf("≤ %d", kibMax), f.KiBP95 <= kibMax},
		{"edge CPU, cores", fmt.Sprintf("%.2f (a core carries %.0f clients; %.2f without interest and clients)", f.EdgeCores, f.PerCore, f.PlainCores), fmt.Sprintf("≤ %d", coresMax), f.EdgeCores <= coresMax},
		{"latency within the inner band, ms, p99", fmt.Sprintf("%.1f (p50 %.1f, max %.1f)", f.LatencyP99, f.LatencyP50, f.LatencyMax), fmt.Sprintf("≤ %.0f", ms(latencyMax)), f.LatencyP99 <= ms(latencyMax)},
		{"crossing a border shows, ms, p99", crossings, fmt.Sprintf("≤ %.0f", ms(crossingMax)), f.CrossingP99 <= ms(crossingMax)},
		{"age of what is shown, ms, p99, by band", ages, "rate + tick + latency", !old},
		{"LinkIds used again for crossings", fmt.Sprintf("%d (%d × into sight; %d used in all)", f.LinkIDs-f.Pairs, f.Crossings[len(f.Crossings)-1].Count, f.LinkIDs), "0", f.LinkIDs == f.Pairs},
		{"objects in sight without a link", fmt.Sprintf("%.2f %%", 100*f.Missing), "≤ 0.1 %", f.Missing <= shareMax},
		{"updates of objects out of sight", fmt.Sprintf("%.2f %%", 100*f.Unseen), "≤ 0.1 %", f.Unseen <= shareMax},
		{"NATS bytes, to those without interest", fmt.Sprintf("%.4f (%.1f MiB/s)", f.NATSRatio, f.NATSBytes/(1<<20)), "within 1 %", within(f.NATSRatio)},
		{"relay CPU, to that without interest", fmt.Sprintf("%.3f ± %.0f %% (%.2f cores)", f.RelayRatio, 100*f.RelaySpread, f.RelayCores), "within 1 %", within(f.RelayRatio)},
	}
}

func separator(i int) string {
	if i == 0 {
		return ""
	}
	return ", "
}

// idleLeast is the share of the cores that has to be idle. With less, threads often wait for a core. The number is arbitrary.
const idleLeast = 0.1

// saturated reports whether the machine had too little left for times to be those of the programs.
func (f *Figures) saturated() bool { return f.Cores > 0 && f.IdleCores < idleLeast*f.Cores }

// Write prints figures as tables, and below them what was missed, and reasons to doubt them.
func Write(w io.Writer, f *Figures) error {
	how := "evenly over the tick"
	if f.AtOnce {
		how = "all at once"
	}
	fmt.Fprintf(w, "%d states at %d Hz, %s, %d clients, a field of %v × %v, %d workers, %d rounds\n", f.States, f.Hz, how, f.Clients, f.Side, f.Side, f.Workers, f.Rounds)
	fmt.Fprintf(w, "%.0f changes/s; clients receive %.0f updates/s of %.1f wire bytes, and %.0f repeats/s\n", float64(f.States*f.Hz), f.Updates, f.PerUpdate, f.Repeats)
	fmt.Fprintf(w, "a client receives %.1f KiB/s on average: changes %.1f, repeats %.1f, offers of links %.1f, the rest %.1f\n\n",
		f.KiBMean, f.KiBMean-f.KiBRepeats-f.KiBOffers-f.KiBRest, f.KiBRepeats, f.KiBOffers, f.KiBRest)
	bars := f.bars()
	err := errors.Join(writeBars(w, bars), f.writeCosts(w))
	line := func(format string, args ...any) {
		_, failed := fmt.Fprintf(w, format+"\n", args...)
		err = errors.Join(err, failed)
	}
	if missed := missed(bars); len(missed) > 0 {
		line("missed %d of %d bars: %s", len(missed), len(bars), strings.Join(missed, "; "))
	} else {
		line("met all %d bars", len(bars))
	}
	if f.saturated() {
		line("warning: the machine was saturated: %.2f of its %.0f cores were idle, and other programs used %.2f; what waits for a core is late, and values that are late are repeated, so bytes, times and ages say little; CPU time per change says more",
			f.IdleCores, f.Cores, f.OtherCores)
	}
	if f.LateMax > ms(latencyMax) {
		line("warning: the publisher was up to %.0f ms late", f.LateMax)
	}
	if f.Overflow > 0 {
		line("warning: the generator was too slow for %d datagrams", f.Overflow)
	}
	return err
}

func writeBars(w io.Writer, bars []bar) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "what\tmeasured\tasked for\tmet\n")
	for _, b := range bars {
		met := "yes"
		if !b.met {
			met = "NO"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", b.what, b.figure, b.asked, met)
	}
	return t.Flush()
}

// missed returns the names of the bars that are not met.
func missed(bars []bar) (names []string) {
	for _, b := range bars {
		if !b.met {
			names = append(names, b.what)
		}
	}
	return names
}

// writeCosts prints the CPU time of each role.
func (f *Figures) writeCosts(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "\nCPU of\tcores\tµs per change\n")
	for _, role := range []struct {
		name          string
		cores, micros float64
		more          string
	}{
		{"publisher and clients", f.BenchCores, f.BenchMicros, ""},
		{"NATS", f.NATSCores, f.NATSMicros, ""},
		{"relay", f.RelayCores, f.RelayMicros, ""},
		{"edge", f.EdgeCores, f.EdgeMicros, fmt.Sprintf(" (%.2f per update that a client receives)", f.EdgeUpdate)},
		{"all of them", f.BenchCores + f.NATSCores + f.RelayCores + f.EdgeCores, f.BenchMicros + f.NATSMicros + f.RelayMicros + f.EdgeMicros, ""},
	} {
		fmt.Fprintf(t, "%s\t%.2f\t%.2f%s\n", role.name, role.cores, role.micros, role.more)
	}
	fmt.Fprintf(t, "other programs\t%.2f\t\nidle\t%.2f\tof %.0f\n\n", f.OtherCores, f.IdleCores, f.Cores)
	return t.Flush()
}
