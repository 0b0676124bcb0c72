package sessionlog_test

import (
	"flag"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/internal/simnet"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/sessionlog/memlog"
)

var (
	seed  = flag.Uint64("seed", 0, "the one seed to simulate; 0 means -seeds of them from -first on")
	first = flag.Uint64("first", 1, "the first seed to simulate")
	seeds = flag.Int("seeds", 60, "how many seeds to simulate")
	story = flag.Bool("story", false, "print what happens")
)

// A seed simulates busy clients for playTime, with faults, and then healTime without.
const (
	playTime = 30 * time.Second
	healTime = 20 * time.Second
)

const (
	edgesMax  = 3
	statesMax = 4

	// A silent edge counts as dead after 400 ms and up to one of its heartbeats, which come every
	// 100 ms. The balancer takes as long to send elsewhere.
	detectMin    = 400 * time.Millisecond
	detectJitter = 100 * time.Millisecond
)

var vip = netip.MustParseAddrPort("198.51.100.1:3413")

// A plan says which faults a seed may have.
type plan struct {
	name                          string
	kills, pauses, outages, hands bool
	lost, late, busy, old, torn   float64 // of the log
	lies                          float64 // probability that the affinity is wrong
	loss                          float64 // of the network, at most
	excused                       bool    // clients may be interrupted: their own timer of 3 s cannot be met
	deaf                          bool    // edges that go on do not notice that they were stopped
	newer                         bool    // the last edge is of the next release and writes a format that the others do not read
}

var plans = []plan{
	{name: "kill", kills: true, loss: 0.02},
	{name: "pause", pauses: true, loss: 0.02},
	{name: "pause unnoticed", pauses: true, loss: 0.02, deaf: true},
	{name: "unsure log", kills: true, lost: 0.02, late: 0.01, busy: 0.05, old: 0.05, torn: 0.1, loss: 0.01},
	{name: "hand over", hands: true, loss: 0.02},
	{name: "lies", kills: true, hands: true, lies: 0.1, loss: 0.01},
	{name: "loss", kills: true, loss: 0.3, excused: true},
	{name: "outage", outages: true, lost: 0.02, late: 0.05, loss: 0.02, excused: true},
	{name: "everything", kills: true, pauses: true, outages: true, hands: true, lost: 0.02, late: 0.02, busy: 0.05, old: 0.05, torn: 0.05, lies: 0.05, loss: 0.05, excused: true},
}

// A world has edges behind a balancer, their log, clients and a game.
type world struct {
	plan
	net     *simnet.Net
	store   *memlog.Store
	copies  []*memlog.Store // of the log, in place of store; see TestQuorum
	edges   []*simEdge
	clients []*simClient
	chk     *checker
	values  [statesMax]uint32
	healed  bool

	brokenTill time.Duration // until then, no other copy fails
	empty      [3]func()     // has a copy forget everything
	emptied    int           // copies that forgot everything
}

func newWorld(seed uint64) *world { return newWorldOf(seed, plans[seed%uint64(len(plans))]) }

func newWorldOf(seed uint64, p plan) *world {
	w := &world{net: simnet.New(seed), plan: p}
	w.chk = newChecker(w)
	rnd := w.net.Rand()
	w.store = memlog.New(memlog.Config{
		Schedule: w.net.Schedule, Rand: rnd, Lost: w.lost, Late: w.late, Busy: w.busy, Old: w.old, Torn: w.torn, Elapsed: w.net.Elapsed,
		Applied: func(log string, e sessionlog.Entry) { w.chk.applied(log, inFormat(1, []sessionlog.Entry{e})[0]) },
	})
	loss := w.loss * rnd.Float64()
	w.net.SetPath(simnet.Path{Loss: loss, Delay: 5 * time.Millisecond, Jitter: 40 * time.Millisecond, Duplicate: loss / 2, Reorder: 0.01, ReorderBy: 80 * time.Millisecond})
	w.net.Attach(vip, front{w})
	for i := range edgesMax {
		e := &simEdge{w: w, index: i}
		w.edges = append(w.edges, e)
		e.boot()
	}
	behaviours := []dnptest.Behaviour{dnptest.Cpp(), dnptest.Java(), dnptest.Engine()}
	for i := range 2 {
		start := uint64(0)
		if rnd.IntN(3) == 0 {
			start = 65535 - uint64(rnd.IntN(400)) // the numbers wrap during the play
		}
		w.clients = append(w.clients, newClient(w, i, behaviours[(seed+uint64(i))%3], start))
	}
	return w
}

func (w *world) tell(format string, v ...any) {
	if *story {
		fmt.Printf("%v ", w.net.Elapsed())
		fmt.Printf(format+"\n", v...)
	}
}

// run simulates the whole seed and returns the violations.
func (w *world) run() []string {
	for _, c := range w.clients {
		c.begin()
	}
	w.net.Every(100*time.Millisecond, func() bool {
		w.values[w.net.Rand().IntN(statesMax)]++
		for _, e := range w.edges {
			e.run(func() { e.update() })
		}
		return w.net.Elapsed() < playTime+healTime/2
	})
	var next func()
	next = func() {
		if w.net.Elapsed() < playTime {
			w.trouble()
			w.net.Schedule(time.Duration(2000+w.net.Rand().IntN(3000))*time.Millisecond, next)
		}
	}
	w.net.Schedule(2*time.Second, next)
	w.net.Run(playTime)
	w.heal()
	w.net.Run(healTime)
	w.chk.final()
	return w.chk.errors
}

// trouble causes one fault.
func (w *world) trouble() {
	rnd := w.net.Rand()
	var kinds []func()
	e := w.edges[rnd.IntN(edgesMax)]
	if c := w.clients[rnd.IntN(len(w.clients))]; c.owner != nil && rnd.IntN(4) > 0 {
		e = c.owner
	}
	if w.kills {
		kinds = append(kinds, e.kill)
	}
	if w.pauses {
		kinds = append(kinds, func() { e.pause(time.Duration(100+rnd.IntN(9900)) * time.Millisecond) })
	}
	if w.outages {
		kinds = append(kinds, func() {
			w.tell("the log falls silent")
			w.store.SetSilent(true)
			w.net.Schedule(time.Duration(4000+rnd.IntN(5000))*time.Millisecond, func() { w.store.SetSilent(false); w.tell("the log answers") })
		})
	}
	if w.hands {
		kinds = append(kinds, e.drain)
	}
	if c := w.clients[rnd.IntN(len(w.clients))]; w.lies > 0 && c.start == 0 && c.owner != nil {
		kinds = append(kinds, func() { w.misroute(c) })
	}
	if w.newer && e.newer() {
		return // the others could not serve its clients
	}
	if w.copies != nil {
		kinds = append(kinds, w.breakCopy)
	}
	kinds[rnd.IntN(len(kinds))]()
}

// misroute brings an old request of a client to an edge that does not have its session, and for a while
// some of its other datagrams: acknowledgements that prove its address there, because clients acknowledge
// old numbers.
func (w *world) misroute(c *simClient) {
	if c.misrouted = w.living(c.owner); c.misrouted == c.owner {
		c.misrouted = nil
		return
	}
	w.tell("an old request of client %d reaches %s", c.index, c.misrouted.name())
	c.misroutedTill = w.net.Elapsed() + 400*time.Millisecond
	c.misrouted.greet(c, []byte{0, 1, 0, 0, 0})
}

// heal ends all faults, so that everything that is due must happen.
func (w *world) heal() {
	w.healed = true
	w.store.SetSilent(false)
	w.store.Lost, w.store.Late, w.store.Busy, w.store.Old, w.store.Torn = 0, 0, 0, 0, 0
	w.lies = 0
	w.healCopies()
	for _, e := range w.edges {
		e.resume()
	}
	w.net.SetPath(simnet.Path{Delay: 5 * time.Millisecond, Jitter: 10 * time.Millisecond})
}

func TestSimulation(t *testing.T) {
	first, count := *first, uint64(*seeds)
	if *seed != 0 {
		first, count = *seed, 1
	}
	var sum tally
	for s := first; s < first+count; s++ {
		w := newWorld(s)
		for _, e := range w.run() {
			t.Errorf("seed %d (%s): %s", s, w.name, e)
		}
		sum.add(w)
		if t.Failed() && s > first+40 {
			break
		}
	}
	t.Log(sum.String())
}

// A tally sums up the seeds.
type tally struct {
	seeds, kills, pauses, hands, adoptions, fenced         int
	in, out, appends, reads, bytes, interruptions, excused int
	gaps, handGaps                                         []time.Duration
	plans                                                  [16]struct{ seeds, kills, pauses, hands, clients, ended int }
}

func (s *tally) add(w *world) {
	c := w.chk
	s.seeds++
	s.kills += c.kills
	s.pauses += c.pauses
	s.hands += c.hands
	s.adoptions += c.adoptions
	s.fenced += c.fenced
	for _, p := range w.clients {
		s.in += len(p.consumed)
		s.out += p.got
	}
	s.appends += w.store.Appends
	s.reads += w.store.Reads
	s.bytes += w.store.Bytes
	s.interruptions += c.interrupted
	s.excused += c.excusedCount
	for i := range plans {
		if p := &s.plans[i]; plans[i].name == w.name {
			p.seeds++
			p.kills += c.kills
			p.pauses += c.pauses
			p.hands += c.hands
			p.clients += len(w.clients)
			p.ended += c.interrupted + c.excusedCount
		}
	}
	if !w.excused {
		s.gaps = append(s.gaps, c.gaps...)
		s.handGaps = append(s.handGaps, c.handGaps...)
	}
}

func (s *tally) String() string {
	table := "\n"
	for i, p := range s.plans[:len(plans)] {
		table += fmt.Sprintf("%-16s %4d seeds, %4d clients, %4d kills, %4d pauses, %4d hand-overs: %d clients interrupted\n", plans[i].name, p.seeds, p.clients, p.kills, p.pauses, p.hands, p.ended)
	}
	return table + fmt.Sprintf("%d seeds: %d kills of owners, %d pauses, %d hand-overs, %d adoptions, %d fenced; %d messages in, %d out; %d interruptions without an excuse, %d with one\n"+
		"service gap after a kill (detection %v to %v included): %s; after a hand-over: %s\n%.2f appends, %.3f reads and %.0f bytes of log per message",
		s.seeds, s.kills, s.pauses, s.hands, s.adoptions, s.fenced, s.in, s.out, s.interruptions, s.excused,
		detectMin, detectMin+detectJitter, quantiles(s.gaps), quantiles(s.handGaps),
		float64(s.appends)/float64(s.in+s.out+1), float64(s.reads)/float64(s.in+s.out+1), float64(s.bytes)/float64(s.in+s.out+1))
}

func quantiles(d []time.Duration) string {
	if len(d) == 0 {
		return "none"
	}
	slices.Sort(d)
	return fmt.Sprintf("p50 %v p99 %v worst %v of %d", d[len(d)/2].Round(time.Millisecond), d[len(d)*99/100].Round(time.Millisecond), d[len(d)-1].Round(time.Millisecond), len(d))
}
