//go:build linux

package k8stest

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/testbed/history"
	"github.com/dnprelay/dnprelay/testbed/play"
)

// A Row is what clients of one group saw of one scenario.
type Row struct {
	Name          string
	Took          time.Duration
	Slow          bool // of slow players; else of those that speak often
	Players       int
	Interrupted   int // players that were disconnected although their way in was well
	Interruptions int
	Reasons       map[string]int
	Gaps          []time.Duration // longest time without an update, by player whose way in was well
	GapMax        time.Duration   // bar for the p99 of Gaps; 0 = none
	Cut           int             // players whose way in was cut
	CutEnded      int             // sessions that ended for that reason
	CutGaps       []time.Duration // as Gaps, by player whose way in was cut
	history.Messages
	Late    time.Duration // longest time that the machine delayed this program
	Moves   []string      // when the balancer spread flows anew, and over which nodes
	Problem string
}

// newRows returns two rows for each phase. The bar for the gaps of slow players is that of the
// others, from the moment when they say something.
func newRows(often, slow []history.Phase, players []*play.Player) (rows []Row) {
	count := map[bool]int{} // of the players, by whether they are slow
	for _, p := range players {
		count[history.Listener(p.Name)]++
	}
	for i := range often { // both lists have all phases
		o, s := newRow(&often[i], count[false]), newRow(&slow[i], count[true])
		s.Slow, s.GapMax = true, slowMost+o.gap(0.99)
		rows = append(rows, o, s)
	}
	return rows
}

func newRow(p *history.Phase, players int) Row {
	return Row{
		Name: p.Name, Took: p.Took, Players: players, Interrupted: p.Interrupted(), Interruptions: p.Interruptions, Reasons: p.Reasons, Gaps: p.Stale,
		Cut: p.Cut(), CutEnded: p.CutEnded, CutGaps: p.CutStale, Messages: p.Messages, Late: p.Late, Moves: p.Routes, Problem: strings.Join(p.Problems, "; "),
	}
}

// gap returns a quantile of the longest times without an update.
func (r Row) gap(q float64) time.Duration { return history.Quantile(r.Gaps, q) }

// speak says how often the players do.
func (r Row) speak() string {
	if r.Slow {
		return fmt.Sprintf("every %v", slowMost)
	}
	return fmt.Sprintf("every %v", messagePace)
}

// violations lists what must not happen: clients that stay disconnected; and, with a
// session log or when nothing happens, clients that notice more than a pause. Sessions that end
// because the way in of their players is cut are none.
func (r Row) violations(durability string) (list []string) {
	note := func(format string, args ...any) {
		list = append(list, fmt.Sprintf("%s, players that speak %s: ", r.Name, r.speak())+fmt.Sprintf(format, args...))
	}
	if r.Problem != "" {
		note("%s", r.Problem)
	}
	if r.Name == avoidCut && r.Cut > 0 {
		note("the way in of %d players was cut, although no flow comes in over the node", r.Cut)
	}
	if r.Name == nothing || durability != "none" {
		if r.Interruptions > 0 {
			note("%d interruptions", r.Interruptions)
		}
		if r.Wrong() > 0 {
			note("%d messages lost, %d doubled, %d out of order; %d of them excused", r.Lost+r.Missed, r.Doubled+r.Twice, r.Disorder, r.Excused)
		}
		if gap := r.gap(0.99); r.GapMax > 0 && gap > r.GapMax {
			note("the p99 of gaps is %v, at most %v wanted", gap.Round(time.Millisecond), r.GapMax.Round(time.Millisecond))
		}
	}
	return list
}

func (r Row) cells() []string {
	sec := func(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
	return []string{
		r.Name, sec(r.Took), r.speak(), fmt.Sprintf("%d of %d players, %d times", r.Interrupted, r.Players, r.Interruptions),
		fmt.Sprintf("%d players, %d sessions ended", r.Cut, r.CutEnded),
		sec(r.gap(0.5)), sec(r.gap(0.99)), fmt.Sprintf("%d of %d", r.Lost, r.Acknowledged), fmt.Sprint(r.Doubled), fmt.Sprintf("%d of %d", r.Missed, r.Promised), fmt.Sprint(r.Twice), fmt.Sprint(r.Disorder),
	}
}

func (r Row) String() string {
	cut := ""
	if r.Cut > 0 {
		cut = fmt.Sprintf(" way in cut: gaps %.2f s, longest %.2f s, messages excused: %d", history.Quantile(r.CutGaps, 0.5).Seconds(), history.Quantile(r.CutGaps, 1).Seconds(), r.Excused)
	}
	return fmt.Sprint(strings.Join(r.cells(), " | "), " ", r.Reasons, cut, " wrong for players that were not interrupted: ", r.Stayed, " late: ", r.Late.Round(time.Millisecond), " balancer: ", r.Moves)
}

var heads = []string{
	"what happened", "took", "players speak", "interrupted", "way in cut", "gap, median", "gap, p99", "from clients: lost", "doubled", "to clients: lost", "doubled", "out of order",
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
