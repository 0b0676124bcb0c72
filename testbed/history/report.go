package history

import (
	"fmt"
	"io"
	"math"
	"slices"
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

// pauses are the longest silences of clients around moments of one kind; short ones count
// as SilenceLeast.
type pauses struct {
	P50, P99, Most time.Duration
	Count          int
	list           []time.Duration
}

func (p *pauses) finish() {
	p.Count = len(p.list)
	p.P50, p.P99, p.Most = Quantile(p.list, 0.5), Quantile(p.list, 0.99), Quantile(p.list, 1)
}

// judgePauses finds the pauses of clients whose sessions or flows moved. At the same
// moments it takes the median pause of the clients to which nothing happened, which is the
// share of the machine.
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
		into.list = append(into.list, own)
		var others []time.Duration
		for _, n := range names {
			if !hit[m.fault][n] {
				others = append(others, c.longest(n, m.at, pauseAfter))
			}
		}
		if !m.moved && len(others) > 0 {
			median := Quantile(others, 0.5)
			p.Others.list = append(p.Others.list, median)
			p.Above.list = append(p.Above.list, own-median)
		}
	}
	for i := range c.v.Phases {
		p := &c.v.Phases[i]
		p.Handed.finish()
		p.Moved.finish()
		p.Others.finish()
		p.Above.finish()
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

// An opSum is the count of one operation.
type opSum struct {
	n       uint64
	seconds float64
	spoken  int // reliable messages in that time
}

// operation adds the count of the time before a record.
func (c *checker) operation(r Record) {
	o := c.ops[r.Note]
	if o == nil {
		o = &opSum{}
		c.ops[r.Note] = o
	}
	o.n += r.N
	o.seconds += float64(r.D) / 1e6
	for _, at := range slices.Backward(c.spoken) {
		if at < r.At-r.D {
			break
		}
		o.spoken++
	}
}

func (c *checker) finishOperations() {
	for _, what := range sortedKeys(c.ops) {
		if o := c.ops[what]; o.seconds > 0 && o.spoken > 0 {
			c.v.Operations = append(c.v.Operations, Operation{what, float64(o.n) / o.seconds, float64(o.n) / float64(o.spoken)})
		}
	}
}
