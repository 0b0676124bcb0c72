package history

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"
)

// Write prints the table.
func (v *Verdict) Write(w io.Writer) error {
	fmt.Fprintln(w, v.Run)
	fmt.Fprintf(w, "%d messages of clients, %d to clients: %d lost, %d doubled, %d out of order; acknowledged after p50 %s, p99 %s\n",
		v.Said, v.Told, v.Lost, v.Doubled, v.Disorder, ms(v.AckP50), ms(v.AckP99))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "phase\tfaults\tinterruptions\t95 % bound\tgap p50\tp99\tmost\tmost repeats\tack p50\tp99\t")
	for _, p := range v.Phases {
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t\n", p.Name, p.Faults, p.Interruptions, bound(p),
			ms(p.GapP50), ms(p.GapP99), ms(p.GapMost), p.Extra, ms(p.AckP50), ms(p.AckP99))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := v.writePauses(w); err != nil {
		return err
	}
	for _, o := range v.Operations {
		fmt.Fprintf(w, "calm: %.0f %s per second, %.2f per reliable message\n", o.PerSecond, o.What, o.PerMessage)
	}
	for _, c := range v.Costs {
		fmt.Fprintf(w, "%s: %.1f µs of edges' CPU per datagram to a client (median of %d)\n", c.What, float64(c.PerDown)/1e3, c.Measured)
	}
	for _, line := range v.Violations {
		fmt.Fprintln(w, "VIOLATION", line)
	}
	return nil
}

// writePauses prints the pauses of clients whose sessions or flows moved, if there are any.
func (v *Verdict) writePauses(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	some := false
	for _, p := range v.Phases {
		for _, of := range []struct {
			what string
			*pauses
		}{{"its session is handed over", &p.Handed}, {"nothing, at the same moment (median)", &p.Others}, {"the former, less the latter", &p.Above}, {"its flow moves", &p.Moved}} {
			if of.Count == 0 {
				continue
			}
			if !some {
				fmt.Fprintln(t, "phase\twhat happens to a client\ttimes\tpause p50\tp99\tmost\t")
				some = true
			}
			fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t\n", p.Name, of.what, of.Count, ms(of.P50), ms(of.P99), ms(of.Most))
		}
	}
	return t.Flush()
}

// bound returns the upper bound, with 95 % certainty, of the share of faults that interrupt
// a client, if none did.
func bound(p Phase) string {
	if p.Interruptions > 0 || p.Faults == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*(1-math.Pow(0.05, 1/float64(p.Faults))))
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond)) }
