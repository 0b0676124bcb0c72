// Package history writes and judges the records of all parties of a test.
//
// A history is a file with one JSON [Record] on a line: each message as it is sent and as
// it arrives, each closed session, each fault with its begin and end, and each silence of
// a client longer than 25 ms. [Check] reads such a file and nothing else. It tells what was
// lost, doubled, out of order or interrupted, and how long clients received no datagram
// around each fault.
package history

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// gapAfter is how long after the end of a fault a silence of a client counts as its
// effect.
const gapAfter = 3 * time.Second

// violationsMax bounds the violations that are listed one by one.
const violationsMax = 50

// A Verdict is what a history shows.
type Verdict struct {
	Run        string
	Phases     []Phase
	Lost       int // messages that never arrived although the session of their sender lived
	Doubled    int
	Disorder   int
	Violations []string // the first ones, with their moments in the history
	Said, Told int      // messages of clients, and of the game server
	AckP50     time.Duration
	AckP99     time.Duration
	Costs      []Cost
	Operations []Operation
}

// A Phase is faults of one kind.
type Phase struct {
	Name                    string
	Took                    time.Duration // of all faults together
	Faults                  int           // without the windows for comparison
	Interruptions           int
	Reasons                 map[string]int // of the interruptions
	Excused                 bool           // its interruptions are figures, not violations
	GapP50, GapP99, GapMost time.Duration  // longest silence of each client around each fault
	Extra                   int            // most repeats that one client received around one fault
	AckP50, AckP99          time.Duration
	Handed, Others          pauses // around the hand-over of a session: of its client, and the median of the clients that stay
	Above                   pauses // the former less the latter
	Moved                   pauses // around the move of a flow
	Messages                Messages
	Stale                   []time.Duration // longest time without an update, by player, ascending
	Late                    time.Duration   // longest time that the machine delayed the test itself
	Routes                  []string        // when the balancer spread flows anew, and over which nodes
	Problems                []string

	from          int64
	gaps, acks    []time.Duration
	interrupted   map[string]bool // players
	wrongByPlayer map[string]int  // messages
}

// Messages counts the reliable messages that were acknowledged or promised in a phase.
// Here, in contrast to Verdict.Lost, an interruption excuses nothing.
type Messages struct {
	Acknowledged int // messages of clients
	Lost         int // of those, never heard by the game server
	Doubled      int // heard more than once
	Promised     int // messages to clients that an edge promised to deliver
	Missed       int // of those, never received
	Twice        int // received more than once
	Stayed       int // of Lost, Doubled, Missed and Twice: those of players that were not interrupted
}

// Wrong returns how many messages were lost or came twice.
func (m Messages) Wrong() int { return m.Lost + m.Doubled + m.Missed + m.Twice }

// Interrupted returns how many players were disconnected in the phase.
func (p *Phase) Interrupted() int { return len(p.interrupted) }

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
	return v.Lost+v.Doubled+v.Disorder > 0 || len(v.Violations) > 0 ||
		slices.ContainsFunc(v.Phases, func(p Phase) bool { return p.Interruptions > 0 && !p.Excused || len(p.Problems) > 0 })
}

// A direction is the messages of a client in one direction.
type direction struct {
	sent, arrived uint64             // the highest numbers
	open          map[uint64]bool    // sent and not arrived
	unsure        map[uint64]bool    // sent without an answer: may arrive or not
	promised      map[uint64]promise // by acknowledgements or answers
}

// A promise is an acknowledgement or an answer: in which phase, and when.
type promise struct {
	phase int
	at    int64 // µs
}

// A party is one client of a history, from its connection to its end.
type party struct {
	name     string
	up, down direction
	ended    bool  // closed or left: messages under way may be lost
	left     int64 // when it ended because the run told it to; 0 if it did not
}

// player returns the place in the game: parties of one player are NAME.0, NAME.1 and so on.
func player(party string) string {
	name, _, _ := strings.Cut(party, ".")
	return name
}

// A window is a fault and the time in which it has effects.
type window struct {
	phase    int
	number   uint64
	from, to int64 // µs; to is 0 until the fault healed
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

// CheckFile is Check for a file.
func CheckFile(name string) (v Verdict, err error) {
	f, err := os.Open(name)
	if err != nil {
		return v, err
	}
	defer f.Close()
	return Check(f)
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
		c.read(rec)
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
		empty := func() direction {
			return direction{open: map[uint64]bool{}, unsure: map[uint64]bool{}, promised: map[uint64]promise{}}
		}
		p = &party{name: name, up: empty(), down: empty()}
		c.parties[name] = p
	}
	return p
}

// current returns the phase that runs; records before the first phase go to one that is
// not reported.
func (c *checker) current() *Phase {
	if c.phase < 0 {
		return &Phase{interrupted: map[string]bool{}, wrongByPlayer: map[string]int{}, Reasons: map[string]int{}}
	}
	return &c.v.Phases[c.phase]
}

func (c *checker) read(r Record) {
	switch r.Kind {
	case Said:
		c.v.Said++
		c.spoken = append(c.spoken, r.At)
		c.party(r.Who).up.send(r.N)
	case Acked:
		c.party(r.Who).up.promised[r.N] = promise{c.phase, r.At}
	case Heard:
		c.arrive(r, &c.party(r.Who).up, &c.current().Messages.Doubled, "the game server")
	case Told:
		c.v.Told++
		c.spoken = append(c.spoken, r.At)
		p := c.party(r.Who)
		p.down.send(r.N)
		p.down.unsure[r.N] = true
	case Answered:
		p := c.party(r.Who)
		delete(p.down.unsure, r.N)
		p.down.promised[r.N] = promise{c.phase, r.At}
	case Got:
		c.arrive(r, &c.party(r.Who).down, &c.current().Messages.Twice, "the client")
	default:
		c.readEvent(r)
	}
}

func (c *checker) readEvent(r Record) {
	switch r.Kind {
	case Run:
		c.v.Run = r.Note
	case PhaseIs:
		name, excused := strings.CutSuffix(r.Note, excusedSuffix)
		c.v.Phases = append(c.v.Phases, Phase{Name: name, Excused: excused, from: r.At, Reasons: map[string]int{}, interrupted: map[string]bool{}, wrongByPlayer: map[string]int{}})
		c.phase = len(c.v.Phases) - 1
	case Fault:
		c.faults = append(c.faults, &window{phase: c.phase, number: r.N, from: r.At, worst: map[string]int64{}, extra: map[string]int{}})
		if r.Note != Calm && r.Note != Direct {
			c.current().Faults++
		}
	case Healed:
		for _, w := range c.faults {
			if w.number == r.N {
				w.to = r.At + gapAfter.Microseconds()
				c.current().Took += micros(r.At - w.from)
			}
		}
	case Closed:
		c.closed(r)
	case Left:
		p := c.party(r.Who)
		p.ended, p.left = true, r.At
	case Gap:
		c.violation(r.At, "the game server misses messages of %s: %s", r.Who, r.Note)
	case Problem:
		c.current().Problems = append(c.current().Problems, r.Note)
		c.violation(r.At, "%s", r.Note)
	default:
		c.readMeasure(r)
	}
}

func (c *checker) readMeasure(r Record) {
	p := c.current()
	switch r.Kind {
	case Handed, Moved:
		if len(c.faults) > 0 {
			c.moments = append(c.moments, moment{c.phase, len(c.faults), r.Who, r.At, r.Kind == Moved})
		}
	case Ops:
		c.operation(r)
	case Silence:
		c.silences[r.Who] = append(c.silences[r.Who], silence{r.At - r.D, r.At})
		if w := c.windowOf(r.At-r.D, r.At); w != nil {
			w.worst[r.Who] = max(w.worst[r.Who], r.D)
		}
	case Extra:
		if w := c.windowOf(r.At, r.At); w != nil {
			w.extra[r.Who]++
		}
	case Ack:
		p.acks = append(p.acks, micros(r.D))
		c.acks = append(c.acks, micros(r.D))
	case CPU:
		if r.N > 0 {
			c.cost[r.Note] = append(c.cost[r.Note], float64(r.D)*1000/float64(r.N))
		}
	case Stale:
		p.Stale = append(p.Stale, micros(r.D))
	case Late:
		p.Late = max(p.Late, micros(r.D))
	case Route:
		p.Routes = append(p.Routes, fmt.Sprintf("%.1f s: %s", micros(r.At-p.from).Seconds(), r.Note))
	}
}

func (c *checker) closed(r Record) {
	p := c.current()
	c.party(r.Who).ended = true
	p.Interruptions++
	p.Reasons[r.Note]++
	p.interrupted[player(r.Who)] = true
	if !p.Excused {
		c.violation(r.At, "%s is interrupted: %s", r.Who, r.Note)
	}
}

// windowOf returns the newest fault that can be the cause of what lasted from begin to
// end.
func (c *checker) windowOf(begin, end int64) *window {
	for _, w := range slices.Backward(c.faults) {
		if end >= w.from {
			if w.to == 0 || begin <= w.to {
				return w
			}
			return nil
		}
	}
	return nil
}

func (d *direction) send(n uint64) {
	d.sent = max(d.sent, n)
	d.open[n] = true
}

// arrive judges a message that arrived.
func (c *checker) arrive(r Record, d *direction, doubled *int, where string) {
	switch {
	case r.N <= d.arrived && !d.open[r.N]:
		c.v.Doubled++
		*doubled++
		c.current().wrongByPlayer[player(r.Who)]++
		c.violation(r.At, "message %d of %s reaches %s again", r.N, r.Who, where)
	case r.N < d.arrived:
		c.v.Disorder++
		c.violation(r.At, "message %d of %s reaches %s after %d", r.N, r.Who, where, d.arrived)
	case !d.open[r.N]:
		c.violation(r.At, "message %d of %s reaches %s and was never sent", r.N, r.Who, where)
	}
	delete(d.open, r.N)
	d.arrived = max(d.arrived, r.N)
}

func (c *checker) finish() {
	for _, name := range sortedKeys(c.parties) {
		p := c.parties[name]
		c.lost(p, &p.up, "the game server")
		c.lost(p, &p.down, "the client")
		c.broken(p, &p.up, func(m *Messages) (*int, *int) { return &m.Acknowledged, &m.Lost })
		c.broken(p, &p.down, func(m *Messages) (*int, *int) { return &m.Promised, &m.Missed })
	}
	for _, w := range c.faults {
		if w.phase < 0 {
			continue
		}
		ph := &c.v.Phases[w.phase]
		for _, d := range w.worst {
			ph.gaps = append(ph.gaps, micros(d))
		}
		for _, n := range w.extra {
			ph.Extra = max(ph.Extra, n)
		}
	}
	c.judgePauses()
	c.finishOperations()
	for i := range c.v.Phases {
		c.v.Phases[i].finish()
	}
	c.v.AckP50, c.v.AckP99 = Quantile(c.acks, 0.5), Quantile(c.acks, 0.99)
	for _, what := range sortedKeys(c.cost) {
		list := c.cost[what]
		slices.Sort(list)
		c.v.Costs = append(c.v.Costs, Cost{what, time.Duration(list[len(list)/2]), len(list)})
	}
}

func (p *Phase) finish() {
	p.GapP50, p.GapP99, p.GapMost = Quantile(p.gaps, 0.5), Quantile(p.gaps, 0.99), Quantile(p.gaps, 1)
	p.AckP50, p.AckP99 = Quantile(p.acks, 0.5), Quantile(p.acks, 0.99)
	slices.Sort(p.Stale)
	for who, n := range p.wrongByPlayer {
		if !p.interrupted[who] {
			p.Messages.Stayed += n
		}
	}
}

// lost counts the messages that never arrived. Messages of an interrupted client behind
// the last that arrived were under way.
func (c *checker) lost(p *party, d *direction, to string) {
	for _, n := range sortedKeys(d.open) {
		if p.ended && n > d.arrived || d.unsure[n] {
			continue
		}
		c.v.Lost++
		c.violation(0, "message %d of %s never reaches %s", n, p.name, to)
	}
}

// broken counts the promised messages of a client by phase, and those of them that never
// arrived. An edge goes on promising until it has learned that a client left, which takes
// up to 2 s; the client does not miss these messages, nor those of the second before.
func (c *checker) broken(p *party, d *direction, counters func(*Messages) (promised, missed *int)) {
	for n, made := range d.promised {
		if made.phase < 0 || p.left > 0 && d == &p.down && n > d.arrived && made.at > p.left-1e6 {
			continue
		}
		ph := &c.v.Phases[made.phase]
		promised, missed := counters(&ph.Messages)
		*promised++
		if d.open[n] {
			*missed++
			ph.wrongByPlayer[player(p.name)]++
		}
	}
}

// Quantile sorts a list and returns the value above the share q of it.
func Quantile(list []time.Duration, q float64) time.Duration {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[min(int(q*float64(len(list))), len(list)-1)]
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
