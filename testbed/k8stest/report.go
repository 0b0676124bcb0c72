//go:build linux

package k8stest

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/testbed/history"
)

// A Row is what clients saw of one scenario.
type Row struct {
	Name          string
	Took          time.Duration
	Players       int
	Interrupted   int // players that were disconnected
	Interruptions int
	Reasons       map[string]int
	Gaps          []time.Duration // longest time without an update, by player
	history.Messages
	Late    time.Duration // longest time that the machine delayed this program
	Moves   []string      // when the balancer spread flows anew, and over which nodes
	Problem string
}

func newRow(p *history.Phase, players int) Row {
	return Row{
		Name: p.Name, Took: p.Took, Players: players, Interrupted: p.Interrupted(), Interruptions: p.Interruptions, Reasons: p.Reasons, Gaps: p.Stale,
		Messages: p.Messages, Late: p.Late, Moves: p.Routes, Problem: strings.Join(p.Problems, "; "),
	}
}

// violations lists what must not happen: clients that stay disconnected; and, with a
// session log or when nothing happens, clients that notice more than a pause. A node that
// disappears may interrupt players, because a NATS server disappears with it: promises to
// these end with their sessions, and only the others must not miss anything.
func (r Row) violations(durability string) (list []string) {
	note := func(format string, args ...any) {
		list = append(list, r.Name+": "+fmt.Sprintf(format, args...))
	}
	if r.Problem != "" {
		note("%s", r.Problem)
	}
	if r.Name == "nothing" || durability != "none" {
		if r.Interruptions > 0 && r.Name != nodeCut {
			note("%d interruptions", r.Interruptions)
		}
		if r.Name != nodeCut && r.Wrong() > 0 || r.Stayed > 0 {
			note("%d messages lost, %d doubled", r.Lost+r.Missed, r.Doubled+r.Twice)
		}
	}
	return list
}

func (r Row) cells() []string {
	sec := func(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
	return []string{
		r.Name, sec(r.Took), fmt.Sprintf("%d of %d players, %d times", r.Interrupted, r.Players, r.Interruptions),
		sec(history.Quantile(r.Gaps, 0.5)), sec(history.Quantile(r.Gaps, 1)), fmt.Sprintf("%d of %d", r.Lost, r.Acknowledged), fmt.Sprint(r.Doubled), fmt.Sprintf("%d of %d", r.Missed, r.Promised), fmt.Sprint(r.Twice),
	}
}

func (r Row) String() string {
	return fmt.Sprint(strings.Join(r.cells(), " | "), " ", r.Reasons, " wrong for players that were not interrupted: ", r.Stayed, " late: ", r.Late.Round(time.Millisecond), " balancer: ", r.Moves)
}

var heads = []string{
	"what happened", "took", "interrupted", "gap, median", "gap, longest", "from clients: lost", "doubled", "to clients: lost", "doubled",
}

// PrintTable prints rows as Markdown.
func PrintTable(w io.Writer, rows []Row) {
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(w, "\n| %s |\n|%s\n", strings.Join(heads, " | "), strings.Repeat("---|", len(heads)))
	for _, r := range rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join(r.cells(), " | "))
	}
}
