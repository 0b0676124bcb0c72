package systest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/memaffinity"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/internal/simnet"
	"github.com/dnprelay/dnprelay/sessionlog/memlog"
)

var (
	keepSeeds = flag.Int("keep-seeds", len(keepPlans), "seeds of TestKeep, one kind of trouble after the other")
	keepFirst = flag.Uint64("keep-first", 1, "the first of them")
	keepStory = flag.Bool("keep-story", false, "print what happens")
)

// A seed has clients that are busy for keepPlay, with trouble, and then keepHeal without.
const (
	keepPlay = 20 * time.Second
	keepHeal = 12 * time.Second

	// keepProbe is how long an edge may take itself for the owner of a client that says
	// nothing, if it was told of its end and read an old log then: until its next probe,
	// which has to be written.
	keepProbe = 20 * time.Second

	keepFarewell = 30 * time.Second // a ConnectionClose counts after 2 s, unless the session moves meanwhile, or an older datagram comes behind

	keepEdges   = 3
	keepPlayers = 3
)

// What the others notice of an edge that is silent: heart beats stop at once, and after so
// long it counts as dead.
const (
	keepSilence = 400 * time.Millisecond
	keepJitter  = 100 * time.Millisecond
)

// A keepPlan is what may go wrong in a seed.
type keepPlan struct {
	name                           string
	kills, pauses, outages, drains bool
	pursuits                       bool    // drains, after which who got the sessions is killed
	lost, late, busy, old          float64 // of the log
	lies, away                     float64 // of the affinity: wrong answers, none
	spray                          float64 // probability that the balancer sends anywhere
	loss                           float64 // of the network, most
	alone                          bool    // no forwarder
	tracked                        bool    // the balancer tracks connections
	excused                        bool    // clients may be interrupted, because their 3 s cannot be met
}

var keepPlans = []keepPlan{
	{name: "kill", kills: true, loss: 0.02},
	{name: "pause", pauses: true, loss: 0.02},
	{name: "unsure log", kills: true, lost: 0.02, late: 0.01, busy: 0.05, old: 0.05, loss: 0.01},
	{name: "drain", drains: true, loss: 0.02},
	{name: "drain, then kill", pursuits: true, loss: 0.02},
	{name: "drain under a sprayer", drains: true, spray: 0.3, loss: 0.01},
	{name: "sprayed", kills: true, spray: 1, loss: 0.01},
	{name: "lies", kills: true, drains: true, lies: 0.1, loss: 0.01},
	{name: "no affinity", kills: true, away: 1, loss: 0.01},
	{name: "no forwarder", kills: true, alone: true, loss: 0.01},
	{name: "outage", outages: true, lost: 0.02, late: 0.05, loss: 0.02, excused: true},
	{name: "everything", kills: true, pauses: true, outages: true, drains: true, pursuits: true, lost: 0.02, late: 0.02, busy: 0.05, old: 0.05, lies: 0.05,
		away: 0.05, spray: 0.1, loss: 0.05, excused: true},
}

// keepVIP is the address that clients know.
var keepVIP = netip.MustParseAddrPort("198.51.100.1:3413")

// A keepWorld is edges that keep their sessions in a log, behind a balancer.
type keepWorld struct {
	*world
	keepPlan
	store    *memlog.Store
	claims   *memaffinity.Hub
	fence    *fence
	edges    []*keepEdge
	players  []*keepPlayer
	starts   int
	playing  bool // all clients have joined
	strict   bool // the balancer lets only answers of the edge through that it sends a client to
	healed   bool
	healedAt time.Duration
	unheard  *keepEdge // whose messages do not get to the game
	value    uint16

	errors                                           []string
	killed, paused, drained, interrupted, excusedFor int
	sent, got, queued                                int
	gaps                                             []time.Duration
}

func newKeepWorld(t *testing.T, seed uint64) *keepWorld {
	return newKeepWorldOf(t, seed, keepPlans[seed%uint64(len(keepPlans))])
}

func newKeepWorldOf(t *testing.T, seed uint64, plan keepPlan) *keepWorld {
	w := &keepWorld{world: newWorld(t, seed), keepPlan: plan, strict: plan.tracked}
	rnd := w.net.Rand()
	w.store = memlog.New(memlog.Config{Schedule: w.net.Schedule, Rand: rand.New(rand.NewPCG(seed, 5)), Lost: w.lost, Late: w.late, Busy: w.busy, Old: w.old, Elapsed: w.net.Elapsed})
	w.fence = newFence(w)
	w.store.Applied = w.fence.applied
	w.claims = memaffinity.New(w.net.Now)
	w.startRelay()
	loss := w.loss * rnd.Float64()
	w.net.SetDefault(simnet.Path{Loss: loss, Delay: 5 * time.Millisecond, Jitter: 30 * time.Millisecond, Duplicate: loss / 2, Reorder: 0.01, ReorderBy: 60 * time.Millisecond})
	for i := range keepEdges {
		e := &keepEdge{w: w, name: fmt.Sprint("edge", i), heard: make(map[netip.AddrPort]bool)}
		w.edges = append(w.edges, e)
		e.boot()
	}
	w.net.Attach(keepVIP, keepFront{w})
	w.mustPublish("s", `{"op":"put","key":"tower","message":"T","values":[{"name":"n","type":"uint16","value":0}]}`)
	w.mustPublish("s", lampPut)
	behaviours := []dnptest.Behaviour{dnptest.Cpp(), dnptest.Java(), dnptest.Engine()}
	for i := range keepPlayers {
		w.players = append(w.players, newKeepPlayer(w, i, behaviours[(seed+uint64(i))%3]))
	}
	return w
}

func (w *keepWorld) tell(format string, v ...any) {
	if *keepStory {
		fmt.Printf("%v ", w.net.Elapsed())
		fmt.Printf(format+"\n", v...)
	}
}

func (w *keepWorld) failf(format string, v ...any) {
	w.tell(format, v...)
	if len(w.errors) < 4 {
		w.errors = append(w.errors, fmt.Sprintf("at %v: ", w.net.Elapsed())+fmt.Sprintf(format, v...))
	}
}

// play runs the seed and returns what went wrong.
func (w *keepWorld) play() []string {
	w.playing = true
	for _, p := range w.players {
		p.begin()
	}
	w.net.Every(100*time.Millisecond, func() bool {
		w.value++
		w.fire("s", fmt.Sprintf(`{"op":"set","key":"tower","values":{"n":%d}}`, w.value))
		return !w.healed
	})
	start := w.net.Elapsed()
	var next func()
	next = func() {
		if w.net.Elapsed()-start < keepPlay {
			w.trouble()
			w.net.Schedule(time.Duration(2000+w.net.Rand().IntN(3000))*time.Millisecond, next)
		}
	}
	w.net.Schedule(2*time.Second, next)
	w.net.Run(keepPlay)
	w.heal()
	w.net.Run(keepHeal)
	w.final()
	return w.errors
}

// trouble lets one thing go wrong.
func (w *keepWorld) trouble() {
	rnd := w.net.Rand()
	e := w.edges[rnd.IntN(len(w.edges))]
	if p := w.players[rnd.IntN(len(w.players))]; p.owner() != nil && rnd.IntN(4) > 0 {
		e = p.owner()
	}
	var kinds []func()
	if w.kills {
		kinds = append(kinds, e.kill)
	}
	if w.pauses {
		kinds = append(kinds, func() { e.pause(time.Duration(100+rnd.IntN(9900)) * time.Millisecond) })
	}
	if w.drains {
		kinds = append(kinds, e.drain)
	}
	if w.pursuits {
		kinds = append(kinds, func() { w.pursue(w.players[rnd.IntN(keepPlayers-1)]) })
	}
	if w.outages {
		kinds = append(kinds, func() {
			w.tell("the log falls silent")
			w.store.SetSilent(true)
			w.net.Schedule(time.Duration(4000+rnd.IntN(5000))*time.Millisecond, func() { w.store.SetSilent(false); w.tell("the log answers") })
		})
	}
	kinds[rnd.IntN(len(kinds))]()
}

// pursue drains the edge of a client that is told a lot just then, and kills the edge
// that goes on, maybe before it has said all that the first one left to it.
func (w *keepWorld) pursue(p *keepPlayer) {
	first := p.owner()
	if first == nil || !w.spare(first) {
		return
	}
	w.net.Schedule(time.Duration(w.net.Rand().IntN(120))*time.Millisecond, p.burst)
	first.drain()
	w.net.Schedule(time.Duration(100+w.net.Rand().IntN(400))*time.Millisecond, func() {
		if next := p.owner(); next != nil && next != first {
			next.kill()
		}
	})
}

// heal ends everything that is wrong, so that all that is due must happen.
func (w *keepWorld) heal() {
	w.healed, w.healedAt = true, w.net.Elapsed()
	w.store.SetSilent(false)
	w.store.Lost, w.store.Late, w.store.Busy, w.store.Old = 0, 0, 0, 0
	w.lies, w.away = 0, 0
	for _, e := range w.edges {
		e.resume()
	}
	w.net.SetDefault(simnet.Path{Delay: 5 * time.Millisecond, Jitter: 10 * time.Millisecond})
}

// spare reports whether e may fail: another edge goes on.
func (w *keepWorld) spare(e *keepEdge) bool {
	return e.well() && slices.ContainsFunc(w.edges, func(o *keepEdge) bool { return o != e && o.well() })
}

// tellRoster tells every edge who seems to be there.
func (w *keepWorld) tellRoster() {
	var members []cluster.Member
	for _, e := range w.edges {
		if e.dead {
			continue
		}
		phase := cluster.PhaseReady
		if e.draining {
			phase = cluster.PhaseDraining
		}
		members = append(members, cluster.Member{Name: e.name, Role: cluster.RoleEdge, Phase: phase, Incarnation: uint64(e.start)})
	}
	roster := cluster.NewRoster(members)
	for _, e := range w.edges {
		if e.alive {
			e.edge.SetRoster(roster)
		}
	}
}

// final judges what there is when everything had time to happen.
func (w *keepWorld) final() {
	for _, p := range w.players {
		w.sent += p.said
		w.got += p.got
		w.queued += p.heard
		if !p.frozen {
			p.judge()
		}
	}
	stayed := slices.DeleteFunc(slices.Clone(w.players), func(p *keepPlayer) bool { return p.frozen })
	for _, p := range stayed {
		p.frozen = true
		p.Close(w.net.Now())
		w.net.Wake(p.addr)
	}
	w.net.Run(keepFarewell)
	for _, p := range stayed {
		p.judgeEnd()
	}
}

// TestKeep plays clients whose edges are killed, stopped and drained, with a log and an
// affinity that misbehave. Nothing may be lost, doubled or out of order, and no client
// interrupted where its own timer can be met.
func TestKeep(t *testing.T) {
	var all []*keepWorld
	for s := *keepFirst; s < *keepFirst+uint64(*keepSeeds); s++ {
		w := newKeepWorld(t, s)
		for _, e := range w.play() {
			t.Errorf("seed %d (%s): %s", s, w.name, e)
		}
		if all = append(all, w); t.Failed() {
			t.Logf("repeat with -keep-first %d -keep-seeds 1 -keep-story", s)
			break
		}
	}
	var fenced fenceCounts
	for _, w := range all {
		fenced.add(w.fence.seen)
	}
	table := "\n"
	for _, plan := range keepPlans {
		var n, killed, paused, drained, interrupted, excused, sent, got, queued int
		var gaps []time.Duration
		for _, w := range all {
			if w.name == plan.name {
				n, killed, paused, drained, interrupted = n+1, killed+w.killed, paused+w.paused, drained+w.drained, interrupted+w.interrupted
				excused, sent, got, queued = excused+w.excusedFor, sent+w.sent, got+w.got, queued+w.queued
				gaps = append(gaps, w.gaps...)
			}
		}
		slices.Sort(gaps)
		p50, worst := time.Duration(0), time.Duration(0)
		if len(gaps) > 0 {
			p50, worst = gaps[len(gaps)/2].Round(time.Millisecond), gaps[len(gaps)-1].Round(time.Millisecond)
		}
		table += fmt.Sprintf("%-22s %3d seeds, %3d kills, %3d stops, %3d drains: %d clients interrupted, %d that are excused; %5d messages in, %5d and %5d out; gap p50 %v, worst %v\n",
			plan.name, n, killed, paused, drained, interrupted, excused, sent, got, queued, p50, worst)
	}
	t.Log(table + fenced.String())
}
