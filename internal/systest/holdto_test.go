package systest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// TestLossOfMessages loses every fifth message of the bus for 30 s while 1,000 values
// change in a second. Repair, and not luck, makes the replicas equal.
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
			t.Errorf("%s had %d gaps and asked for %d ranges: it was not repair that made it equal", e.node, s.Gaps, s.RangeRequests)
		}
	}
	g.audit.check()
	return g.audit.heals[since:]
}

// TestBusAway takes the bus, and with it the durable store, from everybody for 30 s.
func TestBusAway(t *testing.T) {
	var heals []time.Duration
	repeated(t, 3, func(t *testing.T, seed uint64) { heals = append(heals, busAway(t, seed)) })
	t.Logf("after 30 s without a bus, what a client wrote meanwhile was everywhere after: %s", spread(heals))
}

func busAway(t *testing.T, seed uint64) time.Duration {
	g := newRing(t, seed, 3)
	g.edges = []*simEdge{g.startEdge(wire.Denetwork, inSpace), g.startEdge(wire.Denetwork, inSpace)}
	downs := 0 // of the lamp; a new holder learns of the avatar, which a client made, from its edge
	app := dnptest.App{LinkDown: func(l *dnptest.Link) {
		if string(l.Message) == "L" {
			downs++
		}
	}}
	a, b := g.join(g.edges[0], dnptest.Cpp(), app), g.join(g.edges[1], dnptest.Java(), app)
	g.mustPublish("s", `{"op":"put","key":"lamp","message":"L","access":"read-write","values":[{"type":"uint16","value":1}]}`)
	own := a.offer("avatar", 5)
	g.within(5*time.Second, "all is linked", func() bool { return b.has("avatar", 0, u16(5)) && a.has("L", 0, u16(1)) && b.has("L", 0, u16(1)) })
	g.net.Run(time.Second)
	g.everybody(false)
	g.net.Run(10 * time.Second)
	a.write(a.LinkNamed("L"), 7)
	a.write(own, 6)
	start := g.net.Now()
	var refused error
	g.game.Request(bus.Msg{Subject: g.subjects.Publish("s", "")}, time.Second, func(_ bus.Msg, err error) { refused = err })
	g.net.Run(0)
	if !errors.Is(refused, bus.ErrDisconnected) || !g.net.Now().Equal(start) {
		t.Errorf("a publisher was told %v after %v, want at once that there is no bus", refused, g.net.Now().Sub(start))
	}
	g.net.Run(20 * time.Second)
	if a.Phase() != dnptest.Connected || b.Phase() != dnptest.Connected || downs != 0 || !b.has("L", 0, u16(1)) || !b.has("avatar", 0, u16(5)) {
		t.Errorf("the clients are %v and %v, %d links went down, the lamp is % x: not served without a bus", a.Phase(), b.Phase(), downs, b.Value("L", 0))
	}
	g.everybody(true)
	start = g.net.Now()
	g.within(10*time.Second, "what the client wrote is everywhere", func() bool { return b.has("L", 0, u16(7)) && b.has("avatar", 0, u16(6)) })
	took := g.net.Now().Sub(start)
	g.net.Run(5 * time.Second)
	if got := g.ask(g.subjects.Get("s", "lamp"), ""); !strings.Contains(got, `"value":7`) || downs != 0 || !a.has("L", 0, u16(7)) {
		t.Errorf("the authority has %s, %d links went down", got, downs)
	}
	g.audit.check()
	return took
}

// everybody takes all nodes off the bus, and the durable store with it, or back.
func (g *ring) everybody(connected bool) {
	g.leases.SetSilent(!connected)
	g.game.SetConnected(connected)
	for _, r := range g.relays {
		r.bus.SetConnected(connected)
	}
	for _, e := range g.edges {
		e.bus.SetConnected(connected)
	}
}

// TestElection leaves the durable store without a leader for as long as an election
// takes. No update stops.
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
		t.Errorf("no answer for %v, held by %s before and %s after, the client has % x instead of %d", c.gap, holder, g.held("s"), p.Value("C", 0), c.n)
	}
	g.audit.problems = nil // c went back to 1 once, as this test published it
	g.audit.check()
	return c.gap
}
