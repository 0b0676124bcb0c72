package systest

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/bus/membus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/forward"
	"github.com/dnprelay/dnprelay/cluster/memaffinity"
	"github.com/dnprelay/dnprelay/dnp/udp"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/edge/takeover"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/subject"
)

// A takeoverBalancer sends the datagrams of a client to one edge until that edge counts as dead.
type takeoverBalancer struct{ w *takeoverWorld }

func (f takeoverBalancer) Advance(time.Time)              {}
func (f takeoverBalancer) NextTimeout() (time.Time, bool) { return time.Time{}, false }
func (f takeoverBalancer) Receive(_ time.Time, from netip.AddrPort, p []byte) {
	w := f.w
	pl := w.player(from)
	if pl.next != nil {
		pl.route, pl.next, pl.routed = pl.next, nil, w.net.Elapsed()
	}
	pl.reroute()
	to := pl.route
	if w.playing && w.net.Rand().Float64() < w.spray {
		to = w.living()
	}
	to.heard[from] = w.net.Elapsed()
	to.receive(from, p)
}

// reroute moves the flow of a client whose edge counts as dead.
func (p *takeoverPlayer) reroute() {
	if p.route == nil || !p.route.routable() {
		p.route, p.routed = p.w.living(), p.w.net.Elapsed()
	}
}

// passesTo reports whether the balancer passes what an edge sends to a client. One that tracks connections
// moves no flow before the client sends something.
func (e *takeoverEdge) passesTo(p *takeoverPlayer) bool {
	if e.w.strict && !e.w.tracked {
		p.reroute()
	}
	return !e.w.strict || p.route == e
}

// living returns an edge that does not count as dead.
func (w *takeoverWorld) living() *takeoverEdge {
	var all []*takeoverEdge
	for _, e := range w.edges {
		if e.routable() {
			all = append(all, e)
		}
	}
	if len(all) == 0 {
		all = w.edges
	}
	return all[w.net.Rand().IntN(len(all))]
}

// A takeoverEdge is an edge process that dies, is stopped, and starts again.
type takeoverEdge struct {
	w        *takeoverWorld
	name     string
	start    int           // ordinal of the process among all
	since    time.Duration // when it started, or was reached again
	alive    bool          // the process exists
	paused   bool
	draining bool
	dead     bool // in the eyes of the others
	stopped  takeoverStop
	cut      takeoverCut

	edge     *edge.Edge
	workers  []*takeoverWorker
	process  *carriedProcess // nil without carried clients
	bus      *membus.Bus
	affinity *takeoverAffinity
	knows    cluster.Roster
	heard    map[netip.AddrPort]time.Duration // when the balancer last sent clients here
	firsts   map[netip.AddrPort]string        // the edge at which the forwarded datagrams of a client arrived first
	passing  map[netip.AddrPort][]string      // datagrams of other edges that leave here, by client
}

func (e *takeoverEdge) well() bool { return e.alive && !e.paused && !e.draining && !e.cut.disturbs() }

// A takeoverWorker is one worker of an edge and its output.
type takeoverWorker struct {
	outputBuffer
	e       *takeoverEdge
	start   int
	worker  *edge.Worker
	arrived []udp.Datagram
	planned int // generation of the planned turn
	woken   bool
}

// boot starts a process with two workers.
func (e *takeoverEdge) boot() {
	w := e.w
	w.starts++
	w.disturbed, e.since = w.net.Elapsed(), w.net.Elapsed()
	e.start, e.alive, e.paused, e.draining, e.dead = w.starts, true, false, false, false
	e.stopped, e.cut, e.passing = takeoverStop{}, takeoverCut{}, make(map[netip.AddrPort][]string)
	e.bus = w.hub.Node(fmt.Sprintf("%s.%d", e.name, e.start))
	e.affinity = &takeoverAffinity{e: e, start: e.start, Node: w.claims.Node(e.name), claims: make(map[string]uint64)}
	e.affinity.begin()
	durable := &edge.Durable{From: takeoverFrom{e, e.start}, Ports: takeover.Ports{
		Log: takeoverLog{e, cutLog{e, w.store}}, Secret: []byte("secret"), Affinity: e.affinity, Forward: takeoverForward{e},
	}}
	if w.alone {
		durable.Forward = nil
	}
	durable.AnswerOnly = w.tracked
	var err error
	e.edge, err = edge.New(edge.Config{
		Node: e.name, Workers: 2, Shards: simShards, Flush: 5 * time.Millisecond, OpenSpace: "s", Bus: e.bus, Subjects: w.subjects,
		NewID: w.newID, Seed: w.net.Rand().Uint64, Log: slog.New(slog.DiscardHandler), Durable: durable, Carriers: e.carriers(),
	})
	if err != nil {
		w.Fatal(err)
	}
	e.carry()
	e.workers, e.firsts = nil, make(map[netip.AddrPort]string)
	for range 2 {
		k := &takeoverWorker{e: e, start: e.start}
		if k.worker, err = e.edge.AddWorker(edge.Listener{Addr: balancerAddr}, k, k.wake); err != nil {
			w.Fatal(err)
		}
		e.workers = append(e.workers, k)
	}
	if err := e.edge.Start(); err != nil {
		w.Fatal(err)
	}
	for _, k := range e.workers {
		k.wake()
	}
	w.net.Schedule(100*time.Millisecond, w.tellRoster)
}

// receive takes a datagram of a client. As in the kernel, it is always for the same worker.
func (e *takeoverEdge) receive(from netip.AddrPort, p []byte) {
	if e.alive && !e.cut.active {
		k := e.workers[from.Port()%2]
		k.arrived = append(k.arrived, udp.Datagram{From: from, Data: p})
		k.wake()
	}
}

func (k *takeoverWorker) wake() {
	if !k.woken {
		k.woken = true
		k.e.w.net.Schedule(0, func() { k.woken = false; k.turn() })
	}
}

func (k *takeoverWorker) turn() {
	e := k.e
	if !e.alive || e.paused || e.start != k.start {
		return
	}
	batch := k.arrived
	k.arrived = nil
	next, err := k.worker.Turn(e.w.net.Now(), batch)
	e.process.step()
	if err != nil {
		e.w.Fatal(err)
	}
	k.planned++
	mine := k.planned
	e.w.net.Schedule(next.Sub(e.w.net.Now()), func() {
		if mine == k.planned {
			k.turn()
		}
	})
}

// Send sends the worker's datagrams.
func (k *takeoverWorker) Send(to netip.AddrPort, b []byte) {
	w := k.e.w
	if k.e.cut.active {
		return
	}
	w.toClient(to, b)
	w.leaves(k.e, to, b)
	if !k.e.passes(to, b) {
		w.fence.sends(k.e, to, b)
	}
	k.tracks(to, b)
	if k.e.passesTo(w.player(to)) {
		w.net.Send(balancerAddr, to, b)
	}
}

func (e *takeoverEdge) kill() {
	if !e.w.spare(e) {
		return
	}
	e.w.tell("%s is killed", e.name)
	e.w.killed++
	e.w.broken(e)
	e.ends()
	e.w.net.Schedule(time.Duration(1000+e.w.net.Rand().IntN(2000))*time.Millisecond, e.boot)
}

// ends ends the process.
func (e *takeoverEdge) ends() {
	e.alive = false
	e.process.end()
	e.bus.Close()
	e.noticed()
}

// noticed lets the others notice after a while that this edge is silent.
func (e *takeoverEdge) noticed() {
	start := e.start
	e.w.net.Schedule(takeoverSilence+time.Duration(e.w.net.Rand().Int64N(int64(takeoverJitter))), func() {
		if e.start != start || e.alive && !e.paused && !e.cut.active {
			return
		}
		e.dead = true
		if !e.cut.redis {
			e.affinity.Leave()
		}
		e.w.tellRoster()
	})
}

func (e *takeoverEdge) pause(d time.Duration) {
	if !e.w.spare(e) {
		return
	}
	e.w.tell("%s is stopped for %v", e.name, d)
	e.w.paused++
	e.paused = true
	e.stops()
	e.noticed()
	start := e.start
	e.w.net.Schedule(d, func() {
		if e.start == start {
			e.resume()
		}
	})
}

func (e *takeoverEdge) resume() {
	if !e.alive || !e.paused {
		return
	}
	e.w.tell("%s resumes", e.name)
	e.paused, e.dead = false, false
	e.wakes()
	e.affinity.Return()
	for _, k := range e.workers {
		k.wake()
	}
	e.w.net.Schedule(200*time.Millisecond, e.w.tellRoster)
}

// drain drains the edge, and starts it again.
func (e *takeoverEdge) drain() {
	w := e.w
	if !w.spare(e) {
		return
	}
	w.tell("%s drains", e.name)
	w.drained++
	e.draining = true
	w.net.Schedule(50*time.Millisecond, w.tellRoster)
	e.edge.BeginDrain()
	if w.strict && w.playing { // TestDrainPause moves its clients itself
		w.net.Schedule(time.Duration(w.net.Rand().IntN(5000))*time.Millisecond, e.rerouted)
	}
	start, since := e.start, w.net.Elapsed()
	w.net.Every(100*time.Millisecond, func() bool {
		if e.start != start || !e.alive {
			return false
		}
		waited := w.net.Elapsed() - since
		if e.edge.DurableSessions() > 0 && waited < 30*time.Second {
			return true
		}
		if e.edge.DurableSessions() > 0 {
			w.failf("%s did not hand %d sessions over", e.name, e.edge.DurableSessions())
		}
		if !e.dead && waited < 3*time.Second { // the balancer goes on sending here for a while
			return true
		}
		w.tell("%s has left", e.name)
		e.ends()
		w.net.Schedule(time.Second, e.boot)
		return false
	})
}

// A takeoverForward carries datagrams between edges. It knows at once which edges count as dead.
type takeoverForward struct{ e *takeoverEdge }

func (f takeoverForward) peer(node string) *takeoverEdge {
	for _, o := range f.e.w.edges {
		if o.name == node && !o.dead && !f.e.cut.alone {
			return o
		}
	}
	return nil
}

func (f takeoverForward) Forward(node string, c forward.Client, hops uint8, datagram []byte) bool {
	o := f.peer(node)
	if o == nil {
		return false
	}
	p, start, via := append([]byte(nil), datagram...), o.start, f.e.name
	if first := f.e.firsts[c.Addr]; hops > 0 && first != "" {
		via = first
	}
	if via == o.name {
		via = "" // the datagram went in a circle
	}
	f.e.w.net.Schedule(200*time.Microsecond, func() {
		if o.start == start && o.alive && !o.cut.active && !f.e.cut.active {
			o.firsts[c.Addr] = via
			o.edge.Forwarded([]forward.Delivery{{Kind: forward.ToOwner, Via: via, Hops: hops + 1, Client: c, Data: p}})
		}
	})
	return true
}

func (f takeoverForward) Return(node string, c forward.Client, _ uint64, datagram []byte) bool {
	o := f.peer(node)
	if o == nil {
		return false
	}
	p, start := append([]byte(nil), datagram...), o.start
	f.e.w.net.Schedule(200*time.Microsecond, func() {
		if o.start == start && o.alive && !o.cut.active && !f.e.cut.active {
			o.passing[c.Addr] = append(o.passing[c.Addr], string(p))
			o.edge.Forwarded([]forward.Delivery{{Kind: forward.ToClient, Client: c, Data: p}})
		}
	})
	return true
}

// A takeoverAffinity is the affinity of one process, which may lie.
type takeoverAffinity struct {
	*memaffinity.Node
	e      *takeoverEdge
	start  int
	tell   func(string, cluster.Served)
	claims map[string]uint64 // of this process, with their epochs
	away   bool
}

// Claim implements cluster.Affinity.
func (a *takeoverAffinity) Claim(name string, epoch uint64) {
	if a.claims[name] = epoch; !a.away {
		a.e.w.fence.claims(a, name, epoch)
	}
}

// Release implements cluster.Affinity.
func (a *takeoverAffinity) Release(name string, epoch uint64) {
	if a.claims[name] == epoch {
		delete(a.claims, name)
	}
	if !a.away {
		a.Node.Release(name, epoch)
	}
}

func (a *takeoverAffinity) OnReplaced(handle func(string, cluster.Served)) {
	a.tell = handle
	a.Node.OnReplaced(handle)
}

// Return resumes a process that seemed dead. All its claims are due for renewal.
func (a *takeoverAffinity) Return() {
	a.Node = a.e.w.claims.Node(a.e.name)
	a.Node.OnReplaced(a.tell)
	for _, name := range slices.Sorted(maps.Keys(a.claims)) {
		a.later(func() {
			if epoch, ok := a.claims[name]; ok && !a.away && a.e.alive && a.e.start == a.start {
				a.e.w.fence.claims(a, name, epoch)
			}
		})
	}
}

func (a *takeoverAffinity) later(f func()) { a.e.w.net.Schedule(300*time.Microsecond, f) }

func (a *takeoverAffinity) Find(name string, answer func(cluster.Served, error)) {
	w := a.e.w
	switch {
	case a.away || w.net.Rand().Float64() < w.away:
		a.later(func() { answer(cluster.Served{}, cluster.ErrAffinityAway) })
	case w.net.Rand().Float64() < w.lies:
		o := w.edges[w.net.Rand().IntN(len(w.edges))]
		a.later(func() {
			answer(cluster.Served{Node: o.name, Epoch: 1 + uint64(w.net.Rand().IntN(5)), Alive: w.net.Rand().IntN(2) == 0}, nil)
		})
	default:
		a.later(func() { a.Node.Find(name, answer) })
	}
}

func (a *takeoverAffinity) Try(name string, seen cluster.Served, answer func(cluster.Served, error)) {
	a.later(func() {
		if a.away {
			answer(cluster.Served{}, cluster.ErrAffinityAway)
			return
		}
		a.Node.Try(name, seen, answer)
	})
}

func (a *takeoverAffinity) Claimed(node string, each func([]string), done func(error)) {
	if a.away || a.e.w.net.Rand().Float64() < a.e.w.away {
		a.later(func() { done(cluster.ErrAffinityAway) })
		return
	}
	a.later(func() { a.Node.Claimed(node, each, done) })
}

// A takeoverFrom brings messages to the game, as natsfrom does.
type takeoverFrom struct {
	e     *takeoverEdge
	start int
}

func (f takeoverFrom) Begin(_, client, session string, delivered func(uint64)) edge.Feed {
	return &takeoverFeed{f: f, client: client, session: session, delivered: delivered}
}

type takeoverFeed struct {
	f         takeoverFrom
	client    string
	session   string
	delivered func(uint64)
	waiting   []sessionlog.Message
	ended     bool
}

func (d *takeoverFeed) Deliver(m sessionlog.Message) {
	if m.Header != nil {
		m.Header[subject.HeaderSession] = d.session
	}
	d.waiting = append(d.waiting, m)
	if len(d.waiting) == 1 {
		d.publish()
	}
}

func (d *takeoverFeed) End() { d.ended, d.waiting = true, nil }

// publish publishes the first waiting message, and again if it is lost.
func (d *takeoverFeed) publish() {
	e, w := d.f.e, d.f.e.w
	if d.ended || len(d.waiting) == 0 || !e.alive || e.start != d.f.start {
		return
	}
	if e.paused {
		e.stopped.feeds = append(e.stopped.feeds, d)
		return
	}
	m := d.waiting[0]
	if w.net.Rand().IntN(20) == 0 && !w.healed || w.muted == e || e.cut.noBus {
		w.net.Schedule(100*time.Millisecond, d.publish)
		return
	}
	w.net.Schedule(time.Millisecond, func() {
		w.consume(e, d.client, m)
		w.net.Schedule(time.Millisecond, func() {
			if len(d.waiting) == 0 || d.waiting[0].Number != m.Number {
				return
			}
			d.waiting = d.waiting[1:]
			d.delivered(m.Number)
			d.publish()
		})
	})
}
