package history

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Write prints the tables.
func (v *Verdict) Write(w io.Writer) error {
	fmt.Fprintln(w, v.Run)
	fmt.Fprintf(w, "%d messages of clients, %d to clients: %d lost, %d doubled, %d out of order; acknowledged after p50 %s, p99 %s\n",
		v.Said, v.Told, v.Lost, v.Doubled, v.Disorder, ms(v.Ack.P50), ms(v.Ack.P99))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "phase\tfaults\tinterruptions\t95 % bound\tgap p50\tp99\tmost\tunacknowledged p50\tp99\tmost\tmost repeats\t")
	for _, p := range v.Phases {
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%s\t%d\t\n", p.Name, p.Faults, p.Interruptions, bound(p), p.Gap, p.Unacknowledged, p.Extra)
	}
	fmt.Fprintln(t, "phase\t\t\t\tack p50\tp99\tmost\tto the game server p50\tp99\tmost\tto clients p50\tp99\tmost\t")
	for _, p := range v.Phases {
		fmt.Fprintf(t, "%s\t\t\t\t%s\t%s\t%s\t\n", p.Name, p.Ack, p.ToGame, p.ToClients)
	}
	fmt.Fprintln(t, "phase\twhat happens to a client\t\ttimes\tpause p50\tp99\tmost\t")
	for _, p := range v.Phases {
		for _, of := range []struct {
			what string
			Times
		}{{"its session is handed over", p.Handed}, {"nothing, at the same moment (median)", p.Others}, {"the former, less the latter", p.Above}, {"its flow moves", p.Moved}, {"it only listens (gap)", p.Listening}} {
			if of.Count > 0 {
				fmt.Fprintf(t, "%s\t%s\t\t%d\t%s\t\n", p.Name, of.what, of.Count, of.Times)
			}
		}
	}
	err := t.Flush()
	for _, p := range v.Phases {
		if p.Cut() > 0 {
			fmt.Fprintf(w, "%s: the way in of %d players was cut; %d of their sessions ended, which are no interruptions\n", p.Name, p.Cut(), p.CutEnded)
		}
	}
	for _, u := range v.Uses {
		fmt.Fprintln(w, u)
	}
	for _, line := range v.Remarks {
		fmt.Fprintln(w, "REMARK", line)
	}
	for _, line := range v.Violations {
		fmt.Fprintln(w, "VIOLATION", line)
	}
	return err
}

// Times are durations of one kind.
type Times struct {
	Count          int
	P50, P99, Most time.Duration
	list           []time.Duration
}

func (t *Times) add(micro int64) { t.list = append(t.list, micros(micro)) }

func (t *Times) finish() {
	t.Count, t.P50, t.P99, t.Most = len(t.list), Quantile(t.list, 0.5), Quantile(t.list, 0.99), Quantile(t.list, 1)
}

// String returns the three figures as cells of a table.
func (t Times) String() string { return ms(t.P50) + "\t" + ms(t.P99) + "\t" + ms(t.Most) }

// A Use is what a phase used of something for one of another: the median of some times.
type Use struct {
	What, Phase string
	Value       float64
	Times       int
	Ratio       float64 // to the first phase with the same name up to a comma; 0 = it is that
}

// String returns a line.
func (u Use) String() string {
	line := fmt.Sprintf("%s: %.2f %s (median of %d)", u.Phase, u.Value, u.What, u.Times)
	if u.Ratio > 0 {
		line += fmt.Sprintf(", %.2f times the first", u.Ratio)
	}
	return line
}

// Steady is the name of the phase without faults. ackP50 and ackP99 are what is used there of acknowledgements.
const (
	Steady = "steady"
	ackP50 = "µs to an acknowledgement, p50"
	ackP99 = "µs to an acknowledgement, p99"
)

// use adds a measurement of the phase p.
func (c *checker) use(p *Phase, what string, value float64) {
	if c.used[what] == nil {
		c.used[what] = map[string][]float64{}
	}
	c.used[what][p.Name] = append(c.used[what][p.Name], value)
}

// uses returns all medians, those of phases that are compared side by side.
func (c *checker) uses() (list []Use) {
	for _, what := range sortedKeys(c.used) {
		first := map[string]float64{}
		for _, p := range c.v.Phases {
			values := c.used[what][p.Name]
			if len(values) == 0 {
				continue
			}
			slices.Sort(values)
			u := Use{What: what, Phase: p.Name, Value: values[len(values)/2], Times: len(values)}
			word, _, _ := strings.Cut(p.Name, ",")
			if base := first[word]; base == 0 {
				first[word] = u.Value
			} else {
				u.Ratio = u.Value / base
			}
			list = append(list, u)
		}
	}
	return list
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

// SilenceLeast is the shortest silence that is recorded.
const SilenceLeast = 25 * time.Millisecond

// A silence is an effect of a hand-over, or of the move of a flow, if it overlaps a time
// around it. A client that is sent a message each half second and answers has spoken
// within the longer one.
const (
	pauseBefore = 20 * time.Millisecond
	pauseAfter  = 300 * time.Millisecond
	moveAfter   = 1500 * time.Millisecond
)

// A silence is a time without datagrams, in µs.
type silence struct{ from, to int64 }

// A moment is a hand-over or a move.
type moment struct {
	phase, fault int
	who          string
	at           int64
	moved        bool // a flow moved; else a session was handed over
}

// judgePauses finds the pauses of clients whose sessions were handed over, or whose flows
// moved: their longest silences around that moment; short ones count as SilenceLeast. At the
// moment of a hand-over it takes the median pause of the clients to which nothing happened,
// which is the share of the machine, and the difference.
func (c *checker) judgePauses() {
	hit := map[int]map[string]bool{} // by fault
	for _, m := range c.moments {
		if hit[m.fault] == nil {
			hit[m.fault] = map[string]bool{}
		}
		hit[m.fault][m.who] = true
	}
	names := sortedKeys(c.silences)
	for _, m := range c.moments {
		p, after := &c.v.Phases[m.phase], pauseAfter
		into := &p.Handed
		if m.moved {
			into, after = &p.Moved, moveAfter
		}
		own := c.longest(m.who, m.at, after)
		into.add(own.Microseconds())
		var others []time.Duration
		for _, n := range names {
			if !hit[m.fault][n] {
				others = append(others, c.longest(n, m.at, pauseAfter))
			}
		}
		if !m.moved && len(others) > 0 {
			median := Quantile(others, 0.5)
			p.Others.add(median.Microseconds())
			p.Above.add((own - median).Microseconds())
		}
	}
}

// longest returns the longest silence of a client around a moment, at least SilenceLeast.
func (c *checker) longest(who string, at int64, after time.Duration) (d time.Duration) {
	from, to := at-pauseBefore.Microseconds(), at+after.Microseconds()
	list := c.silences[who]
	d = SilenceLeast
	i, _ := slices.BinarySearchFunc(list, from, func(s silence, t int64) int { return int(s.to - t) })
	for ; i < len(list) && list[i].from <= to; i++ {
		d = max(d, time.Duration(list[i].to-list[i].from)*time.Microsecond)
	}
	return d
}
