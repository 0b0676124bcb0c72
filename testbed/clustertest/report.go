//go:build linux

package clustertest

import (
	"fmt"
	"io"
	"slices"
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
	s := fmt.Sprintf("lasted %s, %d new epochs", short(r.Lasted), r.Epochs)
	for _, m := range measures {
		s += ", " + m.name + " " + short(m.of(r))
	}
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
// * for all faults, and p99 is the highest 99th percentile. An election in NATS stops no updates,
// but nodes that were connected to the server connect to another one.
var measures = []struct {
	name string
	of   func(Round) time.Duration
	bars map[string]time.Duration
	p99  time.Duration
}{
	{"no publish", func(m Round) time.Duration { return m.NoPublish }, map[string]time.Duration{"kill": lossBar, "pause": lossBar, "partition": lossBar}, 0},
	{"no update", func(m Round) time.Duration { return m.NoUpdate }, map[string]time.Duration{"kill": lossBar, "pause": lossBar, "partition": lossBar, "nats-leader": time.Second}, 0},
	{"healed to accepted", func(m Round) time.Duration { return m.Accepted }, nil, 0},
	{"to equal", func(m Round) time.Duration { return m.Equal }, map[string]time.Duration{"*": time.Second}, 500 * time.Millisecond},
	{"return", func(m Round) time.Duration { return m.Return }, nil, 0},
	{"rolled back", func(m Round) time.Duration { return m.RolledBack }, nil, 0},
}

// Write prints the table, the bars that were missed, and all violations.
func (r *Report) Write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "seconds: median / p99 / max\t rounds")
	for _, m := range measures {
		fmt.Fprintf(t, "\t%s", m.name)
	}
	fmt.Fprintln(t, "\tviolations")
	remarks := ""
	for _, f := range Faults() {
		rounds, violations := slices.DeleteFunc(slices.Clone(r.Rounds), func(m Round) bool { return m.Fault != f.Name }), 0
		if len(rounds) == 0 {
			continue
		}
		fmt.Fprintf(t, "%s\t%d", f.Name, len(rounds))
		for _, m := range measures {
			var v []time.Duration
			for _, round := range rounds {
				v = append(v, m.of(round))
			}
			p50, p99, most := history.Quantile(v, 0.5), history.Quantile(v, 0.99), history.Quantile(v, 1)
			fmt.Fprintf(t, "\t%.2f / %.2f / %.2f", p50.Seconds(), p99.Seconds(), most.Seconds())
			if bar := m.bars[f.Name] + m.bars["*"]; bar > 0 && most > bar {
				remarks += fmt.Sprintf("above its bar: %s, %s: at most %s wanted, max is %s\n", f.Name, m.name, short(bar), short(most))
			}
			if m.p99 > 0 && p99 > m.p99 {
				remarks += fmt.Sprintf("above its bar: %s, %s: p99 of at most %s wanted, is %s\n", f.Name, m.name, short(m.p99), short(p99))
			}
		}
		for _, m := range rounds {
			for _, v := range m.Violations {
				violations++
				remarks += fmt.Sprintf("VIOLATION: %s: %s\n", f.Name, v)
			}
		}
		fmt.Fprintf(t, "\t%d\n", violations)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, remarks)
	return err
}
