package systest

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/internal/simnet"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// successor returns the edge to which the session of a client was handed over; nil if an edge
// has served it since, or none was asked to.
func (p *takeoverPlayer) successor() *takeoverEdge {
	entries := p.w.store.Entries(p.log())
	k, err := sessionlog.ParseBlock(entries[len(entries)-1].Data)
	if err != nil {
		p.w.Fatal(err)
	}
	if k.Hand == nil {
		return nil
	}
	i := slices.IndexFunc(p.w.edges, func(e *takeoverEdge) bool { return e.name == *k.Hand })
	return p.w.edges[i]
}

// serves reports whether the edge has the session of a client.
func (e *takeoverEdge) serves(p *takeoverPlayer) bool {
	return slices.ContainsFunc(e.workers, func(k *takeoverWorker) bool { return k.worker.Serves(p.addr) })
}

// silentClient plays until a silent client is served, and returns it and its edge.
func silentClient(t *testing.T, seed uint64) (w *takeoverWorld, p *takeoverPlayer, first *takeoverEdge) {
	t.Helper()
	return silentClientOf(newTakeoverWorld(t, seed))
}

func silentClientOf(w *takeoverWorld) (_ *takeoverWorld, p *takeoverPlayer, first *takeoverEdge) {
	w.Helper()
	p = w.players[takeoverPlayers-1] // it sends nothing
	w.net.Run(2 * time.Second)
	if first = p.owner(); first == nil {
		w.Fatal("the client has no session")
	}
	return w, p, first
}

// TestHandedToTheDead hands the session of a silent client over, and kills both the old edge and
// the next owner before the latter has the session. The third edge finds the session all the
// same, because the claim of the first edge stays until that of the next owner replaces it.
func TestHandedToTheDead(t *testing.T) {
	for seed := range uint64(4) {
		w, p, first := silentClient(t, seed)
		first.drain()
		w.within(time.Second, "the session is handed over", func() bool { return p.successor() != nil && !first.serves(p) })
		successor := p.successor()
		successor.ends()
		first.ends()
		i := slices.IndexFunc(w.edges, func(e *takeoverEdge) bool { return e != first && e != successor })
		w.within(15*time.Second, "the third edge serves the session", func() bool { return w.edges[i].serves(p) })
	}
}

// ownerByLog returns the edge that the log of a client's session names, dead or alive.
func (p *takeoverPlayer) ownerByLog() *takeoverEdge {
	node := p.w.fence.of(p.log()).node
	return p.w.edges[slices.IndexFunc(p.w.edges, func(e *takeoverEdge) bool { return e.name == node })]
}

// TestLostToTheDead stops the edge of a silent client, and kills the edge that takes the
// session over when the log has its ADOPT and its claim is not written. The first edge goes on,
// so no edge looks after its claims, and learns that the session is another's. It takes the
// session back, although the other edge, which knows nothing of it, has started again by then.
// The affinity speaks the truth here: the first edge believes it when it says that there is a later
// claim, and looks no more. An answer of the log that gets lost costs one more look.
func TestLostToTheDead(t *testing.T) {
	for seed := range uint64(8) {
		w, p, first := silentClient(t, seed)
		w.lies, w.away = 0, 0
		first.pause(time.Second)
		w.within(time.Second, "another edge writes ADOPT", func() bool { return p.ownerByLog() != first })
		next := p.ownerByLog()
		if p.owner() != first {
			t.Fatalf("%s claims the session already", next.name)
		}
		next.ends()
		w.net.Schedule(time.Second, next.boot)
		w.within(6*time.Second, "the session has an owner again", func() bool {
			o := p.ownerByLog()
			return o.alive && o.serves(p) && p.owner() == o
		})
		w.net.Run(3 * time.Second)
		if n := p.owners(); n != 1 {
			t.Errorf("seed %d: the session has %d owners", seed, n)
		}
	}
}

// pauseMost is how long a client may get no datagrams while its session is handed over and its
// balancer moves it to another edge.
const pauseMost = 50 * time.Millisecond

// A pauseWatch is a client that measures how long it gets no datagrams.
type pauseWatch struct {
	*takeoverPlayer
	last    time.Duration
	longest time.Duration
}

// Receive implements simnet.Node.
func (p *pauseWatch) Receive(now time.Time, from netip.AddrPort, b []byte) {
	at := p.w.net.Elapsed()
	if p.last > 0 {
		p.longest = max(p.longest, at-p.last)
	}
	p.last = at
	p.takeoverPlayer.Receive(now, from, b)
}

// drainWatched drains an edge and returns the longest pause of each client whose session it had.
// The balancer moves clients away 200 ms after all sessions are gone, before the edge ends.
func (w *takeoverWorld) drainWatched(watches []*pauseWatch, e *takeoverEdge) (pauses []time.Duration) {
	var moves []*pauseWatch
	for _, p := range watches {
		p.longest = 0
		if p.owner() == e {
			moves = append(moves, p)
		}
	}
	e.drain()
	w.within(5*time.Second, "all sessions are handed over", func() bool { return e.edge.DurableSessions() == 0 })
	w.net.Run(200 * time.Millisecond)
	for _, p := range watches {
		if p.route == e {
			p.next = w.edges[(slices.Index(w.edges, e)+2)%len(w.edges)] // not the one that is drained next
		}
	}
	w.net.Run(2 * time.Second)
	for _, p := range moves {
		pauses = append(pauses, p.longest)
	}
	w.within(4*time.Second, "the edge starts again", e.well)
	w.net.Run(200 * time.Millisecond) // all edges know that
	return pauses
}

// TestDrainPause drains edges while a state changes every 10 ms, on a path and with a log that
// are slow but lose nothing.
func TestDrainPause(t *testing.T) {
	var pauses []time.Duration
	for i := range 3 {
		w := newTakeoverWorld(t, uint64(3+i*len(takeoverPlans))) // the plan has drains only, and this test drains by itself
		w.net.SetPath(simnet.Path{Delay: 5 * time.Millisecond})
		w.strict = true
		var watches []*pauseWatch
		for _, p := range w.players {
			x := &pauseWatch{takeoverPlayer: p}
			watches = append(watches, x)
			w.net.Attach(p.addr, x)
			p.begin()
			if p.index == takeoverPlayers-1 { // a silent client never makes the balancer move it
				p.talk()
			}
		}
		w.net.Every(10*time.Millisecond, func() bool {
			w.value++
			w.fire("s", fmt.Sprintf(`{"op":"set","key":"tower","values":{"n":%d}}`, w.value))
			return !w.healed
		})
		w.net.Run(2 * time.Second)
		for j := range 6 {
			pauses = append(pauses, w.drainWatched(watches, w.edges[j%len(w.edges)])...)
		}
		for _, e := range w.errors {
			t.Error(e)
		}
	}
	slices.Sort(pauses)
	if len(pauses) < 10 {
		t.Fatalf("only %d sessions moved, so little was tested", len(pauses))
	}
	t.Logf("%d sessions moved: pause p50 %v, longest %v", len(pauses), pauses[len(pauses)/2], pauses[len(pauses)-1])
	if longest := pauses[len(pauses)-1]; longest > pauseMost {
		t.Errorf("a client got no datagrams for %v", longest)
	}
}

// TestPrepared asks an edge to follow a space. The edge answers when each of its workers has the
// states, and not before: sessions arrive then.
func TestPrepared(t *testing.T) {
	w := newTakeoverWorld(t, 3)
	w.mustPublish("yard", `{"op":"put","key":"tower","message":"T","values":[{"name":"n","type":"uint16","value":0}]}`)
	e := w.edges[0]
	answer := ""
	ask := bus.Msg{Subject: w.subjects.Edge(e.name), Data: []byte(`{"prepare":["yard"]}`)}
	w.hub.Node("other").Request(ask, 2*time.Second, func(m bus.Msg, err error) {
		if answer = string(m.Data); err != nil {
			answer = err.Error()
		}
		for i, k := range e.workers {
			if r := k.worker.Replica("yard"); r == nil || !r.Complete() {
				t.Errorf("worker %d does not have the states yet", i)
			}
		}
	})
	w.net.Run(2 * time.Second)
	if answer != "{}" {
		t.Errorf("the answer is %q, want {}", answer)
	}
}

// TestWoken stops the edge of each client in turn for 0.5 to 10 s, so that other edges take its
// sessions over, and resumes it: with claims to renew, messages to publish, datagrams that
// arrived meanwhile, and overdue timers. Nothing of that may be accepted; see fence.
func TestWoken(t *testing.T) {
	const rounds = 8
	var all fenceCounts
	for i := range 3 {
		w := newTakeoverWorld(t, uint64(1+i*len(takeoverPlans))) // the plan has stops only, and this test stops edges by itself
		for _, p := range w.players {
			p.begin()
		}
		w.net.Run(2 * time.Second)
		for round := range rounds {
			p := w.players[round%takeoverPlayers]
			w.within(5*time.Second, "the client has an edge", func() bool { return p.owner() != nil && w.spare(p.owner()) })
			e, before := p.owner(), w.paused
			d := 500 * time.Millisecond << round
			w.muted = e
			w.net.Run(200 * time.Millisecond)
			e.pause(min(d, 10*time.Second))
			if w.muted = nil; w.paused == before {
				t.Fatalf("%s is not stopped", e.name)
			}
			w.net.Run(min(d, 10*time.Second) + time.Second)
		}
		w.heal()
		w.net.Run(takeoverHeal)
		w.final()
		for _, e := range w.errors {
			t.Error(e)
		}
		if w.fence.seen.woken < rounds/2 {
			t.Errorf("only %d sessions of stopped edges were taken over, so little was tested", w.fence.seen.woken)
		}
		all.add(w.fence.seen)
	}
	t.Log(all)
	if all.claims == 0 || all.repeats == 0 {
		t.Error("no resumed edge renewed a claim, or none published a waiting message, so that was not tested")
	}
}

// TestRecycledByTheNext kills the edge of a client whose LinkIds are nearly used up, while the client
// talks. When it stops, the next edge ends the session, in the log too, and the client knows.
func TestRecycledByTheNext(t *testing.T) {
	w := newTakeoverWorldOf(t, 1, takeoverPlan{name: "recycle"})
	w.net.Run(2 * time.Second)
	client, _ := w.useLinkIDs()
	p := w.players[slices.IndexFunc(w.players, func(p *takeoverPlayer) bool { return p.name == client })]
	first := p.owner()
	talk := func(d time.Duration) {
		for range d / (500 * time.Millisecond) {
			if err := p.Send(w.net.Now(), []byte("busy")); err != nil {
				t.Fatal(err)
			}
			w.net.Wake(p.addr)
			w.net.Run(500 * time.Millisecond)
		}
	}
	talk(15 * time.Second) // LinkIds of offers that never left are in the log from the next checkpoint on
	first.ends()
	talk(5 * time.Second)
	if p.Phase() != dnptest.Connected || p.owner() == first {
		t.Fatalf("the client is %v, and has its old edge: %v; want another one that waits for a quiet moment", p.Phase(), p.owner() == first)
	}
	w.within(time.Minute, "another edge ends the session", func() bool {
		return slices.ContainsFunc(w.events, func(e event) bool { return e.Type == "left" && e.Client == client && e.Reason == "recycle" })
	})
	w.within(time.Second, "the client knows", func() bool { return p.Phase() == dnptest.Closed })
	entries := w.store.Entries(p.log())
	if k, err := sessionlog.ParseBlock(entries[len(entries)-1].Data); err != nil || k.Close == nil || *k.Close != "recycle" {
		t.Fatalf("the log ends with %+v (%v), want the end of the session", k, err)
	}
	if p.owner() != nil {
		t.Errorf("%s still claims the session", p.owner().name)
	}
}
