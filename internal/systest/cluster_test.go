package systest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/memlease"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/relay"
	"github.com/dnprelay/dnprelay/replication"
)

// detection is how long the gossip takes to notice a death (measured: about a
// second with its settings).
const detection = time.Second

// A ring is relays that share the shards by leases.
type ring struct {
	*world
	leases *memlease.Hub
	relays []*simRelay
	edges  []*simEdge // those that the audit looks at
	starts int
	cuts   map[[2]string]bool // relay's name on the bus, edge
	healed bool

	idleUntil time.Time // until when nothing is to be published
	audit     *audit
}

// newRing starts n relays and waits until every shard is held.
func newRing(t *testing.T, seed uint64, n int) *ring {
	w := newWorld(t, seed)
	g := &ring{world: w, cuts: make(map[[2]string]bool), leases: memlease.New(memlease.Config{
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

// start starts a relay, again if it is dead.
func (g *ring) start(r *simRelay) {
	g.starts++
	r.dead, r.paused, r.leaves, r.stuck, r.apart, r.asleep = false, false, false, false, false, nil
	r.leases = g.leases.Node(r.name, fmt.Sprintf("start%d", g.starts), simShards)
	g.world.run(r, fmt.Sprintf("%s.%d", r.name, g.starts), func(*relay.Config) {})
}

// tell gives every relay the roster of those that live.
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

// holder returns the relay that the store says holds a space.
func (g *ring) holder(space string) *simRelay {
	name := g.held(space)
	i := slices.IndexFunc(g.relays, func(r *simRelay) bool { return r.name == name })
	if i < 0 {
		g.Fatalf("no relay holds space %s", space)
	}
	return g.relays[i]
}

// held returns the name of the relay that holds a space; empty for none.
func (g *ring) held(space string) string { return g.leases.Holder(cluster.Shard(space, simShards)) }

// authority returns the store of the relay that holds the audited space, if one does
// that runs: the durable store says so, and it speaks in that epoch.
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

// store returns the store of a space for which the relay speaks, or nil.
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

// pause stops a relay's process; wake lets it go on.
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

// drain makes a relay leave in order: the others hear of it first.
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

// A counter publishes a number that counts up, and notes when it was accepted.
type counter struct {
	g        *ring
	space    string
	n        uint16
	accepted uint16
	at       time.Time     // of the last answer
	gap      time.Duration // the longest time between two answers
	stopped  bool
}

// count starts to publish state c of a space, 50 times a second.
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

// TestRing shares the spaces between three relays.
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

// TestHolderDies kills the holder under a publisher and a client.
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
		t.Errorf("nobody answered for %v, want at most 4 s", c.gap)
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

// TestHandOver takes the shards from one relay after the other in order. That costs
// little time, and nothing that anybody was told.
func TestHandOver(t *testing.T) {
	var gaps []time.Duration
	repeated(t, 5, func(t *testing.T, seed uint64) { gaps = append(gaps, handOver(t, seed)...) })
	t.Logf("time without an answer at a planned hand-over, 20 ms of it the pace of the publisher: %s", spread(gaps))
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

// TestPausedHolder stops the holder's process for longer than its lease.
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
