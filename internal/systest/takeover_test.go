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
	takeoverSeeds = flag.Int("takeover-seeds", len(takeoverPlans), "number of seeds of TestTakeover; each seed has one of the plans, in turn")
	takeoverFirst = flag.Uint64("takeover-first", 1, "the first seed of TestTakeover")
)

// In a seed clients are busy for takeoverPlay, with faults, and then for takeoverHeal without.
const (
	takeoverPlay = 20 * time.Second
	takeoverHeal = 12 * time.Second

	takeoverStopMax = 10 * time.Second // an edge is stopped for less than this

	// takeoverProbe is how long an edge may take itself for the owner of a silent client if it
	// read an old log when it learned of the session's end: until its next probe, which has to
	// be written.
	takeoverProbe = 20 * time.Second

	takeoverFarewell = 30 * time.Second // a ConnectionClose counts after 2 s, unless the session moves meanwhile or an older datagram arrives after it

	takeoverEdges   = 3
	takeoverPlayers = 3
)

// The other edges take an edge for dead this long after its heartbeats stopped.
const (
	takeoverSilence = 400 * time.Millisecond
	takeoverJitter  = 100 * time.Millisecond
)

// A takeoverPlan says what may fail in a seed.
type takeoverPlan struct {
	name                           string
	kills, pauses, outages, drains bool
	pursuits                       bool    // drains, after which the edge that got the sessions is killed
	lost, late, busy, old          float64 // of the log
	lies, away                     float64 // of the affinity: wrong answers, and no answer
	spray                          float64 // probability that the balancer sends a datagram to any edge
	loss                           float64 // of the network, at most
	alone                          bool    // no forwarder
	cuts, cutRedis                 bool    // edges are cut off, and the affinity with them
	strict                         bool    // the balancer passes only answers of the edge to which it sends the client
	tracked                        bool    // the balancer tracks connections, and is strict
	carried                        bool    // clients come by a simulated carrier instead of the balancer
	breaks                         bool    // connections of carried clients break
	holders                        int     // relays that share the shards by leases; 0 for one without
	excused                        bool    // clients may be interrupted, because their limit of 3 s cannot be met
}

var takeoverPlans = []takeoverPlan{
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
	{name: "kill, strict", kills: true, loss: 0.02, strict: true},
	{name: "pause, strict", pauses: true, loss: 0.02, strict: true},
	{name: "drain, then kill, strict", drains: true, pursuits: true, loss: 0.02, strict: true},
	{name: "no fault", loss: 0.02},
	{name: "no fault or forwarder", alone: true, loss: 0.02},
}

// balancerAddr is the address that clients know.
var balancerAddr = netip.MustParseAddrPort("198.51.100.1:3413")

// A takeoverWorld is edges with durable sessions behind a balancer.
type takeoverWorld struct {
	*world
	takeoverPlan
	seed      uint64
	hostile   bool
	twin      *twin // nil unless the round is hostile and plays
	store     *memlog.Store
	claims    *memaffinity.Hub
	fence     *fence
	edges     []*takeoverEdge
	ring      *ring // of the relays that share the shards; nil for one without leases
	players   []*takeoverPlayer
	starts    int
	playing   bool // all clients have joined
	healed    bool
	healedAt  time.Duration
	muted     *takeoverEdge // its messages do not reach the game
	value     uint16
	herd      *herd         // nil in every second four seeds
	levers    *leverGame    // nil in every second two seeds
	disturbed time.Duration // when something last failed, or started

	errors []string
	takeoverOutcome
}

// A takeoverOutcome is what the test keeps of a world that was played. The world itself would
// take megabytes.
type takeoverOutcome struct {
	plan                                                      string
	killed, paused, drained, cutOffs, interrupted, excusedFor int
	sent, got, queued, answers                                int
	gaps                                                      []time.Duration
	fenced                                                    fenceCounts
}

func newTakeoverWorld(t *testing.T, seed uint64) *takeoverWorld {
	return newTakeoverWorldOf(t, seed, takeoverPlans[seed%uint64(len(takeoverPlans))])
}

func newTakeoverWorldOf(t *testing.T, seed uint64, plan takeoverPlan) *takeoverWorld {
	w := &takeoverWorld{world: newWorld(t, seed), seed: seed, takeoverPlan: plan}
	if w.herd = newHerd(w.world, seed); w.herd != nil {
		w.herd.bye = "" // clients count their messages
	}
	rnd := w.net.Rand()
	w.store = memlog.New(memlog.Config{Schedule: w.net.Schedule, Rand: rand.New(rand.NewPCG(seed, 5)), Lost: w.lost, Late: w.late, Busy: w.busy, Old: w.old, Elapsed: w.net.Elapsed})
	w.fence = newFence(w)
	w.store.Applied = w.fence.applied
	w.claims = memaffinity.New(w.net.Now)
	if w.holders > 0 {
		w.ring = ringIn(w.world, seed, w.holders)
	} else {
		w.startRelay()
	}
	loss := w.loss * rnd.Float64()
	w.net.SetPath(simnet.Path{Loss: loss, Delay: 5 * time.Millisecond, Jitter: 30 * time.Millisecond, Duplicate: loss / 2, Reorder: 0.01, ReorderBy: 60 * time.Millisecond})
	for i := range takeoverEdges {
		e := &takeoverEdge{w: w, name: fmt.Sprint("edge", i), heard: make(map[netip.AddrPort]time.Duration)}
		w.edges = append(w.edges, e)
		e.boot()
	}
	w.net.Attach(balancerAddr, takeoverBalancer{w})
	w.mustPublish("s", `{"op":"put","key":"tower","message":"T","values":[{"name":"n","type":"uint16","value":0}]}`)
	w.mustPublish("s", lampPut)
	if w.commands() {
		w.mustPublish("s", gatePut("read-write"))
	}
	if numbers(seed) {
		w.levers = newLeverGame(w.world)
		w.mustPublish("s", w.levers.put(lever, "read-write"))
	}
	behaviours := []dnptest.Behaviour{dnptest.Cpp(), dnptest.Java(), dnptest.Engine()}
	for i := range takeoverPlayers {
		w.players = append(w.players, newTakeoverPlayer(w, i, behaviours[(seed+uint64(i))%3]))
	}
	return w
}

// tell tells of something that happens to an edge or the log.
func (w *takeoverWorld) tell(format string, v ...any) {
	w.disturbed = w.net.Elapsed()
	w.print(format, v...)
}

func (w *takeoverWorld) failf(format string, v ...any) {
	w.print(format, v...)
	if len(w.errors) < 4 {
		w.errors = append(w.errors, fmt.Sprintf("at %v: ", w.net.Elapsed())+fmt.Sprintf(format, v...))
	}
}

// play runs the seed and returns the failures.
func (w *takeoverWorld) play() []string {
	w.playing = true
	if w.levers != nil {
		w.hub.Jitter = time.Duration(w.seed>>2%3) * 30 * time.Millisecond // replicas of edges differ, and answers overtake batches
	}
	if w.hostile {
		w.twin = newTwin(w.world, w.seed, w.doors)
	}
	for _, p := range w.players {
		p.begin()
	}
	w.net.Every(100*time.Millisecond, func() bool {
		w.value++
		w.fire("s", fmt.Sprintf(`{"op":"set","key":"tower","values":{"n":%d}}`, w.value))
		return !w.healed
	})
	w.herd.graze(func() bool { return w.healed })
	if w.commands() {
		w.playGate()
	}
	w.playLever()
	start := w.net.Elapsed()
	var next func()
	next = func() {
		if w.net.Elapsed()-start < takeoverPlay {
			w.trouble()
			w.net.Schedule(time.Duration(2000+w.net.Rand().IntN(3000))*time.Millisecond, next)
		}
	}
	w.net.Schedule(2*time.Second, next)
	w.net.Run(takeoverPlay)
	w.heal()
	w.net.Run(takeoverHeal)
	if w.cuts {
		w.net.Run(cutHeal)
	}
	w.final()
	w.twin.check(w.T)
	return w.errors
}

// trouble injects one fault.
func (w *takeoverWorld) trouble() {
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
		kinds = append(kinds, func() {
			e.pause(time.Duration(100+rnd.IntN(int(takeoverStopMax/time.Millisecond)-100)) * time.Millisecond)
		})
	}
	if w.drains {
		kinds = append(kinds, e.drain)
	}
	if w.pursuits {
		kinds = append(kinds, func() { w.pursue(w.players[rnd.IntN(takeoverPlayers-1)]) })
	}
	if w.cuts {
		kinds = append(kinds, func() { e.cutOff(cutTime(rnd)) })
	}
	if w.outages {
		kinds = append(kinds, func() {
			w.tell("the log falls silent")
			w.store.SetSilent(true)
			w.net.Schedule(time.Duration(4000+rnd.IntN(5000))*time.Millisecond, func() { w.store.SetSilent(false); w.tell("the log answers") })
		})
	}
	if w.breaks {
		kinds = append(kinds, w.players[rnd.IntN(len(w.players))].breaks)
	}
	if len(kinds) > 0 {
		kinds[rnd.IntN(len(kinds))]()
	}
}

// pursue drains the edge of a client that is sent many messages at that moment, and kills the
// edge that takes over, perhaps before it has sent everything that the first one left.
func (w *takeoverWorld) pursue(p *takeoverPlayer) {
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

// heal ends all faults, so that everything that is due must happen.
func (w *takeoverWorld) heal() {
	w.healed, w.healedAt, w.disturbed = true, w.net.Elapsed(), w.net.Elapsed()
	w.store.SetSilent(false)
	w.store.Lost, w.store.Late, w.store.Busy, w.store.Old = 0, 0, 0, 0
	w.lies, w.away = 0, 0
	for _, e := range w.edges {
		e.resume()
		if e.cut.active {
			e.mend()
		}
	}
	w.net.SetPath(simnet.Path{Delay: 5 * time.Millisecond, Jitter: 10 * time.Millisecond})
}

// spare reports whether e may fail because another edge serves.
func (w *takeoverWorld) spare(e *takeoverEdge) bool {
	return e.well() && slices.ContainsFunc(w.edges, func(o *takeoverEdge) bool { return o != e && o.well() })
}

// tellRoster gives every edge the roster of those that seem to live.
func (w *takeoverWorld) tellRoster() {
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
			e.edge.SetRoster(e.cut.roster(e, roster))
		}
	}
}

// final judges the outcome when everything had time to happen.
func (w *takeoverWorld) final() {
	w.herd.rest()
	for _, p := range w.players {
		w.sent += p.said
		w.got += p.got
		w.queued += p.heard
		if !p.frozen {
			p.judge()
			for _, problem := range w.herd.check(p, "") {
				w.failf("player %d: %s", p.index, problem)
			}
		}
	}
	stayed := slices.DeleteFunc(slices.Clone(w.players), func(p *takeoverPlayer) bool { return p.frozen })
	for _, p := range stayed {
		if p.numbered != nil { // so that it leaves while it writes
			p.writeNext()
			w.net.Run(time.Duration(w.net.Rand().IntN(60)) * time.Millisecond)
		}
		p.frozen = true
		p.Close(w.net.Now())
		w.net.Wake(p.addr)
	}
	w.net.Run(takeoverFarewell)
	for _, p := range stayed {
		p.judgeEnd()
	}
}

// playSeeds plays n seeds, or those before the first failure, and returns what came out.
func playSeeds(t *testing.T, n int, plans []takeoverPlan) (all []takeoverOutcome) {
	t.Helper()
	for s := *takeoverFirst; s < *takeoverFirst+uint64(n) && !t.Failed(); s++ {
		w := newTakeoverWorldOf(t, s, plans[s%uint64(len(plans))])
		w.hostile = isHostile((s - 1) / uint64(len(plans))) // so that each plan is played with and without a twin
		for _, e := range w.play() {
			t.Errorf("seed %d (%s): %s", s, w.name, e)
		}
		w.plan, w.fenced = w.name, w.fence.seen
		if all = append(all, w.takeoverOutcome); t.Failed() {
			t.Logf("repeat with -takeover-first %d -takeover-seeds 1 -story", s)
		}
	}
	return all
}

// TestTakeover plays clients whose edges are killed, stopped and drained, with a log and an
// affinity that misbehave. No message may be lost, doubled or out of order, and no client
// interrupted whose timer can be met.
func TestTakeover(t *testing.T) {
	all := playSeeds(t, *takeoverSeeds, takeoverPlans)
	var fenced fenceCounts
	for _, w := range all {
		fenced.add(w.fenced)
	}
	table := "\n"
	for _, plan := range takeoverPlans {
		var n, killed, paused, drained, interrupted, excused, sent, got, queued, answers int
		var gaps []time.Duration
		for _, w := range all {
			if w.plan == plan.name {
				n, killed, paused, drained, interrupted = n+1, killed+w.killed, paused+w.paused, drained+w.drained, interrupted+w.interrupted
				excused, sent, got, queued, answers = excused+w.excusedFor, sent+w.sent, got+w.got, queued+w.queued, answers+w.answers
				gaps = append(gaps, w.gaps...)
			}
		}
		slices.Sort(gaps)
		p50, worst := time.Duration(0), time.Duration(0)
		if len(gaps) > 0 {
			p50, worst = gaps[len(gaps)/2].Round(time.Millisecond), gaps[len(gaps)-1].Round(time.Millisecond)
		}
		table += fmt.Sprintf("%-24s %3d seeds, %3d kills, %3d stops, %3d drains: %d clients interrupted, %d of the interruptions excused; %5d messages in, %5d and %5d out, %5d answers; gap p50 %v, worst %v\n",
			plan.name, n, killed, paused, drained, interrupted, excused, sent, got, queued, answers, p50, worst)
	}
	t.Log(table + fenced.String())
}

// A balancer that tracks connections, such as kube-proxy, passes only answers of the edge to
// which it sends a client. An edge that sends to a client that never came there leaves an entry
// for the pair of addresses. When the balancer moves the client to that edge, the entry is
// taken: the client gets another port, and no edge knows it.
var trackedPlans = []takeoverPlan{
	{name: "tracked, drain", drains: true, loss: 0.02, strict: true, tracked: true},
	{name: "tracked, kill", kills: true, drains: true, loss: 0.02, strict: true, tracked: true},
	{name: "tracked, lies", drains: true, lies: 0.1, loss: 0.01, strict: true, tracked: true},
}

// takeoverLeave is how long clients go on sending after the last fault: draining edges are gone
// then. Behind such a balancer no edge can send to a client that has been silent since its edge
// left.
const takeoverLeave = 6 * time.Second

// tracks judges a datagram that leaves for a client.
func (k *takeoverWorker) tracks(to netip.AddrPort, b []byte) {
	if w := k.e.w; w.tracked && k.e.heard[to] == 0 {
		w.failf("%s sends % x to player %d, which never came there", k.e.name, b[:min(len(b), 8)], w.player(to).index)
	}
}

// rerouted makes a strict balancer send the clients of a draining edge to other edges, from their
// next datagrams on.
func (e *takeoverEdge) rerouted() {
	for _, p := range e.w.players {
		if o := e.w.living(); p.route == e && o != e && !o.draining {
			p.next = o
		}
	}
}

// TestTakeoverTracked plays clients behind such a balancer, which moves them at any time of the
// drains of their edges. No edge may send to a client that never came to it; everything else is
// as in TestTakeover. It plays a tenth as many seeds.
func TestTakeoverTracked(t *testing.T) {
	playSeeds(t, max(*takeoverSeeds/10, min(*takeoverSeeds, 2*len(trackedPlans))), trackedPlans)
}
