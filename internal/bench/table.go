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
	if err := t.Flush(); err != nil {
		return err
	}
	trends := Trends(results)
	for i := range trends {
		trends[i].write(w)
	}
	for i := range results {
		if res := &results[i]; res.LatencyRatio > 0 {
			fmt.Fprintf(w, "%s: beside a client that stalls and one that floods, %d others had %.2f%% of their updates and %.2f times (± %.0f%%) the p99 latency\n",
				res.Case, quietClients, 100*res.UpdatesRatio, res.LatencyRatio, 100*res.LatencySpread)
		}
	}
	return nil
}

func (res *Result) write(w io.Writer) {
	name := res.Case
	if res.Load > 0 {
		name = fmt.Sprintf("%g × capacity", res.Load)
	}
	fmt.Fprintf(w, "%s\t%s\t%.3f\t%.0f%%\t%.2f\t%.0f%%\t%.3f\t%.3f\t%.3f\t%.3f\t", res.Name, name, res.Updates/1e6, 100*ratio(res.Updates, res.Offered),
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

// Warnings returns what makes a result doubtful.
func (res *Result) Warnings() (list []string) {
	if res.Overflow > 0 {
		list = append(list, fmt.Sprintf("%s: the generator was too slow for %d datagrams", res.Case, res.Overflow))
	}
	if res.Lost > 0 {
		list = append(list, fmt.Sprintf("%s: edges closed %d clients", res.Case, res.Lost))
	}
	return list
}
