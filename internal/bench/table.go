//go:build linux

package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Write prints results as a table for people.
func Write(w io.Writer, results []Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "series\tstates×Hz×clients\tM upd/s\tdelivered\tM upd/edge-CPU-s\t±\tcores: edge\trelay\tNATS\tbench\t"+
		"latency ms p50\tp99\tmax\tstale ms p50\tp99\tmax\tB/upd\tKiB/client\tRSS MiB\tallocs/upd\tGC/s\tpause ms\t"+
		"CPU/bare\t±\tvs NATS\tvs naive\t\n")
	for i := range results {
		results[i].write(t)
	}
	return t.Flush()
}

func (r *Result) write(w io.Writer) {
	name := r.Case
	if r.Load > 0 {
		name = fmt.Sprintf("%g × capacity", r.Load)
	}
	fmt.Fprintf(w, "%s\t%s\t%.3f\t%.0f%%\t%.2f\t%.0f%%\t%.3f\t%.3f\t%.3f\t%.3f\t", r.Name, name, r.Updates/1e6, 100*ratio(r.Updates, r.Offered),
		r.PerEdgeCPU/1e6, 100*r.Spread, r.EdgeCores, r.RelayCores, r.NATSCores, r.BenchCores)
	fmt.Fprintf(w, "%.1f\t%.1f\t%.1f\t", r.Latency.P50, r.Latency.P99, r.Latency.Max)
	if r.Staleness.Max > 0 {
		fmt.Fprintf(w, "%.0f\t%.0f\t%.0f\t", r.Staleness.P50, r.Staleness.P99, r.Staleness.Max)
	} else {
		fmt.Fprint(w, "-\t-\t-\t")
	}
	fmt.Fprintf(w, "%.1f\t%.1f\t%.0f\t%.4f\t%.1f\t%.2f\t", r.BytesPerUpdate, r.RSSPerClient/1024, float64(r.RSS)/(1<<20),
		r.AllocsPerUpdate, r.Collections, r.PauseMax)
	if r.BareRatio > 0 {
		fmt.Fprintf(w, "%.2f\t%.0f%%\t%.2f\t%.2f\t\n", r.BareRatio, 100*r.BareSpread, r.RawRatio, r.NaiveRatio)
	} else {
		fmt.Fprint(w, "-\t-\t-\t-\t\n")
	}
}

// Warnings returns what makes a result doubtful.
func (r *Result) Warnings() (list []string) {
	if r.Overflow > 0 {
		list = append(list, fmt.Sprintf("%s: the generator was too slow for %d datagrams", r.Case, r.Overflow))
	}
	if r.Lost > 0 {
		list = append(list, fmt.Sprintf("%s: edges closed %d clients", r.Case, r.Lost))
	}
	return list
}
