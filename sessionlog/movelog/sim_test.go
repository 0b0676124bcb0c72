package movelog

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/simnet"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/sessionlog/memlog"
)

var (
	seed  = flag.Uint64("seed", 0, "the one seed to simulate; 0 means -seeds of them from -first on")
	first = flag.Uint64("first", 1, "the first seed to simulate")
	seeds = flag.Int("seeds", 40, "how many seeds to simulate")
	story = flag.Bool("story", false, "print what happens")
)

// A seed begins with edges of the last release for oldTime, if it has any, and has faults for
// playTime. Then all edges get one mode, and the log has no faults for healTime. If that mode is the
// replicated one, edges of the last release are back for oldTime.
const (
	oldTime  = 15 * time.Second
	playTime = 45 * time.Second
	healTime = 14 * time.Second

	outageTime = 4 * time.Second  // at most
	forgetTime = 15 * time.Second // after which stores forget a log that ended. Late writes take 8 s at most
	vacantTime = 10 * time.Second // in place of vacantAfter
)

// A trouble is a kind of faults.
type trouble struct {
	name    string
	old     bool // edges of the last release at the beginning
	outages bool // one of the stores answers nothing for a time
	cuts    bool // single edges do not reach single stores
	faults  bool // lost and late answers, busy stores
	reads   bool // reads of the replicated store are torn, or show what it had some time ago
	endings bool // logs end, are forgotten and begin again
}

var troubles = []trouble{
	{name: "Peace", endings: true},
	{name: "Upgrade", old: true, outages: true, faults: true},
	{name: "Outages", outages: true, faults: true, endings: true},
	{name: "Cuts", cuts: true, faults: true},
	{name: "Reads", reads: true, faults: true, endings: true},
	{name: "Everything", old: true, outages: true, cuts: true, faults: true, reads: true, endings: true},
}

const edges = 4

var logNames = []string{"A", "B"}

// A world has edges of two releases and two modes that write to logs.
type world struct {
	trouble
	net     *simnet.Net
	rnd     *rand.Rand
	stores  [stores]*memlog.Store
	hasty   bool                    // sessions change their edges all the time
	finals  [stores]map[string]bool // writes after which a store may forget the log
	tails   [stores]map[string]uint64
	past    map[string][]moment // of the replicated store, by log
	cut     [edges][stores]bool
	edges   [edges]*edge
	logs    map[string]*truth
	mode    Mode // after playTime
	healed  bool
	over    bool
	problem string
	acks    int
	stats   Stats // of processes that ended
}

// A moment is what a store had of a log at some time.
type moment struct {
	at      time.Duration
	entries []sessionlog.Entry
}

func (w *world) fail(format string, args ...any) {
	if w.problem == "" {
		w.problem = fmt.Sprintf("after %v: ", w.net.Elapsed()) + fmt.Sprintf(format, args...)
	}
	w.tell("PROBLEM "+format, args...)
}

func (w *world) tell(format string, args ...any) {
	if *story {
		fmt.Printf("%10v %s\n", w.net.Elapsed(), fmt.Sprintf(format, args...))
	}
}

func newWorld(seed uint64, tr trouble) *world {
	w := &world{trouble: tr, net: simnet.New(seed), logs: map[string]*truth{}, past: map[string][]moment{}}
	w.rnd = w.net.Rand()
	w.hasty = w.rnd.IntN(2) == 0
	w.mode = Mode(w.rnd.IntN(2))
	for s := range w.stores {
		cfg := memlog.Config{Schedule: w.net.Schedule, Rand: w.rnd}
		if tr.faults {
			cfg.Lost, cfg.Late, cfg.Busy = 0.03*w.rnd.Float64(), 0.03*w.rnd.Float64(), 0.05*w.rnd.Float64()
		}
		if tr.reads && store(s) == inReplicated {
			cfg.Torn = 0.1 * w.rnd.Float64()
		}
		w.finals[s], w.tails[s] = map[string]bool{}, map[string]uint64{}
		w.stores[s] = memlog.New(cfg)
		w.stores[s].Applied = func(log string, e sessionlog.Entry) { w.applied(store(s), log, e) }
	}
	for _, name := range logNames {
		w.logs[name] = newTruth(name)
	}
	for e := range w.edges {
		w.start(e, w.anyMode(), tr.old && e < 2)
	}
	if tr.old {
		w.net.Schedule(oldTime, func() {
			for e := range 2 {
				w.start(e, w.anyMode(), false)
			}
		})
	}
	w.net.Schedule(w.pause(2*time.Second), w.disturb)
	return w
}

func (w *world) anyMode() Mode { return Mode(w.rnd.IntN(2)) }

func (w *world) pause(d time.Duration) time.Duration { return time.Duration(w.rnd.Int64N(int64(d))) }

// applied has a store forget a log some time after its end.
func (w *world) applied(s store, log string, e sessionlog.Entry) {
	r, own := decode(e.Data)
	w.remember(s, log)
	w.tell("    store %d has %s %d: record %v, kind %d, generation %d", s, log, e.Seq, own, r.kind, r.generation)
	before := w.tails[s][log]
	w.tails[s][log] = e.Seq
	if !w.finals[s][writeKey(sessionlog.Write{Log: log, Expect: before, Data: e.Data})] {
		return
	}
	if w.rnd.IntN(5) == 0 && !w.healed {
		w.logs[log].quiet = w.net.Elapsed() + forgetTime + w.pause(3*time.Second)
	}
	w.net.Schedule(forgetTime, func() {
		stored := w.stores[s].Entries(log)
		if n := len(stored); n > 0 && stored[n-1].Seq == e.Seq {
			if p := placeOf(s, stored); p.kind == data {
				k, _ := sessionlog.ParseBlock(p.plain[len(p.plain)-1].Data)
				t := w.logs[log]
				w.believe(t, int(k.Number), t.head, "end", true)
			}
			w.tell("    store %d forgets %s", s, log)
			w.stores[s].Wipe(log, n)
			w.tails[s][log] = 0
			w.remember(s, log)
		}
	})
}

func writeKey(r sessionlog.Write) string { return fmt.Sprint(r.Log, r.Expect) + string(r.Data) }

// start begins an edge, or another process of it.
func (w *world) start(i int, mode Mode, old bool) {
	if e := w.edges[i]; e != nil {
		e.stop()
	}
	e := &edge{w: w, i: i, old: old, mayAt: w.net.Elapsed()}
	if w.old && !old && w.net.Elapsed() < oldTime { // what gossip says comes to each edge at another time
		e.mayAt = oldTime + w.pause(4*time.Second)
	}
	if w.old && w.net.Elapsed() == oldTime {
		e.mayAt += w.pause(4 * time.Second)
	}
	w.edges[i] = e
	w.tell("edge %d starts, mode %d, old %v", i, mode, old)
	skew := time.Duration(w.rnd.IntN(5000)-2500) * time.Millisecond
	if old {
		e.log = way{e, inReplicated}
	} else {
		e.mover = New(Config{
			Replicated: way{e, inReplicated}, Quorum: way{e, inQuorum}, Mode: mode, Single: true,
			May:   func() bool { return e.mayAt <= w.net.Elapsed() },
			Now:   func() time.Time { return w.net.Now().Add(skew) },
			After: func(d time.Duration, f func()) { w.net.Schedule(d, func() { e.alive(f) }) },
		})
		e.mover.vacant = vacantTime
		e.log = e.mover
	}
	for _, name := range logNames {
		a := &actor{e: e, t: w.logs[name]}
		w.net.Schedule(w.pause(3*time.Second), a.begin)
	}
}

// An edge is a process.
type edge struct {
	w       *world
	i       int
	old     bool
	mayAt   time.Duration
	mover   *Log // nil for an edge of the last release
	log     sessionlog.Log
	asked   int // requests without an answer
	dead    bool
	stopped bool
	held    []func()
}

func (e *edge) stop() {
	e.dead = true
	if e.mover != nil {
		e.w.stats.add(e.mover.Stats())
	}
}

func (s *Stats) add(o Stats) {
	s.ToReplicated += o.ToReplicated
	s.ToQuorum += o.ToQuorum
	s.Copies += o.Copies
	s.Conflicts += o.Conflicts
	s.Remained += o.Remained
	s.Both += o.Both
}

// alive does something unless the edge is dead, and later if it is stopped.
func (e *edge) alive(f func()) {
	switch {
	case e.dead:
	case e.stopped:
		e.held = append(e.held, f)
	default:
		f()
	}
}

// A way leads from an edge to a store.
type way struct {
	e *edge
	s store
}

func (y way) Append(r sessionlog.Write, answer func(sessionlog.Answer)) {
	if r.Final {
		y.e.w.finals[y.s][writeKey(r)] = true
	}
	y.ask(answer, func(f func(sessionlog.Answer)) { y.e.w.stores[y.s].Append(r, f) })
	y.e.w.step(y.e, y.s, r.Data)
}

// step sometimes ends or stops an edge in the middle of a move, after it sent a write and before it
// has the answer, or some other write later.
func (w *world) step(e *edge, s store, p []byte) {
	r, ok := decode(p)
	if w.healed || !ok || r.kind == data && s == inQuorum && w.rnd.IntN(10) != 0 {
		return
	}
	mode := w.anyMode()
	switch w.rnd.IntN(25) {
	case 0:
		w.net.Schedule(w.pause(4*time.Millisecond), func() {
			if !w.healed && w.edges[e.i] == e {
				w.start(e.i, mode, e.old)
			}
		})
	case 1:
		w.net.Schedule(w.pause(4*time.Millisecond), func() { w.pauseEdge(e.i) })
	}
}

func (y way) Read(log string, answer func(sessionlog.Answer)) {
	y.ask(func(a sessionlog.Answer) { answer(y.e.w.outdated(y.s, log, a)) }, func(f func(sessionlog.Answer)) { y.e.w.stores[y.s].Read(log, f) })
}

// remember notes what the replicated store has, for outdated.
func (w *world) remember(s store, log string) {
	if s == inReplicated && w.reads {
		w.past[log] = append(w.past[log], moment{w.net.Elapsed(), w.stores[s].Entries(log)})
		if p := w.past[log]; len(p) > 1000 {
			w.past[log] = p[500:]
		}
	}
}

// outdated sometimes answers a read as a leader does that was replaced and does not know it.
func (w *world) outdated(s store, log string, a sessionlog.Answer) sessionlog.Answer {
	if !w.reads || w.healed || s != inReplicated || a.Verdict != fence.OK || w.rnd.IntN(10) != 0 {
		return a
	}
	then := w.net.Elapsed() - w.pause(4*time.Second)
	a.Entries = nil
	for _, m := range w.past[log] {
		if m.at <= then {
			a.Entries = m.entries
		}
	}
	return a
}

func (y way) ask(answer func(sessionlog.Answer), send func(func(sessionlog.Answer))) {
	w := y.e.w
	if w.cut[y.e.i][y.s] {
		v, d := fence.Unreachable, time.Millisecond
		if w.rnd.IntN(2) == 0 {
			v, d = fence.Unknown, 500*time.Millisecond
		}
		w.net.Schedule(d, func() { y.e.alive(func() { answer(sessionlog.Answer{Verdict: v}) }) })
		return
	}
	send(func(a sessionlog.Answer) { y.e.alive(func() { answer(a) }) })
}

// disturb makes trouble now and then.
func (w *world) disturb() {
	if w.healed {
		return
	}
	e := w.rnd.IntN(edges)
	switch w.rnd.IntN(6) {
	case 0:
		w.start(e, w.anyMode(), w.edges[e].old)
	case 1, 2:
		w.pauseEdge(e)
	case 3:
		if w.cuts {
			s := w.rnd.IntN(int(stores))
			w.cut[e][s] = true
			w.net.Schedule(w.pause(outageTime), func() { w.cut[e][s] = false })
		}
	default:
		if w.outages {
			s := w.rnd.IntN(int(stores))
			w.tell("store %d is silent", s)
			w.stores[s].SetSilent(true)
			w.net.Schedule(w.pause(outageTime), func() { w.stores[s].SetSilent(false) })
		}
	}
	w.net.Schedule(w.pause(3*time.Second), w.disturb)
}

func (w *world) pauseEdge(i int) {
	e := w.edges[i]
	if e.stopped {
		return
	}
	e.stopped = true
	w.net.Schedule(w.pause(3*time.Second), func() {
		e.stopped = false
		held := e.held
		e.held = nil
		for _, f := range held {
			e.alive(f)
		}
	})
}

// run plays the seed.
func (w *world) run() {
	w.until(playTime)
	w.heal()
	w.until(playTime + healTime)
	if w.checkPlaces(); w.mode == Replicated {
		for _, e := range w.edges {
			e.mayAt = 1 << 62
		}
		for e := range 2 {
			w.start(e, w.mode, true)
		}
		w.until(playTime + healTime + oldTime)
		w.checkPlaces()
		w.checkOld()
	}
	for name, t := range w.logs {
		if w.problem == "" && t.head == t.healed {
			w.fail("%s: nothing was written without faults", name)
		}
	}
	w.over = true
	w.net.Run(5 * time.Second)
	for _, e := range w.edges {
		if e.asked != 0 {
			w.fail("edge %d: %d requests have no answer", e.i, e.asked)
		}
		e.stop()
	}
}

func (w *world) until(d time.Duration) {
	for w.net.Elapsed() < d && w.problem == "" && w.net.Step() {
	}
}

func (w *world) heal() {
	w.tell("all edges get mode %d, and there are no faults any more", w.mode)
	w.healed = true
	for _, s := range w.stores {
		s.Lost, s.Late, s.Busy, s.Torn = 0, 0, 0, 0
		s.SetSilent(false)
	}
	w.cut = [edges][stores]bool{}
	for e := range edges {
		w.net.Schedule(w.pause(4*time.Second), func() { w.start(e, w.mode, false) })
	}
	for _, t := range w.logs {
		t.healed, t.quiet = t.head, 0
	}
}

// checkPlaces checks that each log is where the mode wants it, and that the other store has nothing
// of it that counts.
func (w *world) checkPlaces() {
	for _, name := range logNames {
		q := placeOf(inQuorum, w.stores[inQuorum].Entries(name))
		r := placeOf(inReplicated, w.stores[inReplicated].Entries(name))
		switch {
		case w.problem != "" || w.logs[name].entries[w.logs[name].head].final:
		case w.mode == Quorum && (q.kind != data || r.kind == data || r.kind == moved && r.generation > q.generation),
			w.mode == Replicated && (r.kind != data || q.kind != gone && q.kind != none):
			w.fail("%s: mode %d, but the replicated store has %d (generation %d), the quorum store %d (%d)", name, w.mode, r.kind, r.generation, q.kind, q.generation)
		}
	}
}

// checkOld checks that a program of the last release can read each log.
func (w *world) checkOld() {
	for _, name := range logNames {
		last := sessionlog.Entry{}
		for i, e := range w.stores[inReplicated].Entries(name) {
			k, err := sessionlog.ParseBlock(e.Data)
			if err != nil || i > 0 && k.Previous != last.Seq {
				w.fail("%s: the last release cannot read it: %v, %d behind %d", name, err, k.Previous, last.Seq)
			}
			last = e
		}
	}
}

func TestSimulation(t *testing.T) {
	from, n := *first, *seeds
	if *seed != 0 {
		from, n = *seed, 1
	}
	acks, total := 0, Stats{}
	for s := from; s < from+uint64(n); s++ {
		w := newWorld(s, troubles[s%uint64(len(troubles))])
		w.run()
		acks += w.acks
		total.add(w.stats)
		if w.problem != "" {
			t.Fatalf("seed %d (%s): %s\nrepeat with: go test ./sessionlog/movelog -run TestSimulation -seed %d -story", s, w.name, w.problem, s)
		}
	}
	t.Logf("%d seeds, %d writes, %s", n, acks, strings.Trim(fmt.Sprintf("%+v", total), "{}"))
}
