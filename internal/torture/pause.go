package torture

import (
	"slices"
	"time"
)

// Silences are an effect of a hand-over, or of the move of a flow, if they overlap a
// while around it. A client that is told something each half second and answers has spoken
// within the longer one.
const (
	silenceLeast = 25 * time.Millisecond // shorter ones are not worth a line

	pauseBefore = 20 * time.Millisecond
	pauseAfter  = 300 * time.Millisecond
	moveAfter   = 1500 * time.Millisecond
)

// A silence is a time without datagrams, in µs.
type silence struct{ from, to int64 }

// A moment is when something happened to a client.
type moment struct {
	phase, fault int
	who          string
	at           int64
	moved        bool // the flow, not the session
}

// pauses are the longest silences of clients around something; short ones count as
// silenceLeast.
type pauses struct {
	P50, P99, Most time.Duration
	Count          int
	list           []time.Duration
}

func (p *pauses) finish() {
	p.Count = len(p.list)
	p.P50, p.P99, p.Most = quantile(p.list, 0.5), quantile(p.list, 0.99), quantile(p.list, 1)
}

// judgePauses finds the pauses of clients whose sessions or flows moved, and those of
// clients that nothing happened to, at the same moments: the median of them, which is what
// the machine does to everybody.
func (c *checker) judgePauses() {
	hit := map[int]map[string]bool{} // by fault
	for _, m := range c.moments {
		if hit[m.fault] == nil {
			hit[m.fault] = map[string]bool{}
		}
		hit[m.fault][m.who] = true
	}
	names := sortedNames(c.silences)
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
			median := quantile(others, 0.5)
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

// longest returns the longest silence of a client around a moment, at least silenceLeast.
func (c *checker) longest(who string, at int64, after time.Duration) (d time.Duration) {
	from, to := at-pauseBefore.Microseconds(), at+after.Microseconds()
	list := c.silences[who]
	d = silenceLeast
	i, _ := slices.BinarySearchFunc(list, from, func(s silence, t int64) int { return int(s.to - t) })
	for ; i < len(list) && list[i].from <= to; i++ {
		d = max(d, time.Duration(list[i].to-list[i].from)*time.Microsecond)
	}
	return d
}
