package takeover

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/memaffinity"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
)

// pin makes a balancer pin the flow of a client that joined at an edge: only answers by flow pass, and what the
// client says comes by it. It is empty for this edge itself, and "-" for a dead one.
func (e *testEdge) pin(joined *testEdge, c *dnptest.Client, flow *string) {
	e.passes = func(edge string, p []byte) {
		if edge == *flow {
			p = slices.Clone(p)
			e.net.Schedule(0, func() { c.Receive(e.net.Now(), server, p) })
		}
	}
	joined.toClient = func(netip.AddrPort, []byte) {}
	joined.fromClient = func(addr netip.AddrPort, p []byte) {
		if e.heard(); *flow != "-" {
			e.workers[0].deliver(addr, *flow, p...)
		}
	}
}

// play lets time go by for a client, too.
func (e *testEdge) play(c *dnptest.Client, d time.Duration) {
	for end := e.net.Elapsed() + d; e.net.Elapsed() < end; {
		c.Advance(e.net.Now())
		e.pass(10 * time.Millisecond)
	}
}

// wantWay fails unless the session of a client has found its way, by edge.
func (e *testEdge) wantWay(client netip.AddrPort, edge string) {
	e.Helper()
	switch s := e.workers[0].session(client); {
	case s == nil:
		e.Fatalf("there is no session, want one that reaches its client by %q", edge)
	case s.search.searching() || s.path.Edge != edge:
		e.Fatalf("the path is %+v, searching: %v, want it to be %q", s.path, s.search.searching(), edge)
	}
}

// TestSearch: an edge that took over the session of a client that only listens finds the edge whose answers a
// balancer lets through, whenever the balancer chooses one.
func TestSearch(t *testing.T) {
	for _, x := range []struct {
		flow string
		late time.Duration // after the session was taken over, until the balancer sends the client there
	}{{"e3", 0}, {"", 0}, {"e2", 3 * time.Second}, {"e3", 15 * time.Second}} {
		t.Run(fmt.Sprint(x.flow, " after ", x.late), func(t *testing.T) {
			first, addr := newTestEdge(t), clientAddr(1)
			c := first.join(addr)
			next := first.next()
			next.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady, "e2": cluster.PhaseReady, "e3": cluster.PhaseReady})
			flow := "-"
			next.pin(first, c, &flow)
			w := next.workers[0]
			w.t.Give(w.t.name(addr), Path{Unknown: true}, "")
			next.play(c, x.late)
			flow = x.flow
			next.play(c, 2*time.Second)
			next.wantWay(addr, x.flow)
			if c.Phase() != dnptest.Connected {
				t.Fatalf("the client is %v", c.Phase())
			}
			if n := next.overEdge["e2"] + next.overEdge["e3"]; n > 8*int(x.late/time.Second+2)*2 {
				t.Errorf("%d datagrams went by other edges", n)
			}
			next.overEdge = map[string]int{}
			next.play(c, 20*time.Second)
			if x.flow == "" && w.t.detours != 0 || next.overEdge["e2"] > 0 && x.flow != "e2" {
				t.Errorf("%d detours, %v went by other edges when the way was known", w.t.detours, next.overEdge)
			}
		})
	}
}

// TestSearchEnds: a client that no edge reaches is given up.
func TestSearchEnds(t *testing.T) {
	first, addr := newTestEdge(t), clientAddr(1)
	c := first.join(addr)
	next := first.next()
	next.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady, "e2": cluster.PhaseReady})
	flow := "-"
	next.pin(first, c, &flow)
	w := next.workers[0]
	w.t.Give(w.t.name(addr), Path{Unknown: true}, "")
	next.play(c, searchTime-2*time.Second)
	w.wantPhase("balancers may be slow", addr, Serving)
	next.play(c, 5*time.Second)
	w.wantPhase("but not this slow", addr, Over)
	if w.t.detours != 0 {
		t.Errorf("%d detours", w.t.detours)
	}
}

// TestMovedSilently: a balancer moves the flow of a client that only listens, although all edges live. The edge
// notices by its next probe, also if the client now comes to the edge itself.
func TestMovedSilently(t *testing.T) {
	first, addr := newTestEdge(t), clientAddr(1)
	c := first.join(addr)
	first.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady, "e2": cluster.PhaseReady, "e3": cluster.PhaseReady})
	flow := ""
	first.pin(first, c, &flow)
	for _, flow = range []string{"e3", "e2", "", "e3"} {
		first.play(c, 20*time.Second)
		first.wantWay(addr, flow)
	}
}

// TestSearchBounds: few datagrams of a session go by all edges.
func TestSearchBounds(t *testing.T) {
	var s search
	now := time.Unix(1000, 0)
	for range 3 {
		went := 0
		for range 1000 {
			if s.take(now) {
				went++
			}
		}
		if went != spreadMost {
			t.Errorf("%d datagrams at %v, want %d", went, now, spreadMost)
		}
		now = now.Add(spreadPause)
	}
}

// TestEdgeLost: the edge that reaches a client that only listens is gone, or stands still for a moment in which a
// balancer moves the client.
func TestEdgeLost(t *testing.T) {
	first, addr := newTestEdge(t), clientAddr(1)
	c := first.join(addr) // over e2
	first.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady, "e2": cluster.PhaseReady, "e3": cluster.PhaseReady})
	flow := "e2"
	first.pin(first, c, &flow)
	first.play(c, time.Second)
	flow = "e3"
	first.workers[0].t.EdgeLost(first.net.Now(), "e2")
	first.play(c, 200*time.Millisecond)
	first.wantWay(addr, "e3")
}

// TestEdgeLostInDoubt: the same, while a series of questions is open: its first answer comes by the old way, its
// second and last by the new one, of which the search needs two.
func TestEdgeLostInDoubt(t *testing.T) {
	first, addr := newTestEdge(t), clientAddr(1)
	c := first.join(addr) // over e2
	first.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady, "e2": cluster.PhaseReady, "e3": cluster.PhaseReady})
	flow := "e2"
	first.pin(first, c, &flow)
	first.play(c, time.Second)
	said := 0
	first.heard = func() {
		if said++; said == 2 { // an acknowledgement, and the answer
			first.net.Schedule(0, func() {
				flow = "e3"
				first.workers[0].t.EdgeLost(first.net.Now(), "e2")
			})
		}
	}
	first.workers[0].deliver(addr, "", 0xff)
	first.play(c, 3*time.Second)
	first.wantWay(addr, "e3")
}

// TestSearchByFormerWay: a way by which a datagram came more than two seconds ago is no way any more, so the search
// goes there, too.
func TestSearchByFormerWay(t *testing.T) {
	first, addr := newTestEdge(t), clientAddr(1)
	c := first.join(addr) // over e2
	first.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady, "e2": cluster.PhaseReady, "e3": cluster.PhaseReady})
	flow := "e2"
	first.pin(first, c, &flow)
	w := first.workers[0]
	w.session(addr).others.list = []otherWay{{edge: "e3", until: first.net.Now()}}
	flow = "e3"
	first.play(c, time.Second)
	w.t.EdgeLost(first.net.Now(), "e2")
	first.play(c, time.Second)
	first.wantWay(addr, "e3")
}

// TestPathDrains: an edge that drains still reaches a client. The client is made to say something, so that the
// balancer chooses another edge in time.
func TestPathDrains(t *testing.T) {
	first, addr := newTestEdge(t), clientAddr(1)
	c := first.join(addr) // over e2
	phases := map[string]cluster.Phase{"e1": cluster.PhaseReady, "e2": cluster.PhaseReady, "e3": cluster.PhaseReady}
	first.roster(phases)
	flow := "e2"
	first.pin(first, c, &flow)
	said := 0
	first.heard = func() { said++ }
	first.play(c, 5*time.Second)
	if said > 0 {
		t.Errorf("a client whose edge works was made to say %d datagrams", said)
	}
	phases["e2"] = cluster.PhaseLeaving
	first.roster(phases)
	first.heard = func() { flow = "e3" } // the next datagram of the client
	first.play(c, 3*time.Second)
	first.wantWay(addr, "e3")
}

// TestEdgeLostMeanwhile: the edge that reaches a client that only listens stands still for a moment, in which the
// client's session is being taken over and a balancer moves the client. So does the edge that takes it over.
func TestEdgeLostMeanwhile(t *testing.T) {
	for _, x := range []struct {
		why  string
		lost func(w *testWorker)
	}{
		{"the edge on the path", func(w *testWorker) { w.t.EdgeLost(w.net.Now(), "e2") }},
		{"the edge itself", func(w *testWorker) { w.net.Run(stallMax + 10*time.Millisecond) }},
	} {
		t.Run(x.why, func(t *testing.T) {
			first, addr := newTestEdge(t), clientAddr(1)
			c := first.join(addr) // over e2
			next := first.next()
			next.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady, "e2": cluster.PhaseReady, "e3": cluster.PhaseReady})
			flow := "e2"
			next.pin(first, c, &flow)
			next.complete = false
			w := next.workers[0]
			w.t.Give(w.t.name(addr), Path{Edge: "e2"}, "")
			next.play(c, 100*time.Millisecond)
			w.wantPhase("the states are not complete", addr, AwaitingSpace)
			flow = "e3"
			x.lost(w)
			next.complete = true
			next.play(c, 3*time.Second)
			w.wantPhase("the states are complete", addr, Serving)
			next.wantWay(addr, "e3")
		})
	}
}

// TestTakenBack: an edge that lost the session of a client that only listens takes it over again. The way that it
// remembers is an old one: a balancer has moved the client since.
func TestTakenBack(t *testing.T) {
	first, addr := newTestEdge(t), clientAddr(1)
	c := first.join(addr) // over e2
	first.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady, "e2": cluster.PhaseReady, "e3": cluster.PhaseReady})
	w, next := first.workers[0], first.next()
	next.workers[0].t.Give(w.t.name(addr), Path{Unknown: true}, "")
	next.pass(500 * time.Millisecond)
	next.workers[0].wantPhase("it was given", addr, Serving)
	first.pass(500 * time.Millisecond)
	w.wantPhase("another edge has it", addr, Over)
	flow := "e3"
	first.pin(first, c, &flow)
	w.t.Give(w.t.name(addr), Path{Unknown: true}, "")
	first.play(c, 3*time.Second)
	w.wantPhase("it was given back", addr, Serving)
	first.wantWay(addr, "e3")
}

// TestAnsweredBeforeTheStop: an edge that was stopped finds the answer of a client to an earlier question. A balancer
// has moved the client since, so the answer does not show where the client is.
func TestAnsweredBeforeTheStop(t *testing.T) {
	first, addr := newTestEdge(t), clientAddr(1)
	c := first.join(addr) // over e2
	first.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady, "e2": cluster.PhaseReady, "e3": cluster.PhaseReady})
	flow := "e2"
	first.pin(first, c, &flow)
	first.play(c, time.Second)
	w, stopped := first.workers[0], []([]byte)(nil)
	deliver := first.fromClient
	said := 0
	first.fromClient = func(_ netip.AddrPort, p []byte) {
		if said++; said <= 2 { // an acknowledgement, and the answer to the first of two questions
			w.deliver(addr, "e2", p...)
			return
		}
		stopped = append(stopped, slices.Clone(p))
	}
	w.t.ask(w.session(addr))
	first.play(c, 50*time.Millisecond)
	if len(stopped) < 2 {
		t.Fatalf("the client says %x", stopped)
	}
	first.net.Run(stallMax + 10*time.Millisecond)
	w.turn() // it learns that it was stopped
	first.fromClient = deliver
	for _, p := range stopped {
		w.deliver(addr, "e2", p...)
	}
	flow = "e3"
	first.play(c, 3*time.Second)
	first.wantWay(addr, "e3")
}

// vouch has the edge know that only the clients themselves send in their names.
func (e *testEdge) vouch() {
	for _, w := range e.workers {
		w.t.cfg.Vouched = func(netip.AddrPort) bool { return true }
	}
}

// TestLateDatagram: a datagram of a client that only listens waited at an edge that was stopped. The client has come to
// this edge since, so what leaves by the other one gets lost.
func TestLateDatagram(t *testing.T) {
	first, addr := newTestEdge(t), clientAddr(1)
	c := first.join(addr) // over e2
	first.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady, "e2": cluster.PhaseReady, "e3": cluster.PhaseReady})
	first.vouch()
	flow := "e3"
	first.pin(first, c, &flow)
	var late []byte // what the client said last by e3
	deliver := first.fromClient
	first.fromClient = func(addr netip.AddrPort, p []byte) {
		if flow == "e3" {
			late = slices.Clone(p)
		}
		deliver(addr, p)
	}
	w := first.workers[0]
	w.t.seek(first.net.Now(), w.session(addr))
	first.play(c, time.Second)
	first.wantWay(addr, "e3")
	flow = ""
	w.t.DirectOpened(first.net.Now(), addr, true)
	first.wantWay(addr, "")
	w.deliver(addr, "e3", late...) // e3 has just ended its connection
	if s := w.session(addr); s.path != (Path{}) {
		t.Errorf("a datagram that waited at e3 makes the path %+v", s.path)
	}
	first.play(c, 2*time.Second)
	first.wantWay(addr, "")
	w.deliver(addr, "e3", late...) // e3 was stopped
	first.wantWay(addr, "e3")
	first.play(c, 2*time.Second)
	first.wantWay(addr, "")
}

// TestForwardedTwice: a session was handed over to the edge to which its client is connected. A datagram of the client is
// on its way over the former edge, which has no connection to it.
func TestForwardedTwice(t *testing.T) {
	first, addr := newTestEdge(t), clientAddr(1)
	c := first.join(addr)
	next := first.next()
	next.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady, "e2": cluster.PhaseReady, "e3": cluster.PhaseReady})
	next.vouch()
	flow := ""
	next.pin(first, c, &flow)
	var said []byte
	deliver := first.fromClient
	first.fromClient = func(addr netip.AddrPort, p []byte) {
		said = slices.Clone(p)
		deliver(addr, p)
	}
	w := next.workers[0]
	next.pass(10 * time.Millisecond)
	w.t.Give(w.t.name(addr), Path{}, "")
	next.play(c, 50*time.Millisecond)
	w.t.seek(next.net.Now(), w.session(addr))
	next.play(c, 50*time.Millisecond)
	next.wantWay(addr, "")
	if said == nil {
		t.Fatal("the client has said nothing to its new edge")
	}
	w.take(next.net.Now(), addr, "e2", 2, said)
	if s := w.session(addr); s.path != (Path{}) {
		t.Errorf("a datagram that was forwarded twice makes the path %+v", s.path)
	}
	w.deliver(addr, "e3", said...)
	next.wantWay(addr, "e3")
	w.t.DirectOpened(next.net.Now(), addr, true) // soon after the hand-over
	next.wantWay(addr, "")

	// The client is connected to e3, which forwards to e2, which had the session before.
	next.play(c, 2*time.Second)
	flow = "e3"
	w.t.setPath(w.session(addr), Path{Edge: "e2"})
	w.take(next.net.Now(), addr, "e2", 2, said)
	next.play(c, 100*time.Millisecond)
	next.wantWay(addr, "e3")
}

// TestLateAnswer: what waited at the edge that handed a session over shows no way, whatever it answers.
func TestLateAnswer(t *testing.T) {
	first, addr := newTestEdge(t), clientAddr(1)
	c := first.join(addr)
	next := first.next()
	next.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady, "e2": cluster.PhaseDraining, "e3": cluster.PhaseReady})
	next.vouch()
	flow := "e2"
	next.pin(first, c, &flow)
	w := next.workers[0]
	next.pass(10 * time.Millisecond)
	w.t.Give(w.t.name(addr), Path{Edge: "e2"}, "")
	next.play(c, 50*time.Millisecond)
	next.wantWay(addr, "e2")

	var late [][]byte // answers to the question, which wait at e2 while the client connects to e3
	deliver := first.fromClient
	first.fromClient = func(_ netip.AddrPort, p []byte) { late = append(late, slices.Clone(p)) }
	w.t.ask(w.session(addr))
	next.play(c, 50*time.Millisecond)
	first.fromClient = deliver
	flow = "e3"
	if len(late) == 0 {
		t.Fatal("the client does not answer")
	}
	w.take(next.net.Now(), addr, "e2", 2, late[0])
	for _, p := range late {
		w.deliver(addr, "e2", p...)
	}
	if s := w.session(addr); !s.search.searching() {
		t.Error("an answer that waited at e2 ends the search")
	}
	next.play(c, time.Second)
	next.wantWay(addr, "e3")
}

// TestAnnounced: an edge to which a client makes a connection tells the edge that has the session of the client, before the
// client says anything.
func TestAnnounced(t *testing.T) {
	e := newTestEdge(t)
	w, hub := e.workers[0], memaffinity.New(e.net.Now)
	e.claimIn(hub.Node("e1"))
	other := hub.Node("e2")
	other.Claim(w.t.name(clientAddr(1)), 1)
	dead := hub.Node("e3")
	dead.Claim(w.t.name(clientAddr(2)), 1)
	dead.Leave()
	opens := func(i int, resumes bool) {
		w.t.DirectOpened(e.net.Now(), clientAddr(i), resumes)
		e.pass(10 * time.Millisecond)
	}
	opens(1, false)
	opens(2, true)
	opens(3, true)
	if len(e.forwarded) > 0 {
		t.Fatalf("%v are told of a client without a token, of one whose edge is dead, or of one that no edge has", e.forwarded)
	}
	opens(1, true)
	opens(1, true) // the edge is known
	if want := []string{"e2", "e2"}; !slices.Equal(e.forwarded, want) {
		t.Fatalf("%v are told of two connections, want %v", e.forwarded, want)
	}
}

// TestAnnouncedHere: a client that is served here, or by another worker, is announced to no other edge.
func TestAnnouncedHere(t *testing.T) {
	e := newTestEdge(t)
	addr, by := clientAddr(1), e.addWorker()
	c := e.join(addr) // over e2, to the first worker
	e.vouch()
	e.wantWay(addr, "e2")
	by.t.DirectOpened(e.net.Now(), addr, true)
	e.play(c, 2*time.Second) // it asks the client by this way first
	e.wantWay(addr, "")
	e.workers[0].deliver(addr, "e3", e.workers[0].endpoint.SignOfLife()...)
	e.wantWay(addr, "e3")
	asked := e.overEdge["e3"]
	e.play(c, 20*time.Millisecond)
	if e.overEdge["e3"] == asked {
		t.Error("the edge does not ask its client by the way that it is told of")
	}
	if len(e.forwarded) > 0 {
		t.Errorf("%v are told", e.forwarded)
	}
}

// TestEdgesKnownLater: an edge that knows of no other edge takes a session over. It searches as soon as it knows of some.
func TestEdgesKnownLater(t *testing.T) {
	first, addr := newTestEdge(t), clientAddr(1)
	c := first.join(addr)
	next := first.next()
	flow := "e3"
	next.pin(first, c, &flow)
	w := next.workers[0]
	w.t.Give(w.t.name(addr), Path{Unknown: true}, "")
	next.play(c, 500*time.Millisecond)
	w.wantPhase("it was given", addr, Serving)
	next.wantWay(addr, "")
	next.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady, "e2": cluster.PhaseReady, "e3": cluster.PhaseReady})
	w.t.EdgesKnown(next.net.Now())
	next.play(c, 200*time.Millisecond)
	next.wantWay(addr, "e3")
}
