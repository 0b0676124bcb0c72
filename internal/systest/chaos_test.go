package systest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// TestChaos injects faults into a ring, some of them at once. What must hold at every moment has
// to hold (audit), and every client must have the truth in the end.
func TestChaos(t *testing.T) {
	var heals []time.Duration
	var carried carriedCounts
	worlds, comparisons, spoiled, found := 0, 0, 0, uint64(0)
	repeated(t, 20, func(t *testing.T, seed uint64) {
		a := chaos(t, seed)
		heals, worlds, comparisons = append(heals, a.heals...), worlds+1, comparisons+a.comparisons
		if a.spoiled {
			spoiled, found = spoiled+1, found+a.found
		}
		if a.carried != nil {
			carried.add(a.carried.carriedCounts)
		}
	})
	if worlds > 1 && comparisons < 100*worlds {
		t.Errorf("only %d comparisons of a replica with a store in %d worlds, so little was tested", comparisons, worlds)
	}
	if spoiled >= 5 && found == 0 {
		t.Errorf("no checksum differed in %d worlds, so the damage tested nothing", spoiled)
	}
	if worlds >= 20 && carried.none() {
		t.Errorf("carried clients in %d worlds: %+v, so little was tested", worlds, carried)
	}
	t.Logf("carried clients: %+v", carried)
	t.Logf("replicas equalled the holder after: %s", spread(heals))
}

func chaos(t *testing.T, seed uint64) *audit {
	w := newWorld(t, seed)
	h := newHerd(w, seed)
	g := ringIn(w, seed, 3)
	rng := rand.New(rand.NewPCG(seed, 4))
	g.usual()
	g.leases.Loss, g.leases.Late = 0.02, 0.5
	g.begin(seed)
	x := g.attack(seed)
	n := newChaosNumbered(g, seed)
	m := newMirror(g.world, rng, kindPair, kindNullable, kindWide)
	if h != nil {
		h.idle = func() bool { return !g.net.Now().After(g.idleUntil) }
	}
	h.graze(func() bool { return g.healed })
	spoiling := seed%spoiledShare == 0
	g.audit.damaged, g.audit.spoiled = spoiling, spoiling
	for turn := range 1200 {
		if spoiling && turn < spoiledTurns && turn%50 == 25 {
			g.spoil(rng)
		}
		if g.net.Now().After(g.idleUntil) {
			m.change()
			if rng.IntN(4) == 0 { // within the tick of the relay and the flush of the edges
				g.net.Schedule(3*time.Millisecond, m.change)
				g.net.Schedule(6*time.Millisecond, m.change)
			}
		}
		g.net.Run(50 * time.Millisecond)
		if rng.IntN(40) == 0 {
			g.fault(rng)
		}
		if c := g.audit.carried; c != nil && c.rng.IntN(40) == 0 {
			c.fault()
		}
		if turn%2 == 0 {
			g.audit.step()
		}
	}
	g.heal()
	g.net.Run(10 * time.Second)
	if c := g.audit.carried; c != nil {
		c.quiet = true
	}
	g.net.Run(5 * time.Second)
	m.repeat()
	h.rest()
	g.net.Run(2 * time.Second)
	m.checkAll(t, g.audit.players)
	for _, p := range g.audit.players {
		for _, problem := range h.check(p.Client, p.name) {
			t.Error(problem)
		}
	}
	if spoiling {
		g.audit.found = g.unspoiled()
	}
	n.check(t)
	x.check(t)
	if c := g.audit.carried; c != nil {
		x.stop()
		c.check()
	}
	g.audit.check()
	g.endings.check(t, dnp.CloseDrain.String())
	if g.audit.comparisons < 10 { // TestChaos judges the sum over all seeds
		t.Errorf("only %d comparisons of a replica with a store, so little was tested", g.audit.comparisons)
	}
	return g.audit
}

// begin starts the edges and the clients.
func (g *ring) begin(seed uint64) {
	if !carries(seed) {
		g.edges = []*simEdge{g.startEdge(wire.Denetwork, nil), g.startEdge(wire.Denetwork, nil)}
		for i := range 4 {
			g.play(g.edges[i%2])
		}
		return
	}
	g.edges = []*simEdge{g.startEdge(wire.Denetwork, g.withCarriers), g.startEdge(wire.Denetwork, g.withCarriers)}
	g.audit.carried = newChaosCarried(g, seed)
	for i := range 4 - g.audit.carried.clients {
		g.play(g.edges[i%2])
	}
}

// In one of so many rounds of the chaos test values in replicas are damaged, in the turns before this
// one: what no checksum shows heals in the next audit, half a minute later.
const (
	spoiledShare = 8
	spoiledTurns = 700
)

// spoil damages a value in a replica of some edge.
func (g *ring) spoil(rng *rand.Rand) {
	r := g.edges[rng.IntN(len(g.edges))].replica(audited)
	if r == nil {
		return
	}
	for st := range r.All() {
		if rng.IntN(4) == 0 && !st.IsNull(0) {
			spoil(st)
			return
		}
	}
}

// unspoiled wants every replica to have what the holder has. It returns how often a checksum differed: damage that the game
// overwrites soon shows nothing.
func (g *ring) unspoiled() (found uint64) {
	_, store := g.authority()
	for _, e := range g.edges {
		r := e.replica(audited)
		found += r.Stats().Divergence
		if d := differ(store, r); d != "" {
			g.Errorf("%s was damaged and did not heal: %s", e.node, d)
		}
	}
	return found
}

// fault lets one thing fail, and mostly repairs it later.
func (g *ring) fault(rng *rand.Rand) {
	r := g.relays[rng.IntN(len(g.relays))]
	e := g.edges[rng.IntN(len(g.edges))]
	later := func(most time.Duration, f func()) { g.net.Schedule(time.Duration(rng.Int64N(int64(most))), f) }
	if r.dead || r.paused || e.dead || e.drains {
		return
	}
	switch rng.IntN(14) {
	case 0:
		g.die(r)
		later(8*time.Second, func() { g.restart(r) })
	case 1:
		g.pause(r)
		later(10*time.Second, func() { g.wake(r) })
	case 2:
		g.leases.SetSilent(true)
		later(9*time.Second, func() { g.leases.SetSilent(false) })
	case 3:
		g.leases.Cut(r.name, true)
		r.apart = rng.IntN(2) == 0 // gossip does not reach it either, only the bus does
		g.net.Schedule(detection, g.tell)
		later(15*time.Second, func() {
			g.leases.Cut(r.name, false)
			r.apart = false
			g.net.Schedule(detection, g.tell)
		})
	case 4:
		r.bus.SetConnected(false)
		bus := r.bus
		later(10*time.Second, func() { bus.SetConnected(true) })
	case 5:
		e.bus.SetConnected(false)
		bus := e.bus
		later(10*time.Second, func() { bus.SetConnected(true) })
	case 6:
		g.drain(r)
		later(5*time.Second, func() {
			if r.leaves {
				r.kill()
				g.restart(r)
			}
		})
	case 7: // the two are apart, and both believe that they are connected
		node := r.node
		g.cut(node, e, true)
		later(10*time.Second, func() { g.cut(node, e, false) })
	case 8:
		g.hub.Loss, g.hub.Duplicate, g.hub.Jitter = 0.3, 0.1, 100*time.Millisecond
		later(3*time.Second, g.usual)
	case 9:
		e.pause(true)
		later(2*time.Second, func() {
			if e.paused {
				e.pause(false)
			}
		})
	case 10:
		if len(g.audit.players) == 0 { // carried clients are about to begin anew
			return
		}
		if p := g.audit.players[0]; p.carried == nil {
			g.audit.players = g.audit.players[1:]
			p.do(p.Close)
			g.play(p.edge)
		}
	case 12: // the holder's leases stand still, so it believes for long that it is the holder
		if h, _ := g.authority(); h != nil && len(g.relays) > 1 {
			g.stick(h, true)
			later(8*time.Second, func() { g.stick(h, false) })
		}
	case 13: // the space is idle, and an edge has missed its last batch without knowing
		if h, _ := g.authority(); h != nil {
			node := h.node
			g.cut(node, e, true)
			g.idleUntil = g.net.Now().Add(8 * time.Second)
			m := rng.IntN(100)
			g.net.Schedule(time.Duration(m)*time.Millisecond, func() {
				g.fire("s", `{"op":"put","key":"idle","audience":{"groups":["none"]},"values":[{"type":"uint8","value":`+strconv.Itoa(m)+`}]}`)
			})
			g.net.Schedule(5500*time.Millisecond, func() { g.cut(node, e, false) })
		}
	case 11: // the holder dies, and then its successor
		if h, _ := g.authority(); h != nil {
			g.die(h)
			g.net.Schedule(4*time.Second, func() {
				if h2, _ := g.authority(); h2 != nil {
					g.die(h2)
					g.net.Schedule(4*time.Second, func() { g.restart(h2) })
				}
			})
			later(8*time.Second, func() { g.restart(h) })
		}
	}
}

// stick stops a relay's leases and its messages from other relays, and nothing else of it.
func (g *ring) stick(r *simRelay, stuck bool) {
	if r.dead || r.paused {
		return
	}
	r.stuck = stuck
	r.leases.Pause(stuck)
	for _, other := range g.relays {
		if other != r {
			g.hub.Cut(r.node, other.node, stuck)
		}
	}
	g.net.Schedule(detection, g.tell)
}

// usualLoss is the share of bus messages that is always lost.
const usualLoss = 0.02

// usual sets the faults that the bus always has.
func (g *ring) usual() {
	if !g.healed {
		g.hub.Loss, g.hub.Duplicate, g.hub.Jitter = usualLoss, 0.02, 5*time.Millisecond
	}
}

// restart starts a dead relay; the others notice after a while.
func (g *ring) restart(r *simRelay) {
	if r.dead {
		g.start(r)
		g.net.Schedule(detection, g.tell)
	}
}

// cut separates an edge from the relay with this name on the bus.
func (g *ring) cut(node string, e *simEdge, cut bool) {
	g.hub.Cut(node, e.node, cut)
	g.cuts[[2]string{node, e.node}] = cut
}

func (g *ring) isCut(r *simRelay, e *simEdge) bool { return g.cuts[[2]string{r.node, e.node}] }

// heal ends all faults of the ring.
func (g *ring) heal() {
	g.healed = true
	g.leases.SetSilent(false)
	g.hub.Loss, g.hub.Duplicate, g.hub.Jitter, g.leases.Loss = 0, 0, 5*time.Millisecond, 0
	for _, r := range g.relays {
		g.leases.Cut(r.name, false)
		r.apart = false
		g.wake(r)
		g.stick(r, false) // behind wake: a relay that is paused stays stuck
		if r.dead {
			g.start(r)
		}
		r.bus.SetConnected(true)
	}
	for _, e := range g.edges {
		if e.paused {
			e.pause(false)
		}
		e.bus.SetConnected(true)
		for _, r := range g.relays {
			g.cut(r.node, e, false)
		}
	}
	if g.audit.carried != nil {
		g.audit.carried.heal()
	}
	g.tell()
	players := g.audit.players
	g.audit.players = nil
	for _, p := range players {
		if p.carried != nil || p.Phase() == dnptest.Connected {
			g.audit.players = append(g.audit.players, p)
		} else { // its edge rejected it while the bus was gone, or leaves just now
			p.do(p.Close)
			g.play(p.edge)
		}
	}
}

// A seen is the newest value of a state that a client was sent, and when.
type seen struct {
	number uint16
	at     time.Time
}

// play connects a client that records what it sees.
func (g *ring) play(e *simEdge) *player {
	p := g.newPlayer(e)
	g.add(p, dnptest.Cpp(), g.seeing(p), func(d []byte) { g.net.Send(p.addr, e.addr, d) })
	g.audit.players = append(g.audit.players, p)
	return p
}

// seeing returns an application that records what a client sees.
func (g *ring) seeing(p *player) dnptest.App {
	news, since := make(map[string]seen), g.net.Now()
	p.linked = make(map[string]time.Time)
	return dnptest.App{
		Updated: func(l *dnptest.Link, i int) {
			if v := l.State.Value(i); i == 0 && len(v) == 2 && v[0]|v[1] != 0 && !strings.HasPrefix(string(l.Message), lever) {
				g.audit.saw(p, since, news, string(l.Message), binary.LittleEndian.Uint16(v))
			}
		},
		LinkUp: func(l *dnptest.Link) { p.linked[string(l.Message)] = g.net.Now() },
	}
}

// saw wants a client, which began at since, to see no older value after a newer one. A new holder may lack what its
// predecessor did not store; values may go back only then.
func (a *audit) saw(p *player, since time.Time, news map[string]seen, message string, number uint16) {
	key, _, _ := strings.Cut(message, "#")
	last, known := news[key]
	if p.carried != nil && p.carried.at.gone {
		return // the edge has forgotten in which epoch it sent this
	}
	if number < last.number && !a.damaged && p.edge.look.epochAt.Before(last.at.Add(-50*time.Millisecond)) {
		a.problem("client %v of %s saw %s go from %d back to %d in one epoch", p.addr, p.edge.node, key, last.number, number)
	}
	at := a.g.net.Now().Add(-p.late())
	if !known { // it came with the link, in a message that is repeated as it was when it was lost
		at = since
	}
	news[key] = seen{number, at}
}

// late returns how old what the client gets may be.
func (p *player) late() time.Duration {
	if p.carried == nil {
		return 0
	}
	return p.carried.late()
}

// promptly is how long a value that is sent only once may take from the replica to the client:
// the flush, and the tick of the client. The first repetition comes later.
const promptly = 25 * time.Millisecond

// prompt wants a client to have what its edge's replica has, if both had the time.
func (p *player) prompt(a *audit) {
	now, r, most, young := a.g.net.Now(), p.edge.replica(audited), promptly, 2*promptly
	if p.carried != nil {
		most = carriedPrompt
	}
	if p.carried != nil && a.g.eye.Key != "" {
		young = herdOffered
	}
	switch {
	case r == nil || p.edge.paused || p.Phase() != dnptest.Connected || now.Sub(p.edge.look.changedAt) < most:
		return
	case p.carried != nil && !p.carried.steady():
		return
	}
	for st := range r.All() {
		message := string(st.Desc.Message)
		if ofHerd(message) { // clients get less than everything
			continue
		}
		if !st.Desc.Audience.Includes(p.name, r.Groups(p.name)) { // its link ends, and gets no values meanwhile
			continue
		}
		at, ok := p.linked[message]
		l := p.LinkNamed(message)
		if !ok || now.Sub(at) < young || l == nil || l.Phase != dnptest.LinkIsUp || l.State == nil {
			continue
		}
		for i := range sampled(st.Values) {
			if !bytes.Equal(l.State.Value(i), st.Values.Value(i)) {
				a.problem("client %v of %s has % x as %s[%d], its edge has % x since %v", p.addr, p.edge.node,
					l.State.Value(i), message, i, st.Values.Value(i), now.Sub(p.edge.look.changedAt))
			}
		}
	}
}

// TestDamage changes batches on their way to edges, as no network should, but as a mistake in a
// codec or in memory would. Checksums must find the damage, and repair must heal it within a
// second after the last change.
func TestDamage(t *testing.T) { repeated(t, 8, damage) }

func damage(t *testing.T, seed uint64) {
	g := newRing(t, seed, 3)
	rng := rand.New(rand.NewPCG(seed, 4))
	g.edges = []*simEdge{g.startEdge(wire.Denetwork, nil), g.startEdge(wire.Denetwork, nil)}
	for i := range 4 {
		g.play(g.edges[i%2])
	}
	m := newMirror(g.world, rng, kindPair, kindNullable, kindWide)
	g.audit.damaged = true
	g.hub.Duplicate, g.hub.Jitter = 0.3, 80*time.Millisecond // so that a repair is often followed by another one
	g.hub.Damage = func(to string, msg bus.Msg) bus.Msg {
		if strings.HasPrefix(to, "edge") && msg.Subject == g.subjects.Live(audited) && rng.IntN(5) == 0 {
			msg.Data = bytes.Clone(msg.Data)
			msg.Data[len(msg.Data)-1] ^= 1 << rng.IntN(8) // mostly the last byte of a value
		}
		return msg
	}
	for range 200 {
		m.change()
		g.net.Run(50 * time.Millisecond)
	}
	g.hub.Damage = nil
	g.net.Run(healMax)
	_, store := g.authority()
	found := uint64(0)
	for _, e := range g.edges {
		r := e.replica(audited)
		found += r.Stats().Divergence
		if d := differ(store, r); d != "" {
			t.Errorf("%s differs %v after the last change: %s", e.node, healMax, d)
		}
	}
	g.audit.check()
	if found == 0 {
		t.Error("no checksum differed, so nothing was tested")
	}
	m.repeat()
	g.net.Run(5 * time.Second)
	m.checkAll(t, g.audit.players)
}

// TestLargeSpace repairs replicas of an idle space whose answers have several parts, most of
// which are lost, so that parts of different answers have the same position. No state may ever
// be missing.
func TestLargeSpace(t *testing.T) { repeated(t, 2, largeSpace) }

func largeSpace(t *testing.T, seed uint64) {
	const states = 14 // of 50 kB each, so that an answer has three or four parts
	g := newRing(t, seed, 1)
	g.audit.large = true
	rng := rand.New(rand.NewPCG(seed, 4))
	g.edges = []*simEdge{g.startEdge(wire.Denetwork, nil), g.startEdge(wire.Denetwork, nil)}
	put := func(i int) {
		value := fmt.Sprintf(`{"type":"string","value":%q}`, strings.Repeat(fmt.Sprint(rng.IntN(10)), 1000))
		values := strings.TrimSuffix(strings.Repeat(value+",", 50), ",")
		g.mustPublish("s", fmt.Sprintf(`{"op":"put","key":"k%d","audience":{"groups":["none"]},"values":[%s]}`, i, values))
	}
	for i := range states {
		put(i)
	}
	for _, e := range g.edges {
		g.play(e)
	}
	g.within(5*time.Second, "both edges have all states", func() bool { return g.complete(states) })
	for range 6 {
		for _, e := range g.edges { // when they are back everything is different, and the batches are too old to be asked for
			e.bus.SetConnected(false)
		}
		for i := range states {
			put(i)
		}
		g.net.Run(5 * time.Second)
		g.hub.Loss, g.hub.Duplicate, g.hub.Jitter = 0.4, 0.4, 300*time.Millisecond
		for _, e := range g.edges {
			e.bus.SetConnected(true)
		}
		g.net.RunUntil(20*time.Second, func() bool {
			for _, e := range g.edges {
				if n := e.worker.Replica(audited).Len(); n != states {
					t.Fatalf("%s has %d states, but no state was ever removed", e.node, n)
				}
			}
			return g.complete(states)
		})
		g.hub.Loss, g.hub.Duplicate, g.hub.Jitter = 0, 0, 0
		g.within(2*time.Second+repairWindow, "both edges have all states again", func() bool { return g.complete(states) })
		g.audit.step()
	}
	g.audit.check()
}

// complete reports whether every edge has this number of states and lacks nothing.
func (g *ring) complete(states int) bool {
	_, store := g.authority()
	for _, e := range g.edges {
		if r := e.worker.Replica(audited); r == nil || store == nil || !at(r, store) || r.Len() != states {
			return false
		}
	}
	return true
}
