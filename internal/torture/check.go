package torture

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// gapAfter is how long after a fault healed a silence of a client counts as its effect.
const gapAfter = 3 * time.Second

// violationsMax bounds the violations that are told one by one.
const violationsMax = 50

// A Verdict is what a history shows.
type Verdict struct {
	Run        string
	Phases     []Phase
	Lost       int // messages whose sender's session lived and that never arrived
	Doubled    int
	Disorder   int
	Violations []string // the first ones, with the moment in the history
	Said, Told int      // messages of clients, and of the game server
	AckP50     time.Duration
	AckP99     time.Duration
	Costs      []Cost
	Operations []Operation
}

// A Phase is faults of one kind.
type Phase struct {
	Name                    string
	Faults                  int // without windows that are there to compare with
	Interruptions           int
	Excused                 bool          // its interruptions are figures, not violations
	GapP50, GapP99, GapMost time.Duration // of clients, around each fault
	Extra                   int           // most repeats that one client got around one fault
	AckP50, AckP99          time.Duration
	Handed, Others          pauses // around the hand-over of a session: of its client, and the median of those who keep theirs
	Above                   pauses // the former less the latter
	Moved                   pauses // around the move of a flow
	gaps, acks              []time.Duration
}

// A Cost is what edges spent.
type Cost struct {
	What     string
	PerDown  time.Duration // CPU per datagram to a client, in ns
	Measured int           // windows
}

// An Operation is what edges do with NATS and Redis while nothing happens.
type Operation struct {
	What                  string
	PerSecond, PerMessage float64 // of all edges; by reliable messages, both ways
}

// Bad reports whether something happened that must not.
func (v *Verdict) Bad() bool {
	bad := v.Lost+v.Doubled+v.Disorder > 0 || len(v.Violations) > 0
	for _, p := range v.Phases {
		bad = bad || p.Interruptions > 0 && !p.Excused
	}
	return bad
}

// A way is one direction of a client's messages.
type way struct {
	sent, arrived uint64          // the highest
	open          map[uint64]bool // sent and not arrived
	unsure        map[uint64]bool // told without an answer: may arrive or not
}

// A party is one client of a history, from its connect to its end.
type party struct {
	name     string
	up, down way
	ended    bool // closed or left: what was under way may be lost
}

// A window is a fault and what follows.
type window struct {
	phase    int
	number   int
	from, to int64 // µs; to is 0 until it healed
	worst    map[string]int64
	extra    map[string]int
}

type checker struct {
	v       Verdict
	parties map[string]*party
	phase   int
	faults  []*window
	cost    map[string][]float64
	acks    []time.Duration

	silences map[string][]silence
	moments  []moment
	ops      map[string]*opSum
	spoken   []int64 // moments of reliable messages, both ways
}

// Check reads a history.
func Check(r io.Reader) (Verdict, error) {
	c := &checker{parties: map[string]*party{}, cost: map[string][]float64{}, silences: map[string][]silence{}, ops: map[string]*opSum{}, phase: -1}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var rec Record
		if err := json.Unmarshal(lines.Bytes(), &rec); err != nil {
			return c.v, fmt.Errorf("line %d: %w", n, err)
		}
		c.take(rec)
	}
	if err := lines.Err(); err != nil {
		return c.v, err
	}
	c.finish()
	return c.v, nil
}

func (c *checker) violation(at int64, format string, args ...any) {
	if len(c.v.Violations) < violationsMax {
		c.v.Violations = append(c.v.Violations, fmt.Sprintf("%.3f s: ", float64(at)/1e6)+fmt.Sprintf(format, args...))
	}
}

func (c *checker) party(name string) *party {
	p, ok := c.parties[name]
	if !ok {
		empty := func() way { return way{open: map[uint64]bool{}, unsure: map[uint64]bool{}} }
		p = &party{name: name, up: empty(), down: empty()}
		c.parties[name] = p
	}
	return p
}

func (c *checker) take(r Record) {
	switch r.Kind {
	case kindRun:
		c.v.Run = r.Note
	case kindPhase:
		name, excused := strings.CutSuffix(r.Note, " (excused)")
		c.v.Phases = append(c.v.Phases, Phase{Name: name, Excused: excused})
		c.phase = len(c.v.Phases) - 1
	case kindFault:
		c.faults = append(c.faults, &window{phase: c.phase, number: int(r.N), from: r.At, worst: map[string]int64{}, extra: map[string]int{}})
		if r.Note != noteCalm && r.Note != noteDirect {
			c.v.Phases[c.phase].Faults++
		}
	case kindHealed:
		for _, w := range c.faults {
			if w.number == int(r.N) {
				w.to = r.At + gapAfter.Microseconds()
			}
		}
	case kindSaid:
		c.v.Said++
		c.spoken = append(c.spoken, r.At)
		c.party(r.Who).up.send(r.N)
	case kindTold:
		c.v.Told++
		c.spoken = append(c.spoken, r.At)
		p := c.party(r.Who)
		p.down.send(r.N)
		p.down.unsure[r.N] = true
	case kindAnswered:
		delete(c.party(r.Who).down.unsure, r.N)
	case kindHeard:
		c.arrive(r, &c.party(r.Who).up, "the game server")
	case kindGot:
		c.arrive(r, &c.party(r.Who).down, "the client")
	default:
		c.takeOther(r)
	}
}

func (c *checker) takeOther(r Record) {
	switch r.Kind {
	case kindClosed:
		c.party(r.Who).ended = true
		if c.phase >= 0 {
			c.v.Phases[c.phase].Interruptions++
		}
		if c.phase < 0 || !c.v.Phases[c.phase].Excused {
			c.violation(r.At, "%s is interrupted: %s", r.Who, r.Note)
		}
	case kindLeft:
		c.party(r.Who).ended = true
	case kindGap:
		c.violation(r.At, "the game server misses messages of %s: %s", r.Who, r.Note)
	case kindHanded, kindMoved:
		if len(c.faults) > 0 {
			c.moments = append(c.moments, moment{c.phase, len(c.faults), r.Who, r.At, r.Kind == kindMoved})
		}
	case kindOps:
		c.operation(r)
	case kindSilence:
		c.silences[r.Who] = append(c.silences[r.Who], silence{r.At - r.D, r.At})
		if w := c.windowOf(r.At-r.D, r.At); w != nil {
			w.worst[r.Who] = max(w.worst[r.Who], r.D)
		}
	case kindExtra:
		if w := c.windowOf(r.At, r.At); w != nil {
			w.extra[r.Who]++
		}
	case kindAck:
		if c.phase >= 0 {
			p := &c.v.Phases[c.phase]
			p.acks = append(p.acks, time.Duration(r.D)*time.Microsecond)
		}
		c.acks = append(c.acks, time.Duration(r.D)*time.Microsecond)
	case kindCost:
		if r.N > 0 {
			c.cost[r.Note] = append(c.cost[r.Note], float64(r.D)*1000/float64(r.N))
		}
	}
}

// windowOf returns the newest fault that what lasted from begin to end can come from.
func (c *checker) windowOf(begin, end int64) *window {
	for i := len(c.faults) - 1; i >= 0; i-- {
		if w := c.faults[i]; end >= w.from {
			if w.to == 0 || begin <= w.to {
				return w
			}
			return nil
		}
	}
	return nil
}

func (w *way) send(n uint64) {
	w.sent = max(w.sent, n)
	w.open[n] = true
}

// arrive looks at a message that arrived.
func (c *checker) arrive(r Record, w *way, where string) {
	switch {
	case r.N <= w.arrived && !w.open[r.N]:
		c.v.Doubled++
		c.violation(r.At, "message %d of %s reaches %s again", r.N, r.Who, where)
	case r.N < w.arrived:
		c.v.Disorder++
		c.violation(r.At, "message %d of %s reaches %s after %d", r.N, r.Who, where, w.arrived)
	case !w.open[r.N]:
		c.violation(r.At, "message %d of %s reaches %s and was never sent", r.N, r.Who, where)
	}
	delete(w.open, r.N)
	w.arrived = max(w.arrived, r.N)
}

func (c *checker) finish() {
	for _, name := range sortedNames(c.parties) {
		p := c.parties[name]
		c.lost(p, &p.up, "to the game server")
		c.lost(p, &p.down, "to the client")
	}
	for _, w := range c.faults {
		ph := &c.v.Phases[w.phase]
		for _, d := range w.worst {
			ph.gaps = append(ph.gaps, time.Duration(d)*time.Microsecond)
		}
		for _, n := range w.extra {
			ph.Extra = max(ph.Extra, n)
		}
	}
	c.judgePauses()
	c.finishOperations()
	for i := range c.v.Phases {
		p := &c.v.Phases[i]
		p.GapP50, p.GapP99, p.GapMost = quantile(p.gaps, 0.5), quantile(p.gaps, 0.99), quantile(p.gaps, 1)
		p.AckP50, p.AckP99 = quantile(p.acks, 0.5), quantile(p.acks, 0.99)
	}
	c.v.AckP50, c.v.AckP99 = quantile(c.acks, 0.5), quantile(c.acks, 0.99)
	for _, what := range sortedNames(c.cost) {
		list := c.cost[what]
		slices.Sort(list)
		c.v.Costs = append(c.v.Costs, Cost{what, time.Duration(list[len(list)/2]), len(list)})
	}
}

// lost counts what never arrived. Of a client that was interrupted, what is behind the
// last that arrived was under way.
func (c *checker) lost(p *party, w *way, to string) {
	for _, n := range sortedKeys(w.open) {
		if p.ended && n > w.arrived || w.unsure[n] {
			continue
		}
		c.v.Lost++
		c.violation(0, "message %d of %s never comes %s", n, p.name, to)
	}
}

func quantile(list []time.Duration, q float64) time.Duration {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[min(int(q*float64(len(list))), len(list)-1)]
}

func sortedNames[V any](m map[string]V) []string {
	var all []string
	for k := range m {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

func sortedKeys(m map[uint64]bool) []uint64 {
	var all []uint64
	for k := range m {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}
