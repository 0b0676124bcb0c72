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
// effect, and after the end of a cut the end of a session: clients wait that long for an
// acknowledgement.
const gapAfter = 3 * time.Second

// ListenerPrefix begins the names of players that only or mostly listen. listeningMax is the bar for the
// P99 of their gaps: nothing that they say shows an edge by which way they can be reached.
const (
	ListenerPrefix = "listener-"
	listeningMax   = 2200 * time.Millisecond
)

// Listener reports whether a player or one of its parties only or mostly listens.
func Listener(who string) bool { return strings.HasPrefix(who, ListenerPrefix) }

// Speaker reports whether a player or one of its parties speaks as often as the run lets it.
func Speaker(who string) bool { return !Listener(who) }

// Everyone is true for all players.
func Everyone(string) bool { return true }

// violationsMax bounds the violations that are listed one by one.
const violationsMax = 50

// A Verdict is what a history shows.
type Verdict struct {
	Run        string
	Remarks    []string // what limits the verdict
	Phases     []Phase
	Lost       int // messages that never arrived although the session of their sender lived
	Doubled    int
	Disorder   int
	UnderWay   int      // messages that had not arrived at the end of a history that breaks off
	Violations []string // the first ones, with their moments in the history
	Said, Told int      // messages of clients, and of the game server
	Ack        Times
	Uses       []Use
}

// A Phase is faults of one kind.
type Phase struct {
	Name                         string
	Took                         time.Duration  // of all faults together
	Faults                       int            // without the times for comparison
	Interruptions                int            // of players whose way in was well
	Reasons                      map[string]int // of the interruptions
	CutEnded                     int            // sessions that ended because the way in of their players was cut
	Gap                          Times          // longest silence of each client around each fault, without those of clients that only listen
	Listening                    Times          // the same of clients that only listen
	Unacknowledged               Times          // longest time that a reliable message of each client had no acknowledgement around each fault
	GapMax                       time.Duration  // a P99 of Gap or Unacknowledged above it is a violation; 0 = none is
	Extra                        int            // most repeats that one client received around one fault
	Ack                          Times          // from a reliable message of a client to its acknowledgement
	ToGame, ToClients            Times          // from the sending of a reliable message to its arrival at the game server, or the client
	Handed, Others, Above, Moved Times          // pauses: see judgePauses
	Messages                     Messages
	Stale                        []time.Duration // longest time without an update, by player whose way in was well, ascending
	CutStale                     []time.Duration // the same of players whose way in was cut
	Late                         time.Duration   // longest time that the machine delayed the test itself
	Routes                       []string        // when the balancer spread flows anew, and over which nodes
	Problems                     []string

	from        int64
	interrupted map[string]bool  // players
	cut         map[string]bool  // players
	cutParties  map[string]bool  // whose sessions CutEnded counts
	wrong       map[string]int   // messages, by party
	stale       map[string]int64 // µs, by player
}

// Messages counts the reliable messages that were acknowledged or promised in a phase.
// Here, in contrast to Verdict.Lost, an interruption excuses nothing, and Excused says what a
// cut way in excuses.
type Messages struct {
	Acknowledged int // messages of clients
	Lost         int // of those, never heard by the game server
	Doubled      int // heard more than once
	Promised     int // messages to clients that an edge promised to deliver
	Missed       int // of those, never received
	Twice        int // received more than once
	Disorder     int // that arrived after a later one, both ways
	Stayed       int // of Lost, Doubled, Missed, Twice and Disorder: those of players that were not interrupted, and not excused
	Excused      int // of the same: those of sessions that ended because the way in of their players was cut
}

// Wrong returns how many messages were lost, came twice or out of order, and are not excused.
func (m Messages) Wrong() int {
	return m.Lost + m.Doubled + m.Missed + m.Twice + m.Disorder - m.Excused
}

// Interrupted returns how many players were disconnected in the phase.
func (p *Phase) Interrupted() int { return len(p.interrupted) }

// Cut returns for how many players the way in was cut in the phase.
func (p *Phase) Cut() int { return len(p.cut) }

// Bad reports whether something happened that must not.
func (v *Verdict) Bad() bool {
	return v.Lost+v.Doubled+v.Disorder > 0 || len(v.Violations) > 0 ||
		slices.ContainsFunc(v.Phases, func(p Phase) bool { return p.Interruptions > 0 || len(p.Problems) > 0 })
}

// of returns the counters of one direction: the messages of clients, or those to them.
func (m *Messages) of(up bool) (promised, missed, again *int) {
	if up {
		return &m.Acknowledged, &m.Lost, &m.Doubled
	}
	return &m.Promised, &m.Missed, &m.Twice
}

// A direction is the messages of a client in one direction.
type direction struct {
	up       bool
	arrived  uint64             // the highest number
	open     map[uint64]int64   // sent and not arrived: when, in µs
	unsure   map[uint64]bool    // of open, without an answer: may arrive or not
	promised map[uint64]promise // of open, by acknowledgements or answers
}

// A promise is an acknowledgement or an answer: in which phase, when, and with what words.
type promise struct {
	phase int
	at    int64 // µs
	note  string
}

// A party is one client of a history, from its connection to its end.
type party struct {
	name     string
	up, down direction
	ended    bool  // closed or left: messages under way may be lost
	left     int64 // when it ended because the run told it to; 0 if it did not
}

// words says what was promised, and how long after the message was sent.
func (p promise) words(sent int64) string {
	if p.at == 0 {
		return ""
	}
	return fmt.Sprintf(" (promised after %s: %s)", ms(micros(p.at-sent)), cmp.Or(p.note, "acknowledged"))
}

// player returns the place in the game: parties of one player are NAME.0, NAME.1 and so on.
func player(party string) string {
	name, _, _ := strings.Cut(party, ".")
	return name
}

// A window is a fault and the time in which it has effects.
type window struct {
	phase     int
	number    uint64
	from, to  int64            // µs; to is 0 until the fault healed
	gap, wait map[string]int64 // µs, by party
	extra     map[string]int
	acks      int // of the phase before
}

type checker struct {
	v       Verdict
	parties map[string]*party
	cuts    map[string]cut // the last one of each player
	phase   int
	faults  []*window
	ended   bool // the history does not break off

	silences map[string][]silence
	moments  []moment
	used     map[string]map[string][]float64 // by Use.What and phase
}

// CheckFile is Check for a file.
func CheckFile(name string, about func(who string) bool) (v Verdict, err error) {
	f, err := os.Open(name)
	if err != nil {
		return v, err
	}
	defer f.Close()
	return Check(f, about)
}

// Check reads a history and judges what it has about these players: Everyone, Listener or Speaker.
func Check(r io.Reader, about func(who string) bool) (Verdict, error) {
	c := &checker{parties: map[string]*party{}, cuts: map[string]cut{}, silences: map[string][]silence{}, used: map[string]map[string][]float64{}, phase: -1}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var rec Record
		if err := json.Unmarshal(lines.Bytes(), &rec); err != nil {
			return c.v, fmt.Errorf("line %d: %w", n, err)
		}
		if rec.Who == "" || rec.Kind == Fault || about(rec.Who) { // a fault hits a node
			c.read(rec)
		}
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
		empty := func(up bool) direction {
			return direction{up: up, open: map[uint64]int64{}, unsure: map[uint64]bool{}, promised: map[uint64]promise{}}
		}
		p = &party{name: name, up: empty(true), down: empty(false)}
		c.parties[name] = p
	}
	return p
}

func newPhase(name string) Phase {
	return Phase{
		Name: name, Reasons: map[string]int{}, interrupted: map[string]bool{}, cut: map[string]bool{}, cutParties: map[string]bool{},
		wrong: map[string]int{}, stale: map[string]int64{},
	}
}

// begin begins a phase, or goes on with it.
func (c *checker) begin(r Record) {
	c.phase = slices.IndexFunc(c.v.Phases, func(p Phase) bool { return p.Name == r.Note })
	if c.phase < 0 {
		c.phase = len(c.v.Phases)
		c.v.Phases = append(c.v.Phases, newPhase(r.Note))
	}
	p := c.current()
	p.from, p.GapMax = r.At, micros(r.D)
	c.stillCut(p)
}

// current returns the phase that runs; records before the first phase go to one that is
// not reported.
func (c *checker) current() *Phase {
	if c.phase < 0 {
		p := newPhase("")
		return &p
	}
	return &c.v.Phases[c.phase]
}

func (c *checker) read(r Record) {
	p := c.party(r.Who)
	switch r.Kind {
	case Said:
		c.v.Said++
		p.up.open[r.N] = r.At
	case Acked:
		c.promise(r, &p.up)
	case Heard:
		c.arrive(r, &p.up, "the game server")
	case Told:
		c.v.Told++
		p.down.open[r.N] = r.At
		p.down.unsure[r.N] = true
	case Answered:
		delete(p.down.unsure, r.N)
		c.promise(r, &p.down)
	case Got:
		c.arrive(r, &p.down, "the client")
	default:
		c.readEvent(r)
	}
}

func (c *checker) readEvent(r Record) {
	switch r.Kind {
	case Run:
		c.v.Run = r.Note
	case PhaseIs:
		c.begin(r)
	case Fault:
		c.faults = append(c.faults, &window{phase: c.phase, number: r.N, from: r.At, acks: len(c.current().Ack.list), gap: map[string]int64{}, wait: map[string]int64{}, extra: map[string]int{}})
		if r.Note != NoFault {
			c.current().Faults++
		}
	case Healed:
		for _, w := range c.faults {
			if w.number == r.N {
				w.to = r.At + gapAfter.Microseconds()
				p := c.current()
				p.Took += micros(r.At - w.from)
				if acks := p.Ack.list[w.acks:]; strings.HasPrefix(p.Name, Steady) {
					c.use(p, ackP50, float64(Quantile(acks, 0.5).Microseconds()))
					c.use(p, ackP99, float64(Quantile(acks, 0.99).Microseconds()))
				}
			}
		}
	case Closed:
		c.closed(r)
	case Cut:
		c.readCut(r)
	case Left:
		p := c.party(r.Who)
		p.ended, p.left = true, r.At
	case Ended:
		if c.ended = true; r.Note != "" {
			c.v.Remarks = append(c.v.Remarks, r.Note)
		}
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
	case Silence:
		c.silences[r.Who] = append(c.silences[r.Who], silence{r.At - r.D, r.At})
		if w := c.windowOf(r.At-r.D, r.At); w != nil {
			w.gap[r.Who] = max(w.gap[r.Who], r.D)
		}
	case Extra:
		if w := c.windowOf(r.At, r.At); w != nil {
			w.extra[r.Who]++
		}
	case Ack, Waited:
		if w := c.windowOf(r.At-r.D, r.At); w != nil {
			w.wait[r.Who] = max(w.wait[r.Who], r.D)
		}
		if r.Kind == Ack {
			p.Ack.add(r.D)
			c.v.Ack.add(r.D)
		}
	case Used:
		if r.N > 0 {
			c.use(p, r.Note, float64(r.D)/float64(r.N))
		}
	case Stale:
		p.stale[player(r.Who)] = max(p.stale[player(r.Who)], r.D)
	case Late:
		p.Late = max(p.Late, micros(r.D))
	case Route:
		p.Routes = append(p.Routes, fmt.Sprintf("%.1f s: %s", micros(r.At-p.from).Seconds(), r.Note))
	}
}

// closed judges the end of a session. It is an interruption, unless the way in of the player is
// cut or was a moment before.
func (c *checker) closed(r Record) {
	p := c.current()
	c.party(r.Who).ended = true
	if c.cutEnds(r) {
		p.CutEnded++
		p.cut[player(r.Who)] = true
		p.cutParties[r.Who] = true
		return
	}
	p.Interruptions++
	p.Reasons[r.Note]++
	p.interrupted[player(r.Who)] = true
	c.violation(r.At, "%s is interrupted: %s", r.Who, r.Note)
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

// promise notes a promise, until the message arrives.
func (c *checker) promise(r Record, d *direction) {
	if _, open := d.open[r.N]; open {
		d.promised[r.N] = promise{c.phase, r.At, r.Note}
		return
	}
	kept, _, _ := c.current().Messages.of(d.up)
	*kept++
}

// arrive judges a message that arrived.
func (c *checker) arrive(r Record, d *direction, where string) {
	ph := c.current()
	at, open := d.open[r.N]
	switch {
	case r.N <= d.arrived && !open:
		_, _, again := ph.Messages.of(d.up)
		*again++
		c.v.Doubled++
		ph.wrong[r.Who]++
		c.violation(r.At, "message %d of %s reaches %s again", r.N, r.Who, where)
	case r.N < d.arrived:
		c.v.Disorder++
		ph.Messages.Disorder++
		ph.wrong[r.Who]++
		c.violation(r.At, "message %d of %s reaches %s after %d", r.N, r.Who, where, d.arrived)
	case !open:
		c.violation(r.At, "message %d of %s reaches %s and was never sent", r.N, r.Who, where)
	}
	if open && d.up {
		ph.ToGame.add(r.At - at)
	} else if open {
		ph.ToClients.add(r.At - at)
	}
	if made, ok := d.promised[r.N]; ok && made.phase >= 0 {
		kept, _, _ := c.v.Phases[made.phase].Messages.of(d.up)
		*kept++
	}
	delete(d.open, r.N)
	delete(d.unsure, r.N)
	delete(d.promised, r.N)
	d.arrived = max(d.arrived, r.N)
}

func (c *checker) finish() {
	for _, name := range sortedKeys(c.parties) {
		p := c.parties[name]
		c.lost(p, &p.up, "the game server")
		c.lost(p, &p.down, "the client")
		c.broken(p, &p.up)
		c.broken(p, &p.down)
	}
	if c.v.UnderWay > 0 {
		c.v.Remarks = append(c.v.Remarks, fmt.Sprintf("the history breaks off: %d messages behind the last that arrived do not count as lost", c.v.UnderWay))
	}
	for _, w := range c.faults {
		if w.phase < 0 {
			continue
		}
		ph := &c.v.Phases[w.phase]
		for who, d := range w.gap {
			if Listener(who) {
				ph.Listening.add(d)
			} else {
				ph.Gap.add(d)
			}
		}
		for _, d := range w.wait {
			ph.Unacknowledged.add(d)
		}
		for _, n := range w.extra {
			ph.Extra = max(ph.Extra, n)
		}
	}
	c.judgePauses()
	for i := range c.v.Phases {
		c.finishPhase(&c.v.Phases[i])
	}
	c.v.Ack.finish()
	c.v.Uses = c.uses()
}

func (c *checker) finishPhase(p *Phase) {
	for _, t := range []*Times{&p.Gap, &p.Listening, &p.Unacknowledged, &p.Ack, &p.ToGame, &p.ToClients, &p.Handed, &p.Others, &p.Above, &p.Moved} {
		t.finish()
	}
	if gap := max(p.Gap.P99, p.Unacknowledged.P99); p.GapMax > 0 && gap > p.GapMax {
		c.violation(p.from, "%s: the p99 of gaps is %s, at most %s wanted", p.Name, ms(gap), ms(p.GapMax))
	}
	if p.Listening.P99 > listeningMax {
		c.violation(p.from, "%s: the p99 of gaps of clients that only listen is %s, at most %s wanted", p.Name, ms(p.Listening.P99), ms(listeningMax))
	}
	p.separate()
}

// lost counts the messages that never arrived. Messages of an interrupted client behind
// the last that arrived were under way, and so were those of all clients where the history
// breaks off.
func (c *checker) lost(p *party, d *direction, to string) {
	for _, n := range sortedKeys(d.open) {
		switch {
		case p.ended && n > d.arrived || d.unsure[n]:
		case !c.ended && n > d.arrived:
			c.v.UnderWay++
		default:
			c.v.Lost++
			c.violation(d.open[n], "message %d of %s never reaches %s%s; the last that does is %d", n, p.name, to, d.promised[n].words(d.open[n]), d.arrived)
		}
	}
}

// broken counts the promised messages of a client that never arrived, by phase. An edge goes
// on promising until it has learned that a client left, which takes up to 2 s; the client
// does not miss these messages, nor those of the second before.
func (c *checker) broken(p *party, d *direction) {
	for n, made := range d.promised {
		if made.phase < 0 || n > d.arrived && (!c.ended || p.left > 0 && !d.up && made.at > p.left-1e6) {
			continue
		}
		ph := &c.v.Phases[made.phase]
		promised, missed, _ := ph.Messages.of(d.up)
		*promised++
		*missed++
		ph.wrong[p.name]++
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
