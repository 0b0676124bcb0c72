//go:build linux

package clustertest

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dnprelay/dnprelay/testbed/history"
)

// A Round is the measurement of one fault.
type Round struct {
	Fault  string
	Lasted time.Duration // from the begin of the fault until it healed

	NoPublish  time.Duration // longest time without an accepted publish
	NoUpdate   time.Duration // longest time in which some client received no update of the busy states
	Accepted   time.Duration // from the healing until a publish was accepted
	Equal      time.Duration // from then until every client of the clean path had everything
	Return     time.Duration // longest time without an accepted publish while the shard came home
	RolledBack time.Duration // publishes that were accepted and lost, because they were not stored
	Epochs     int           // that began
	Violations []string
}

// String returns the round as a line.
func (r Round) String() string {
	s := fmt.Sprintf("lasted %s, no publish for %s, no update for %s, accepted after %s, equal after %s, return %s, rolled back %s, %d new epochs",
		short(r.Lasted), short(r.NoPublish), short(r.NoUpdate), short(r.Accepted), short(r.Equal), short(r.Return), short(r.RolledBack), r.Epochs)
	for _, v := range r.Violations {
		s += "\n    VIOLATION: " + v
	}
	return s
}

func short(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// A Report is the measurement of a run.
type Report struct {
	Seed    uint64
	Started time.Time
	Took    time.Duration
	Cut     bool // the run ended before all rounds were done
	Rounds  []Round
}

// Violations returns the number of violations.
func (r *Report) Violations() (n int) {
	for _, m := range r.Rounds {
		n += len(m.Violations)
	}
	return n
}

// lossBar is 4 s, the most that the death of a holder may cost while the store has a
// leader, and the pace of the game server.
const lossBar = 4*time.Second + pace

// measures are the columns of the table. bars are the highest values wanted, by fault, with
// * for all faults. An election in NATS stops no updates, but nodes that were connected to
// the server connect to another one.
var measures = []struct {
	name string
	of   func(Round) time.Duration
	bars map[string]time.Duration
}{
	{"no publish", func(m Round) time.Duration { return m.NoPublish }, map[string]time.Duration{"kill": lossBar, "pause": lossBar, "partition": lossBar}},
	{"no update", func(m Round) time.Duration { return m.NoUpdate }, map[string]time.Duration{"kill": lossBar, "pause": lossBar, "partition": lossBar, "nats-leader": time.Second}},
	{"healed to accepted", func(m Round) time.Duration { return m.Accepted }, nil},
	{"to equal", func(m Round) time.Duration { return m.Equal }, map[string]time.Duration{"*": time.Second}},
	{"return", func(m Round) time.Duration { return m.Return }, nil},
	{"rolled back", func(m Round) time.Duration { return m.RolledBack }, nil},
}

// equalBar is the wanted 99th percentile of the time to equal.
const equalBar = 500 * time.Millisecond

// Write prints the table.
func (r *Report) Write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "seconds: median / p99 / max\t rounds")
	for _, m := range measures {
		fmt.Fprintf(t, "\t%s", m.name)
	}
	fmt.Fprintln(t, "\tviolations")
	for _, f := range Faults() {
		rounds := r.of(f.Name)
		if len(rounds) == 0 {
			continue
		}
		fmt.Fprintf(t, "%s\t%d", f.Name, len(rounds))
		violations := 0
		for _, m := range rounds {
			violations += len(m.Violations)
		}
		for _, m := range measures {
			v := values(rounds, m.of)
			fmt.Fprintf(t, "\t%.2f / %.2f / %.2f", history.Quantile(v, 0.5).Seconds(), history.Quantile(v, 0.99).Seconds(), history.Quantile(v, 1).Seconds())
		}
		fmt.Fprintf(t, "\t%d\n", violations)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, r.remarks())
	return err
}

// remarks lists the bars that were missed, and all violations.
func (r *Report) remarks() string {
	var b strings.Builder
	for _, f := range Faults() {
		rounds := r.of(f.Name)
		for _, m := range measures {
			v := values(rounds, m.of)
			if bar := m.bars[f.Name] + m.bars["*"]; bar > 0 && len(v) > 0 && history.Quantile(v, 1) > bar {
				fmt.Fprintf(&b, "above its bar: %s, %s: at most %s wanted, max is %s\n", f.Name, m.name, short(bar), short(history.Quantile(v, 1)))
			}
		}
		if v := values(rounds, func(m Round) time.Duration { return m.Equal }); len(v) > 0 && history.Quantile(v, 0.99) > equalBar {
			fmt.Fprintf(&b, "above its bar: %s, to equal: p99 of at most %s wanted, is %s\n", f.Name, short(equalBar), short(history.Quantile(v, 0.99)))
		}
		for _, m := range rounds {
			for _, v := range m.Violations {
				fmt.Fprintf(&b, "VIOLATION: %s: %s\n", f.Name, v)
			}
		}
	}
	if r.Cut {
		b.WriteString("the run ended before all rounds were done\n")
	}
	return b.String()
}

func (r *Report) of(fault string) (list []Round) {
	for _, m := range r.Rounds {
		if m.Fault == fault {
			list = append(list, m)
		}
	}
	return list
}

func values(rounds []Round, of func(Round) time.Duration) (all []time.Duration) {
	for _, m := range rounds {
		all = append(all, of(m))
	}
	return all
}
