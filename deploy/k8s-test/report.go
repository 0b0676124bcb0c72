//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// A row is what clients saw of one scenario.
type row struct {
	Name          string
	Took          time.Duration
	Players       int
	Interrupted   int // players that were disconnected
	Interruptions int
	Reasons       map[string]int
	Gaps          []time.Duration // longest time without an update, by player
	Acknowledged  int             // reliable messages of clients
	Lost          int             // of those, never heard by the game server
	Doubled       int             // heard more than once
	Promised      int             // reliable messages to clients that an edge took
	Missed        int             // of those, never received
	Twice         int             // received more than once
	Stayed        int             // of Lost, Doubled, Missed and Twice, those of players that were not interrupted
	Late          time.Duration   // longest time that the machine let this program wait
	Moves         []string        // when the balancer spread flows anew, and over which nodes
	Problem       string
}

// add adds what one player saw, of the game server's numbers from first to last.
func (r *row) add(s seen, g *game, first, last int) {
	r.Players++
	r.Gaps = append(r.Gaps, s.gap)
	slices.Sort(r.Gaps)
	if len(s.closed) > 0 {
		r.Interrupted++
	}
	r.Interruptions += len(s.closed)
	for _, reason := range s.closed {
		if r.Reasons == nil {
			r.Reasons = map[string]int{}
		}
		r.Reasons[reason]++
	}
	before := r.wrong()
	r.Acknowledged += len(s.acked)
	for _, m := range s.acked {
		switch n := g.times(m); {
		case n == 0:
			r.Lost++
		case n > 1:
			r.Doubled++
		}
	}
	for n := first; n <= last; n++ {
		if s.heard[n] > 1 {
			r.Twice++
		}
		if g.isPromised(message{s.player, n}) {
			r.Promised++
			if s.heard[n] == 0 {
				r.Missed++
			}
		}
	}
	if len(s.closed) == 0 {
		r.Stayed += r.wrong() - before
	}
}

// wrong counts messages that were lost or came twice.
func (r *row) wrong() int { return r.Lost + r.Doubled + r.Missed + r.Twice }

// violations names what must not be: that clients stay away; and with a session log, or
// when nothing happens, that any of them notices anything but a pause. A node that
// disappears may interrupt players, and takes a server of NATS along: what they were
// promised then ends with their session, and only the others must not miss anything.
func (r row) violations(durability string) (list []string) {
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
		if r.Name != nodeCut && r.wrong() > 0 || r.Stayed > 0 {
			note("%d messages lost, %d doubled", r.Lost+r.Missed, r.Doubled+r.Twice)
		}
	}
	return list
}

func (r row) gap(share float64) time.Duration {
	if len(r.Gaps) == 0 {
		return 0
	}
	return r.Gaps[min(len(r.Gaps)-1, int(share*float64(len(r.Gaps))))]
}

func (r row) cells() []string {
	sec := func(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
	return []string{
		r.Name, sec(r.Took), fmt.Sprintf("%d of %d players, %d times", r.Interrupted, r.Players, r.Interruptions),
		sec(r.gap(0.5)), sec(r.gap(1)), fmt.Sprintf("%d of %d", r.Lost, r.Acknowledged), fmt.Sprint(r.Doubled), fmt.Sprintf("%d of %d", r.Missed, r.Promised), fmt.Sprint(r.Twice),
	}
}

func (r row) String() string {
	return fmt.Sprint(strings.Join(r.cells(), " | "), " ", r.Reasons, " wrong for who was not interrupted: ", r.Stayed, " late: ", r.Late.Round(time.Millisecond), " balancer: ", r.Moves)
}

var heads = []string{
	"what happened", "took", "interrupted", "gap, median", "gap, longest", "from clients: lost", "doubled", "to clients: lost", "doubled",
}

// printTable prints rows as Markdown.
func printTable(w io.Writer, rows []row) {
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(w, "\n| %s |\n|%s\n", strings.Join(heads, " | "), strings.Repeat("---|", len(heads)))
	for _, r := range rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join(r.cells(), " | "))
	}
}
