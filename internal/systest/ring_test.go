package systest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/relay"
	"github.com/dnprelay/dnprelay/replication"
)

// detection is how long gossip takes to notice a death.
const detection = time.Second

// A ring is relays that share the shards by leases.
type ring struct {
	*world
	leases *leaseHub
	relays []*simRelay
	edges  []*simEdge // those that the audit checks
	starts int
	cuts   map[[2]string]bool // relay's name on the bus, edge
	healed bool

	idleUntil time.Time // nothing is published until then
	audit     *audit
}

// newRing starts n relays and waits until every shard is held.
func newRing(t *testing.T, seed uint64, n int) *ring {
	return ringIn(newWorld(t, seed), seed, n)
}

func ringIn(w *world, seed uint64, n int) *ring {
	g := &ring{world: w, cuts: make(map[[2]string]bool), leases: newLeaseHub(leaseConfig{
		Schedule: w.net.Schedule, Now: w.net.Now, Rand: rand.New(rand.NewPCG(seed, 3)),
	})}
	g.audit = newAudit(g)
	for i := range n {
		r := &simRelay{name: fmt.Sprintf("relay%d", i+1)}
		g.relays = append(g.relays, r)
		g.start(r)
	}
	g.tell()
	g.net.Run(2 * time.Second)
	return g
}

// start starts a relay, or restarts a dead one.
func (g *ring) start(r *simRelay) {
	g.starts++
	r.dead, r.paused, r.leaves, r.stuck, r.apart, r.asleep = false, false, false, false, false, nil
	r.leases = g.leases.Node(r.name, fmt.Sprintf("start%d", g.starts), simShards)
	g.world.run(r, fmt.Sprintf("%s.%d", r.name, g.starts), func(*relay.Config) {})
}

// tell gives every relay the roster of those that seem to live.
func (g *ring) tell() {
	var members []cluster.Member
	for _, r := range g.relays {
		if !r.dead && !r.paused && !r.leaves && !r.stuck && !r.apart {
			members = append(members, cluster.Member{
				Name: r.name, Role: cluster.RoleRelay, Phase: cluster.PhaseReady, Shards: simShards, Incarnation: 1,
			})
		}
	}
	roster := cluster.NewRoster(members)
	for _, r := range g.relays {
		if !r.dead {
			r.relay.SetRoster(roster)
		}
	}
}

// holder returns the relay that holds a space according to the durable store.
func (g *ring) holder(space string) *simRelay {
	name := g.held(space)
	i := slices.IndexFunc(g.relays, func(r *simRelay) bool { return r.name == name })
	if i < 0 {
		g.Fatalf("no relay holds space %s", space)
	}
	return g.relays[i]
}

// held returns the name of the relay that holds a space, or "".
func (g *ring) held(space string) string { return g.leases.Holder(cluster.Shard(space, simShards)) }

// authority returns the running relay that holds the audited space and its store: the durable
// store names the relay, and it serves in that epoch.
func (g *ring) authority() (*simRelay, *replication.Store) {
	name := g.held(audited)
	for _, r := range g.relays {
		if r.name != name || r.dead || r.paused || r.stuck {
			continue
		}
		if s := r.store(audited); s != nil {
			if epoch, _ := s.Position(); epoch == g.leases.Epoch(cluster.Shard(audited, simShards)) {
				return r, s
			}
		}
	}
	return nil, nil
}

// store returns the store of a space that the relay serves, or nil.
func (r *simRelay) store(space string) *replication.Store {
	for _, l := range r.relay.Workers() {
		if s := l.Store(space); s != nil {
			return s
		}
	}
	return nil
}

// die kills a relay; the others notice after a while.
func (g *ring) die(r *simRelay) {
	r.kill()
	g.net.Schedule(detection, g.tell)
}

// pause stops a relay's process; wake resumes it.
func (g *ring) pause(r *simRelay) {
	r.paused = true
	r.leases.Pause(true)
	g.net.Schedule(detection, g.tell)
}

func (g *ring) wake(r *simRelay) {
	if !r.paused || r.dead {
		return
	}
	r.paused = false
	asleep := r.asleep
	r.asleep = nil
	for _, turn := range asleep {
		turn()
	}
	r.leases.Pause(false)
	g.net.Schedule(detection, g.tell)
}

// drain makes a relay leave in order: the others learn of it first.
func (g *ring) drain(r *simRelay) {
	r.leaves = true
	g.net.Schedule(200*time.Millisecond, g.tell)
	process := r.relay
	g.net.Schedule(500*time.Millisecond, func() {
		if !r.dead && r.relay == process {
			process.Drain()
		}
	})
}

// A counter publishes a number that counts up, and records when it was accepted.
type counter struct {
	g        *ring
	space    string
	n        uint16
	accepted uint16
	at       time.Time     // of the last answer
	gap      time.Duration // the longest time between two answers
	stopped  bool
}

// count starts to publish state c of a space 50 times a second.
func (g *ring) count(space string) *counter {
	c := &counter{g: g, space: space}
	g.mustPublish(space, `{"op":"put","key":"c","message":"C","values":[{"name":"n","type":"uint16","value":0}]}`)
	c.at = g.net.Now()
	g.net.Every(20*time.Millisecond, func() bool {
		if !c.stopped {
			c.next()
		}
		return !c.stopped
	})
	return c
}

func (c *counter) next() {
	c.n++
	n := c.n
	m := bus.Msg{
		Subject: c.g.subjects.Publish(c.space, ""),
		Data:    fmt.Appendf(nil, `{"op":"set","key":"c","values":{"n":%d}}`, n),
	}
	c.g.game.Request(m, time.Second, func(answer bus.Msg, err error) {
		if err != nil || strings.Contains(string(answer.Data), "error") {
			return
		}
		c.gap = max(c.gap, c.g.net.Now().Sub(c.at))
		c.at = c.g.net.Now()
		c.accepted = max(c.accepted, n)
	})
}

// TestRing spreads spaces over three relays.
func TestRing(t *testing.T) {
	g := newRing(t, *seed, 3)
	e := g.startEdge(wire.Denetwork, nil)
	p := g.join(e, dnptest.Cpp(), dnptest.App{})
	g.mustPublish("s", towerPut)
	g.within(time.Second, "the client is linked", func() bool { return p.has("T", 0, f32(93.5)) })
	holders := map[string]bool{}
	for i := range 40 {
		space := fmt.Sprintf("space%d", i)
		g.mustPublish(space, towerPut)
		holders[g.holder(space).name] = true
	}
	if len(holders) < 2 {
		t.Errorf("40 spaces are all held by %v", holders)
	}
}

// TestHolderDies kills the holder while a publisher and a client are active.
func TestHolderDies(t *testing.T) {
	var gaps []time.Duration
	repeated(t, 20, func(t *testing.T, seed uint64) { gaps = append(gaps, holderDies(t, seed)) })
	t.Logf("time without an answer: %s", spread(gaps))
}

func holderDies(t *testing.T, seed uint64) time.Duration {
	g := newRing(t, seed, 3)
	e := g.startEdge(wire.Denetwork, nil)
	downs := 0
	p := g.join(e, dnptest.Cpp(), dnptest.App{LinkDown: func(*dnptest.Link) { downs++ }})
	g.mustPublish("s", towerPut)
	g.mustPublish("s", `{"op":"put","key":"gone","message":"G","values":[{"type":"uint16","value":1}]}`)
	c := g.count("s")
	g.net.Run(time.Second)
	g.mustPublish("s", `{"op":"remove","key":"gone"}`)
	g.net.Run(time.Second + time.Duration(g.net.Rand().IntN(1000))*time.Millisecond)
	downs = 0
	g.die(g.holder("s"))
	g.net.Run(6 * time.Second)
	c.stopped = true
	g.net.Run(2 * time.Second)
	if c.gap > 4*time.Second {
		t.Errorf("no relay answered for %v, want at most 4 s", c.gap)
	}
	if downs != 0 || !p.has("T", 0, f32(93.5)) {
		t.Errorf("%d links went down, tower is % x: the new holder did not restore the space", downs, p.Value("T", 0))
	}
	if p.LinkNamed("G") != nil {
		t.Error("a state that was removed came back")
	}
	if !p.has("C", 0, u16(c.accepted)) {
		t.Errorf("the client has % x, the last number that was accepted is %d", p.Value("C", 0), c.accepted)
	}
	g.event(0, "reassert", "")
	g.audit.check()
	return c.gap
}

// TestHandOver drains one holder after the other. That costs little time, and no accepted value
// is lost.
func TestHandOver(t *testing.T) {
	var gaps []time.Duration
	repeated(t, 5, func(t *testing.T, seed uint64) { gaps = append(gaps, handOver(t, seed)...) })
	t.Logf("time without an answer at a planned hand-over, including the publisher's interval of 20 ms: %s", spread(gaps))
}

func handOver(t *testing.T, seed uint64) (gaps []time.Duration) {
	g := newRing(t, seed, 3)
	g.edges = []*simEdge{g.startEdge(wire.Denetwork, nil)}
	downs, newest := 0, uint16(0)
	p := g.join(g.edges[0], dnptest.Cpp(), dnptest.App{
		LinkDown: func(*dnptest.Link) { downs++ },
		Updated: func(l *dnptest.Link, _ int) {
			if n := binary.LittleEndian.Uint16(l.State.Value(0)); n < newest {
				t.Errorf("%s went from %d back to %d", l.Message, newest, n)
			} else if string(l.Message) == "C" {
				newest = n
			}
		},
	})
	c := g.count("s")
	for range 3 {
		g.net.Run(2*time.Second + time.Duration(g.net.Rand().IntN(100))*time.Millisecond)
		leaver := g.holder("s")
		c.gap = 0
		g.drain(leaver)
		g.within(2*time.Second, "another relay holds the space", func() bool { return g.held("s") != leaver.name && g.held("s") != "" })
		g.net.Run(time.Second)
		if c.gap > 200*time.Millisecond {
			t.Errorf("a planned hand-over cost %v of silence, want at most 200 ms", c.gap)
		}
		gaps = append(gaps, c.gap)
		leaver.kill()
		g.start(leaver)
		g.tell()
	}
	c.stopped = true
	g.net.Run(2 * time.Second)
	if downs != 0 || !p.has("C", 0, u16(c.n)) {
		t.Errorf("%d links went down; the client has % x, want %d", downs, p.Value("C", 0), c.n)
	}
	g.audit.check()
	return gaps
}

// TestPausedHolder stops the holder's process for longer than its lease lasts.
func TestPausedHolder(t *testing.T) {
	g := newRing(t, *seed, 3)
	e := g.startEdge(wire.Denetwork, nil)
	p := g.join(e, dnptest.Cpp(), dnptest.App{})
	c := g.count("s")
	g.net.Run(2 * time.Second)
	zombie := g.holder("s")
	g.pause(zombie)
	g.within(6*time.Second, "another relay takes over", func() bool { return g.held("s") != zombie.name && g.held("s") != "" })
	g.net.Run(time.Second)
	c.stopped = true
	g.net.Run(2 * time.Second)
	g.wake(zombie)
	g.net.Run(5 * time.Second)
	if !p.has("C", 0, u16(c.accepted)) {
		t.Errorf("the client has % x after the old holder woke, want %d", p.Value("C", 0), c.accepted)
	}
	g.audit.check()
}

// TestLossOfMessages loses every fifth message of the bus for 30 s while 1,000 values change per
// second. Repair, not luck, must make the replicas equal.
func TestLossOfMessages(t *testing.T) {
	var heals []time.Duration
	repeated(t, 1, func(t *testing.T, seed uint64) { heals = append(heals, lossOfMessages(t, seed)...) })
	t.Logf("after 30 s with 20 %% of all messages lost, replicas were equal after: %s", spread(heals))
}

func lossOfMessages(t *testing.T, seed uint64) (heals []time.Duration) {
	const states, perTurn, pace = 50, 20, 20 * time.Millisecond
	g := newRing(t, seed, 3)
	g.edges = []*simEdge{g.startEdge(wire.Denetwork, nil), g.startEdge(wire.Denetwork, nil)}
	for i := range states {
		g.mustPublish("s", fmt.Sprintf(`{"op":"put","key":"k%d","values":[{"type":"uint16","value":0}]}`, i))
	}
	for _, e := range g.edges {
		g.play(e)
	}
	g.net.Run(2 * time.Second)
	n := 0
	change := func(d time.Duration) {
		for end := g.net.Now().Add(d); g.net.Now().Before(end); g.net.Run(pace) {
			var ops []string
			for range perTurn {
				n++
				ops = append(ops, fmt.Sprintf(`{"op":"set","key":"k%d","values":{"0":%d}}`, n%states, n%65536))
			}
			g.fire("s", `{"ops":[`+strings.Join(ops, ",")+`]}`)
		}
	}
	g.hub.Loss = 0.2
	change(30 * time.Second)
	g.hub.Loss = 0
	ended, since := g.net.Now(), len(g.audit.heals)
	change(2 * time.Second)
	g.net.Run(20 * time.Millisecond)
	_, store := g.authority()
	for _, e := range g.edges {
		r := e.worker.Replica(audited)
		if d := differ(store, r); d != "" || !at(r, store) {
			t.Errorf("%s differs %v after the loss: %s", e.node, g.net.Now().Sub(ended), d)
		}
		s := r.Stats()
		t.Logf("%s: %d batches, %d gaps, %d ranges and %d keyframes asked for, %d checksums, %d differed",
			e.node, s.Batches, s.Gaps, s.RangeRequests, s.KeyframeRequests, s.Checksums, s.Divergence)
		if s.Gaps < 100 || s.RangeRequests < 100 {
			t.Errorf("%s had %d gaps and asked for %d ranges: repair did not make it equal", e.node, s.Gaps, s.RangeRequests)
		}
	}
	g.audit.check()
	return g.audit.heals[since:]
}

// TestBusAway disconnects all nodes from the bus, and from the durable store, for 30 s.
func TestBusAway(t *testing.T) {
	var heals []time.Duration
	repeated(t, 3, func(t *testing.T, seed uint64) { heals = append(heals, busAway(t, seed)) })
	t.Logf("after 30 s without a bus, the values that a client had written meanwhile were everywhere after: %s", spread(heals))
}

func busAway(t *testing.T, seed uint64) time.Duration {
	g := newRing(t, seed, 3)
	g.edges = []*simEdge{g.startEdge(wire.Denetwork, inSpace), g.startEdge(wire.Denetwork, inSpace)}
	downs := 0 // of the lamp; a new holder learns of the avatar, a client's own state, from its edge
	app := dnptest.App{LinkDown: func(l *dnptest.Link) {
		if string(l.Message) == "L" {
			downs++
		}
	}}
	a, b := g.join(g.edges[0], dnptest.Cpp(), app), g.join(g.edges[1], dnptest.Java(), app)
	g.mustPublish("s", `{"op":"put","key":"lamp","message":"L","access":"read-write","values":[{"type":"uint16","value":1}]}`)
	own := a.offer("avatar", 5)
	g.within(5*time.Second, "all states are linked", func() bool { return b.has("avatar", 0, u16(5)) && a.has("L", 0, u16(1)) && b.has("L", 0, u16(1)) })
	g.net.Run(time.Second)
	g.connectAll(false)
	g.net.Run(10 * time.Second)
	a.write(a.LinkNamed("L"), 7)
	a.write(own, 6)
	start := g.net.Now()
	var refused error
	g.game.Request(bus.Msg{Subject: g.subjects.Publish("s", "")}, time.Second, func(_ bus.Msg, err error) { refused = err })
	g.net.Run(0)
	if !errors.Is(refused, bus.ErrDisconnected) || !g.net.Now().Equal(start) {
		t.Errorf("a publish failed with %v after %v, want %v at once", refused, g.net.Now().Sub(start), bus.ErrDisconnected)
	}
	g.net.Run(20 * time.Second)
	if a.Phase() != dnptest.Connected || b.Phase() != dnptest.Connected || downs != 0 || !b.has("L", 0, u16(1)) || !b.has("avatar", 0, u16(5)) {
		t.Errorf("the clients are %v and %v, %d links went down, the lamp is % x: not served without a bus", a.Phase(), b.Phase(), downs, b.Value("L", 0))
	}
	g.connectAll(true)
	start = g.net.Now()
	g.within(10*time.Second, "the client's writes are everywhere", func() bool { return b.has("L", 0, u16(7)) && b.has("avatar", 0, u16(6)) })
	took := g.net.Now().Sub(start)
	g.net.Run(5 * time.Second)
	if got := g.ask(g.subjects.Get("s", "lamp"), ""); !strings.Contains(got, `"value":7`) || downs != 0 || !a.has("L", 0, u16(7)) {
		t.Errorf("the authority has %s, %d links went down", got, downs)
	}
	g.audit.check()
	return took
}

// connectAll disconnects all nodes from the bus, and the durable store with it, or connects
// them.
func (g *ring) connectAll(connected bool) {
	g.leases.SetSilent(!connected)
	g.game.SetConnected(connected)
	for _, r := range g.relays {
		r.bus.SetConnected(connected)
	}
	for _, e := range g.edges {
		e.bus.SetConnected(connected)
	}
}

// TestElection leaves the durable store without a leader for the length of an election. No
// update may stop.
func TestElection(t *testing.T) {
	var gaps []time.Duration
	repeated(t, 5, func(t *testing.T, seed uint64) { gaps = append(gaps, election(t, seed)) })
	t.Logf("time without an answer while the durable store has no leader for 4 to 9 s: %s", spread(gaps))
}

func election(t *testing.T, seed uint64) time.Duration {
	g := newRing(t, seed, 3)
	g.edges = []*simEdge{g.startEdge(wire.Denetwork, nil)}
	p := g.play(g.edges[0])
	c := g.count("s")
	g.net.Run(2*time.Second + time.Duration(g.net.Rand().IntN(500))*time.Millisecond)
	holder := g.held("s")
	c.gap = 0
	g.leases.SetSilent(true)
	g.net.Run(3500 * time.Millisecond)
	if a := g.publish("s", `{"op":"set","key":"c","values":{"n":1}}`); !strings.Contains(a, `"durable":false`) {
		t.Errorf("without a durable store a publish is answered %s", a)
	}
	g.net.Run(500*time.Millisecond + time.Duration(g.net.Rand().IntN(5000))*time.Millisecond)
	g.leases.SetSilent(false)
	g.net.Run(3 * time.Second)
	c.stopped = true
	g.net.Run(time.Second)
	if c.gap > 60*time.Millisecond || g.held("s") != holder || !p.has("C", 0, u16(c.n)) {
		t.Errorf("no answer for %v, held by %s before and by %s after; the client has % x, want %d", c.gap, holder, g.held("s"), p.Value("C", 0), c.n)
	}
	g.audit.problems = nil // c went back to 1 once, because this test published that
	g.audit.check()
	return c.gap
}
