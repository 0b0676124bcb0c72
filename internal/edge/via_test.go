package edge

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

// ways is the two ways out of a worker: directly, and over other edges.
type ways struct {
	nothing
	direct, over map[netip.AddrPort]int
	forwarded    []string // to which edges
	to           func(client netip.AddrPort, b []byte)
	gone         bool // the edge that clients come over
}

func (w *ways) Send(to netip.AddrPort, b []byte) { w.direct[to]++ }

// Forward and Return make it a Forwarder.
func (w *ways) Forward(node string, _ uint16, _ netip.AddrPort, _ uint8, _ []byte) bool {
	w.forwarded = append(w.forwarded, node)
	return true
}

func (w *ways) Return(_ string, _ uint16, to netip.AddrPort, _ uint64, b []byte) bool {
	if w.gone {
		return false
	}
	w.over[to]++
	w.to(to, b)
	return true
}

// newTravelled returns an edge whose clients come over another one.
func newTravelled(t *testing.T) (*leaver, *ways) {
	w := &ways{direct: map[netip.AddrPort]int{}, over: map[netip.AddrPort]int{}, to: func(netip.AddrPort, []byte) {}}
	return newLeaverOf(t, w, w), w
}

// forged is a request of a client that never proves its address.
func (l *leaver) forged(i int) {
	l.worker.Deliver(l.net.Now(), "e2", 1, strayClient(i), []byte{0, 1, 0, 0, 0})
}

// join has a client connect over another edge, and wants everything that is for it to go
// back over that one.
func (l *leaver) join(w *ways, addr netip.AddrPort) *dnptest.Client {
	l.Helper()
	c := dnptest.NewClient(dnptest.Config{Behaviour: dnptest.Cpp(), Server: netip.MustParseAddrPort("127.0.0.1:3413"), Send: func(p []byte) {
		l.net.Schedule(0, func() { l.worker.Deliver(l.net.Now(), "e2", 1, addr, p) })
	}})
	w.to = func(to netip.AddrPort, b []byte) {
		if to == addr {
			b = append([]byte(nil), b...)
			l.net.Schedule(0, func() { c.Receive(l.net.Now(), netip.MustParseAddrPort("127.0.0.1:3413"), b) })
		}
	}
	c.Connect(l.net.Now())
	for end := l.net.Elapsed() + 2*time.Second; l.net.Elapsed() < end; {
		c.Advance(l.net.Now())
		l.pass(10 * time.Millisecond)
	}
	if c.Phase() != dnptest.Connected || l.worker.counts.SessionsOpened != 1 {
		l.Errorf("the client is %v, %d sessions were opened", c.Phase(), l.worker.counts.SessionsOpened)
	}
	if w.direct[addr] > 0 || w.over[addr] == 0 {
		l.Errorf("%d datagrams leave directly, %d over the edge that the client comes over", w.direct[addr], w.over[addr])
	}
	return c
}

// TestForgedGuests: requests that nobody stands behind do not take the way back from
// clients that are there, however many come over another edge.
func TestForgedGuests(t *testing.T) {
	l, w := newTravelled(t)
	for i := range 140_000 {
		l.forged(i)
		if i%1000 == 0 {
			l.pass(time.Millisecond)
		}
	}
	addr := strayClient(1 << 20)
	l.join(w, addr)
	k := l.worker.keeper
	if l.worker.counts.GuestsDisplaced == 0 || len(k.guests.byAddr) > guestsMax {
		t.Errorf("%d guests were displaced, %d are known", l.worker.counts.GuestsDisplaced, len(k.guests.byAddr))
	}
	l.pass(guestTime + time.Second) // only its session says by now how it comes
	w.over[addr] = 0
	k.byAddr[addr].core.Conn().Close(dnp.CloseKicked)
	l.pass(time.Second)
	if w.direct[addr] > 0 || w.over[addr] == 0 {
		t.Errorf("the end: %d datagrams leave directly, %d over the edge that the client comes over", w.direct[addr], w.over[addr])
	}
	l.pass(20 * time.Second)
	if n := len(k.guests.byAddr) + len(k.guests.order) + k.over + len(k.byAddr); n > 0 {
		t.Errorf("%d traces are left of clients that are gone", n)
	}
}

// TestGreetedElsewhere: a client that begins while the edge drains, and whose balancer sends
// everything here, gets all of it to the edge that greets it.
func TestGreetedElsewhere(t *testing.T) {
	l, w := newTravelled(t)
	l.roster(map[string]cluster.Phase{"e1": cluster.PhaseDraining, "e2": cluster.PhaseReady})
	l.worker.keeper.drainNow(l.net.Now())
	for _, p := range [][]byte{{0, 1, 0, 0, 0}, {4, 0, 0}, {3, 0, 0, 0}} {
		l.worker.Deliver(l.net.Now(), "", 0, strayClient(1), p)
	}
	l.pass(strayTime)
	if !slices.Equal(w.forwarded, []string{"e2", "e2", "e2"}) || w.direct[strayClient(1)] > 0 {
		t.Errorf("forwarded to %q, want all of it to e2; answered directly %d times", w.forwarded, w.direct[strayClient(1)])
	}
}

// heirOf returns another edge with the same log, to which all clients come directly.
func (l *leaver) heirOf() (*leaver, *ways) {
	w := &ways{direct: map[netip.AddrPort]int{}, over: map[netip.AddrPort]int{}, to: func(netip.AddrPort, []byte) {}}
	heir := newLeaverOf(l.T, w, w)
	heir.worker.keeper.d.Log = l.worker.keeper.d.Log
	return heir, w
}

// passWith lets time go by for the log of another edge, too.
func (l *leaver) passWith(other *leaver, d time.Duration) {
	l.Helper()
	for range d / (10 * time.Millisecond) {
		l.pass(10 * time.Millisecond)
		other.net.Run(10 * time.Millisecond)
	}
}

// TestViaOfTheAdopted: over which edge a client comes is known of a session that is taken over
// because of its datagram, long after that waited, and of one that is taken over by name.
func TestViaOfTheAdopted(t *testing.T) {
	first, w := newTravelled(t)
	addr := strayClient(1)
	first.join(w, addr)
	want := func(why string, heir *leaver) {
		t.Helper()
		heir.passWith(first, 2*strayTime)
		k := heir.worker.keeper
		if x := k.byAddr[addr]; x == nil || x.via != "e2" {
			t.Errorf("%s: want it looked at, and its client to come over e2: %+v", why, x)
		}
	}
	heir, _ := first.heirOf()
	heir.worker.Deliver(heir.net.Now(), "e2", 1, addr, []byte{3, 0, 0, 0})
	want("because of a datagram", heir)
	heir, _ = first.heirOf()
	heir.worker.keeper.comesOver(heir.net.Now(), addr, "e2")
	heir.worker.adopt(heir.worker.keeper.name(addr), way{unheard: true}, "")
	want("by name", heir)
	heir, _ = first.heirOf()
	heir.worker.adopt(heir.worker.keeper.name(addr), way{via: "e2"}, "")
	want("by the word of who had it", heir)
}

// TestUnheard: nothing is sent to the client of a session that was taken over in silence
// before it is heard, or has gone the edge that it came over, if the balancer minds.
func TestUnheard(t *testing.T) {
	first, w := newTravelled(t)
	addr := strayClient(1)
	first.join(w, addr)
	for _, answerOnly := range []bool{false, true} {
		heir, w := first.heirOf()
		k := heir.worker.keeper
		k.d.AnswerOnly = answerOnly
		sends := func(why string, direct, over int) {
			t.Helper()
			w.direct[addr], w.over[addr] = 0, 0
			heir.worker.out.Send(addr, []byte{0})
			if w.direct[addr] != direct || w.over[addr] != over {
				t.Errorf("%s (answers only: %v): %d datagrams leave directly, %d over another edge; want %d and %d", why, answerOnly, w.direct[addr], w.over[addr], direct, over)
			}
		}
		unheard := 1
		if answerOnly {
			unheard = 0
		}
		heir.worker.adopt(k.name(addr), way{unheard: true}, "")
		heir.passWith(first, time.Second)
		if k.byAddr[addr] == nil {
			t.Fatal("the session is not being taken over")
		}
		sends("nothing came", unheard, 0)
		heir.worker.Deliver(heir.net.Now(), "", 0, addr, []byte{3, 0, 0, 0})
		sends("it comes directly", 1, 0)
		heir.worker.Deliver(heir.net.Now(), "e2", 1, addr, []byte{3, 0, 0, 0})
		sends("it comes over another edge", 0, 1)
		w.gone = true
		sends("that edge is gone", unheard, 0)
		heir.worker.Deliver(heir.net.Now(), "", 0, addr, []byte{3, 0, 0, 0})
		sends("it comes directly again", 1, 0)
		if k.over != 0 || (heir.worker.counts.Unheard > 0) != answerOnly {
			t.Errorf("%d clients do not come directly, %d datagrams were dropped", k.over, heir.worker.counts.Unheard)
		}
	}
}

// TestUnheardIsHanded: who gets a session is told that its client is unheard.
func TestUnheardIsHanded(t *testing.T) {
	l, first, second := newDrained(t)
	k := l.worker.keeper
	k.d.AnswerOnly = true
	x := k.byAddr[strayClient(1)]
	k.setWay(x, way{unheard: true})
	l.edge.BeginDrain()
	l.pass(time.Second)
	r := first.last
	if first.given+second.given != 1 || !r.Unheard || r.Via != "" {
		t.Fatalf("%d edges get it, the first as %+v", first.given+second.given, r)
	}
	heir, _ := l.heirOf()
	heir.worker.keeper.d.AnswerOnly = true
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	heir.edge.asked(bus.Msg{Data: data})
	heir.pass(10 * time.Millisecond)
	if y := heir.worker.keeper.byName[x.name]; y == nil || !y.unheard {
		t.Errorf("the next owner takes it as %+v", y)
	}
}

// TestGuests: it is remembered for a while over which edge a client came last.
func TestGuests(t *testing.T) {
	g, now := newGuests(), simnet.Epoch
	a, b := strayClient(1), strayClient(2)
	want := func(why string, addr netip.AddrPort, via string) {
		t.Helper()
		if got := g.via(addr); got != via {
			t.Errorf("%s: it comes over %q, want %q", why, got, via)
		}
	}
	g.note(now, a, "")
	want("it comes directly", a, "")
	if len(g.order) > 0 {
		t.Error("nothing is to be remembered of that")
	}
	g.note(now, a, "e2")
	g.note(now.Add(time.Second), b, "e3")
	g.note(now.Add(2*time.Second), a, "e4")
	g.advance(now.Add(guestTime))
	want("it was heard of since", a, "e4")
	want("its time has not come", b, "e3")
	g.advance(now.Add(guestTime + time.Second))
	want("silent for too long", b, "")
	want("not silent for so long", a, "e4")
	g.note(now.Add(guestTime+time.Second), a, "")
	want("it comes directly by now", a, "")
	g.advance(now.Add(2*guestTime + time.Second))
	if len(g.order)+len(g.byAddr) > 0 {
		t.Errorf("%d in order, %d are known, and all were silent", len(g.order), len(g.byAddr))
	}
	for i := range guestsMax {
		if g.note(now, strayClient(10+i), "e2") {
			t.Fatalf("guest %d has no room", i)
		}
	}
	if !g.note(now, a, "e2") || len(g.byAddr) != guestsMax {
		t.Errorf("one more has to displace another; %d are known", len(g.byAddr))
	}
	want("the oldest is forgotten", strayClient(10), "")
	want("the newest is known", a, "e2")
}
