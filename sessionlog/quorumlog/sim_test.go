package quorumlog_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/simnet"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/sessionlog/memlog"
	"github.com/dnprelay/dnprelay/sessionlog/quorumlog"
)

var (
	seed  = flag.Uint64("seed", 0, "the one seed to simulate; 0 means -seeds of them from -first on")
	first = flag.Uint64("first", 1, "the first seed to simulate")
	seeds = flag.Int("seeds", 40, "how many seeds to simulate")
	story = flag.Bool("story", false, "print what happens")
)

// A seed has faults for playTime, and none afterwards: for healTime edges go on, and in lastTime one
// more takes the logs over, with two checkpoints each.
const (
	playTime = 20 * time.Second
	healTime = 8 * time.Second
	lastTime = 10 * time.Second

	forget  = 6 * time.Second // after which stores forget a log that ended
	skewMax = 2 * time.Second // of the clocks of edges

	// restartMin is how long a server that loses writes takes at least to start again: longer than a
	// request takes.
	restartMin = time.Second

	// answerMax is how long a request takes while its edge runs: each of those before it as long as well.
	answerMax  = 800 * time.Millisecond
	answerLate = 100 * time.Millisecond
)

// A trouble is a kind of faults.
type trouble struct {
	name       string
	outage     time.Duration // copies answer nothing for up to this time, one copy at a time
	leaderless bool          // copies refuse reads for some seconds
	partitions bool          // single edges do not reach single copies
	forgetful  bool          // a copy forgets something, while no other is away or lacks anything
	endings    bool          // logs end, are forgotten and begin again
	faults     bool          // lost and late answers, busy copies, torn reads
}

var troubles = []trouble{
	{name: "Outages", outage: 6 * time.Second, leaderless: true, faults: true},
	{name: "Partitions", partitions: true, faults: true},
	{name: "Forgetful", forgetful: true, faults: true},
	{name: "Endings", endings: true, outage: 3 * forget, faults: true},
}

const (
	edges = 3
	three = 3 // copies
)

var logNames = []string{"A", "B"}

// A world has edges that write to logs in three copies.
type world struct {
	trouble
	net     *simnet.Net
	rnd     *rand.Rand
	stores  [three]*memlog.Store
	silent  [three]bool
	restore [three]func() // what a copy has if it loses its newest writes
	cut     [edges + 1][three]bool
	edges   [edges + 1]*edge // the last one takes all logs over in the end
	logs    map[string]*truth
	parts   int // bytes of a part of a state
	healed  bool
	ending  bool // edges take no log over any more
	problem string
	acks    int
	forgot  int
	stats   quorumlog.Stats // of edges that are gone
}

func (w *world) fail(format string, args ...any) {
	if w.problem == "" {
		w.problem = fmt.Sprintf("after %v: ", w.net.Elapsed()) + fmt.Sprintf(format, args...)
	}
	w.tell("PROBLEM "+format, args...)
	for c, s := range w.stores {
		for _, name := range logNames {
			w.tell("copy %d of %s: %s", c, name, quorumlog.Dump(s.Entries(name)))
		}
	}
}

func (w *world) tell(format string, args ...any) {
	if *story {
		fmt.Printf("%10v %s\n", w.net.Elapsed(), fmt.Sprintf(format, args...))
	}
}

func newWorld(seed uint64, tr trouble) *world {
	w := &world{trouble: tr, net: simnet.New(seed), logs: map[string]*truth{}}
	w.rnd = w.net.Rand()
	w.parts = []int{512 << 10, 30}[w.rnd.IntN(2)]
	for c := range w.stores {
		cfg := memlog.Config{Schedule: w.net.Schedule, Rand: w.rnd}
		if tr.faults {
			cfg.Lost, cfg.Late, cfg.Busy = 0.02*w.rnd.Float64(), 0.02*w.rnd.Float64(), 0.05*w.rnd.Float64()
		}
		if tr.endings {
			cfg.Forget = forget
		}
		w.stores[c] = memlog.New(cfg)
		w.restore[c] = w.stores[c].Snapshot()
	}
	for _, name := range logNames {
		w.logs[name] = newTruth(name)
	}
	for e := range edges {
		w.start(e)
	}
	w.net.Schedule(w.pause(2*time.Second), w.disturb)
	return w
}

func (w *world) pause(d time.Duration) time.Duration { return time.Duration(w.rnd.Int64N(int64(d))) }

// disturb makes trouble now and then.
func (w *world) disturb() {
	if w.healed {
		return
	}
	w.net.Schedule(w.pause(2*time.Second), w.disturb)
	c, e := w.rnd.IntN(three), w.rnd.IntN(edges)
	switch w.rnd.IntN(6) {
	case 0:
		w.tell("edge %d dies", e)
		w.start(e)
		return
	case 2:
		w.rush(logNames[w.rnd.IntN(len(logNames))])
		return
	case 1:
		w.edges[e].stop()
		return
	}
	switch {
	case w.leaderless && w.rnd.IntN(4) == 0:
		w.setLeaderless(true)
		w.net.Schedule(w.pause(6*time.Second), func() { w.setLeaderless(false) })
	case w.outage > 0 && w.silent == [three]bool{}:
		w.tell("copy %d is silent", c)
		w.setSilent(c, true)
		w.net.Schedule(w.pause(w.outage), func() { w.setSilent(c, false); w.tell("copy %d answers", c) })
	case w.partitions:
		w.tell("edge %d does not reach copy %d", e, c)
		w.cut[e][c] = true
		w.net.Schedule(w.pause(4*time.Second), func() { w.cut[e][c] = false })
	case w.forgetful && w.silent == [three]bool{}:
		if w.rnd.IntN(3) == 0 {
			w.restore[c] = w.stores[c].Snapshot()
			return
		}
		w.tell("the server of copy %d loses its power", c)
		w.setSilent(c, true)
		w.net.Schedule(restartMin+w.pause(3*time.Second), func() { w.restart(c, 1000) })
	}
}

// rush makes all edges try to take a log over at once, as when they notice together that its owner died.
func (w *world) rush(name string) {
	w.tell("all edges want %s", name)
	for _, e := range w.edges[:edges] {
		a := &actor{e: e, t: w.logs[name], once: true}
		w.net.Schedule(w.pause(2*time.Millisecond), func() { e.alive(a.begin) })
	}
}

// restart brings a server back that lost its newest writes, or everything, as soon as no other copy lacks
// anything. After so many attempts it comes back with all of them.
func (w *world) restart(c, attempts int) {
	switch {
	case attempts > 0 && !w.healed && !w.whole(c):
		w.net.Schedule(w.pause(5*time.Millisecond), func() { w.restart(c, attempts-1) })
		return
	case attempts > 0 && !w.healed:
		w.tell("copy %d forgot its newest writes", c)
		w.forgot++
		w.restore[c]()
		w.restore[c] = w.stores[c].Snapshot()
		w.notice(c)
	}
	w.setSilent(c, false)
	w.tell("copy %d answers", c)
}

// notice tells some edges that a copy forgot something, mostly soon.
func (w *world) notice(c int) {
	for _, e := range w.edges[:edges] {
		if w.rnd.IntN(4) > 0 {
			w.net.Schedule(w.pause(2*time.Second), func() {
				e.alive(func() { e.log.Forgot(c+1, func(string) bool { return true }) })
			})
		}
	}
}

// whole reports whether all copies but one have the same of each log: only then that one may
// forget something without harm.
func (w *world) whole(but int) bool {
	for _, name := range logNames {
		if !w.same(name, but, quorumlog.Dump) {
			return false
		}
	}
	return true
}

// same reports whether all copies of a log but one look the same.
func (w *world) same(name string, but int, look func([]sessionlog.Entry) string) bool {
	var all []string
	for c, s := range w.stores {
		if c != but {
			all = append(all, look(s.Entries(name)))
		}
	}
	return len(slices.Compact(all)) == 1
}

func (w *world) setSilent(c int, on bool) {
	w.silent[c] = on
	w.stores[c].SetSilent(on)
}

func (w *world) setLeaderless(on bool) {
	w.tell("reads are refused: %v", on)
	for _, s := range w.stores {
		s.Leaderless = on
	}
}

// until simulates until a time, or a problem.
func (w *world) until(end time.Duration) {
	for w.problem == "" && w.net.Elapsed() < end {
		w.net.Run(100 * time.Millisecond)
	}
}

func (w *world) run() {
	w.until(playTime)
	w.heal()
	before := map[string]int{}
	for name, t := range w.logs {
		before[name] = t.head
	}
	w.until(playTime + healTime)
	for name, t := range w.logs {
		if t.head == before[name] {
			w.stuck(name, "nothing was written for %v without faults", healTime)
		}
	}
	w.ending = true
	w.until(playTime + healTime + lastTime/2)
	last := w.start(edges)
	w.until(playTime + healTime + lastTime)
	for _, name := range logNames {
		w.judgeEnd(name, last)
	}
	for _, e := range w.edges {
		w.judgeAnswers(e)
		w.stats = sum(w.stats, e.log.Stats())
	}
}

func (w *world) heal() {
	w.tell("no more faults")
	w.healed = true
	w.setLeaderless(false)
	for c, s := range w.stores {
		s.Lost, s.Late, s.Busy = 0, 0, 0
		if w.silent[c] {
			w.setSilent(c, false)
		}
	}
	clear(w.cut[:])
}

// stuck reports a problem of a log, unless there is another one already.
func (w *world) stuck(name, format string, args ...any) {
	if w.problem != "" {
		return
	}
	w.fail(name+": "+format, args...)
}

// judgeEnd judges a log after two checkpoints without faults.
func (w *world) judgeEnd(name string, last *edge) {
	if last.checkpoints[name] < 2 {
		w.stuck(name, "%d checkpoints without faults, want 2", last.checkpoints[name])
	}
	if !w.same(name, -1, quorumlog.History) {
		w.stuck(name, "copies differ after a checkpoint")
	}
}

// judgeAnswers requires an answer to every request.
func (w *world) judgeAnswers(e *edge) {
	for r := range e.asked {
		if w.net.Elapsed()-r.began > r.most && w.problem == "" {
			w.fail("edge %d has no answer to a request of %v", e.i, r.began)
		}
	}
}

func sum(a, b quorumlog.Stats) quorumlog.Stats {
	a.Leads += b.Leads
	a.Superseded += b.Superseded
	a.WriteBacks += b.WriteBacks
	a.EndsKept += b.EndsKept
	a.Refused += b.Refused
	return a
}

func TestSimulation(t *testing.T) {
	from, n := *first, *seeds
	if *seed != 0 {
		from, n = *seed, 1
	}
	var stats quorumlog.Stats
	acks, forgot := 0, 0
	for s := from; s < from+uint64(n); s++ {
		w := newWorld(s, troubles[s%uint64(len(troubles))])
		w.run()
		acks, forgot, stats = acks+w.acks, forgot+w.forgot, sum(stats, w.stats)
		if w.problem != "" {
			t.Logf("repeat with: go test ./sessionlog/quorumlog -run TestSimulation -seed %d -story", s)
			t.Fatalf("seed %d (%s): %s", s, w.name, w.problem)
		}
	}
	t.Logf("%d seeds: %d writes, %d leads, %d superseded, %d write-backs, %d copies that forgot, %d ends kept", n, acks, stats.Leads, stats.Superseded, stats.WriteBacks, forgot, stats.EndsKept)
}
