package takeover

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/memaffinity"
	"github.com/dnprelay/dnprelay/sessionlog"
)

var errRefused = errors.New("the other edge refuses")

// An other is what an edge answers that sessions are handed to.
type other struct {
	prepares, adopts bool
	asked, given     int // to prepare; sessions
	last             Request
}

// newDrained returns an edge with a session, and two that may get it: first is the one
// that hashing chooses.
func newDrained(t *testing.T) (e *testEdge, first, second *other) {
	e = newTestEdge(t)
	addr := clientAddr(1)
	e.join(addr)
	e.toClient = func(netip.AddrPort, []byte) {}
	first, second = &other{prepares: true, adopts: true}, &other{prepares: true, adopts: true}
	e.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady, "e2": cluster.PhaseReady, "e3": cluster.PhaseReady})
	nodes := map[string]*other{"e2": first, "e3": second}
	if e.view.successor(e.workers[0].t.name(addr)) == "e3" {
		nodes = map[string]*other{"e3": first, "e2": second}
	}
	e.ask = func(node string, r Request, answer func(error)) {
		o := nodes[node]
		ok := o.prepares
		if r.Adopt != "" {
			o.given++
			o.last = r
			ok = o.adopts
		} else {
			o.asked++
		}
		e.net.Schedule(time.Millisecond, func() {
			if ok {
				answer(nil)
			} else {
				answer(errRefused)
			}
		})
	}
	return e, first, second
}

// drained wants that so many sessions were given to each of the two.
func (e *testEdge) drained(why string, first, second *other, given ...int) {
	e.Helper()
	if first.given != given[0] || second.given != given[1] {
		e.Errorf("%s: the first got %d sessions, the second %d, want %d", why, first.given, second.given, given)
	}
}

// TestDrainPrepared: sessions go to edges that have the states of their spaces, a moment
// after these were asked.
func TestDrainPrepared(t *testing.T) {
	e, first, second := newDrained(t)
	w := e.workers[0]
	w.t.Drain(e.net.Now())
	e.pass(prepareTime - 5*time.Millisecond)
	e.drained("others may be prepared in a moment", first, second, 0, 0)
	e.pass(15 * time.Millisecond)
	e.drained("both are prepared, and one is the successor", first, second, 1, 0)
	if n := w.t.Count(); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

// TestQueuedLost: messages for which a hand-over had no room are counted.
func TestQueuedLost(t *testing.T) {
	e, _, _ := newDrained(t)
	w := e.workers[0]
	w.t.act(e.net.Now(), w.session(clientAddr(1)), sessionlog.Action{Kind: sessionlog.ActionHanded, Node: "e2", Lost: 3})
	if n := w.t.counts.QueuedLost; n != 3 {
		t.Errorf("%d messages are counted, want 3", n)
	}
}

// TestDrainUnprepared: an edge that does not have them gets no session while another does.
func TestDrainUnprepared(t *testing.T) {
	e, first, second := newDrained(t)
	first.prepares = false
	e.workers[0].t.Drain(e.net.Now())
	e.pass(prepareTime + 10*time.Millisecond)
	e.drained("the first has no states, and would leave the session alone until it has", first, second, 0, 1)
	if n := e.workers[0].t.Count(); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

// TestDrainOtherPort: an edge that does not listen on the port of the clients is not asked, and gets no session.
func TestDrainOtherPort(t *testing.T) {
	e, first, second := newDrained(t)
	at := func(name string, port uint16) cluster.Member {
		return cluster.Member{Name: name, Role: cluster.RoleEdge, Phase: cluster.PhaseReady, Addresses: []cluster.Address{{Service: cluster.ServiceDNP, Addr: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), port)}}}
	}
	ports := map[string]uint16{"e2": listener, "e3": listener}
	ports[e.view.successor(e.workers[0].t.name(clientAddr(1)))]++
	e.view, _ = e.view.With(cluster.NewRoster([]cluster.Member{at("e1", listener), at("e2", ports["e2"]), at("e3", ports["e3"])}))
	e.workers[0].t.Drain(e.net.Now())
	e.pass(prepareTime + 10*time.Millisecond)
	e.drained("the first listens on another port", first, second, 0, 1)
	if first.asked != 0 {
		t.Errorf("it was asked %d times to prepare", first.asked)
	}
}

// TestDrainWaits: sessions stay where they are until an edge is prepared.
func TestDrainWaits(t *testing.T) {
	e, first, second := newDrained(t)
	first.prepares, second.prepares, e.complete = false, false, false
	w := e.workers[0]
	w.t.Drain(e.net.Now())
	e.pass(5 * time.Second)
	e.drained("no edge has the states", first, second, 0, 0)
	w.wantPhase("no edge has the states", clientAddr(1), Serving)
	if first.asked < 4 || first.asked > 6 {
		t.Errorf("the first is asked %d times in five seconds, want once a second", first.asked)
	}
	second.prepares, second.adopts = true, false
	e.pass(candidatePause + drainRound)
	e.drained("the second has them by now", first, second, 0, 1)
	successor := func() string {
		return w.t.drainer.candidates.successor(e.net.Now(), "any", e.view.ready())
	}
	if node := successor(); node != "" {
		t.Errorf("%s did not take a session, and is to be given another at once", node)
	}
	e.pass(candidatePause + drainRound)
	if successor() == "" {
		t.Error("it says again that it is prepared, and is to be given none")
	}
}

// TestGivenAway: what a client says while its session has no owner waits for the next one.
// The last owner, which the affinity still knows, does not take it back.
func TestGivenAway(t *testing.T) {
	e, addr := newTestEdge(t), clientAddr(1)
	c := e.join(addr)
	w := e.workers[0]
	e.claimIn(memaffinity.New(e.net.Now).Node("e1"))
	w.t.publishClaim(w.session(addr))
	e.roster(map[string]cluster.Phase{"e1": cluster.PhaseDraining, "e2": cluster.PhaseReady})
	var consent func(error)
	e.ask = func(_ string, r Request, answer func(error)) {
		if r.Adopt != "" {
			consent = answer
			return
		}
		answer(nil)
	}
	w.t.Drain(e.net.Now())
	for end := e.net.Elapsed() + time.Second; consent == nil && e.net.Elapsed() < end; {
		e.pass(time.Millisecond)
	}
	e.forwarded = nil
	_ = c.Send(e.net.Now(), []byte("in between"))
	neighbour := e.addWorker()
	neighbour.deliver(addr, "", 3, 0, 0, 0)
	e.pass(20 * time.Millisecond)
	w.wantPhase("the next owner has not consented", addr, Given)
	neighbour.wantPhase("another worker does not take it back", addr, Over)
	if len(e.forwarded) > 0 || w.t.Count() != 1 {
		t.Errorf("forwarded to %q before any edge has it; %d sessions are waited for", e.forwarded, w.t.Count())
	}
	consent(nil)
	e.pass(20 * time.Millisecond)
	w.wantPhase("the next owner has it", addr, Over)
	if !slices.Equal(e.forwarded, []string{"e2", "e2"}) || w.t.Count() > 0 {
		t.Errorf("what waited was forwarded to %q, and %d sessions are still waited for", e.forwarded, w.t.Count())
	}
	if kind, worker, node := e.locations.locate(e.net.Now(), w.t.client(addr)); kind != placeElsewhere || node != "e2" {
		t.Errorf("the client is at %d, worker %d, edge %q, want e2", kind, worker, node)
	}
}

// TestGivenComesBack: a session that the next owner refuses goes on here, with the path that
// its client comes by; one that another edge or worker gives back is taken over at once.
func TestGivenComesBack(t *testing.T) {
	for _, given := range []bool{false, true} {
		e, first, _ := newDrained(t)
		w, addr := e.workers[0], clientAddr(1)
		var answer func(error)
		ask := e.ask
		e.ask = func(node string, r Request, a func(error)) {
			if answer == nil && r.Adopt != "" {
				answer = a
				return
			}
			ask(node, r, a)
		}
		first.adopts = false
		w.t.Drain(e.net.Now())
		e.pass(prepareTime + 10*time.Millisecond)
		w.wantPhase("the log says that it was given away", addr, Given)
		if given {
			w.t.Give(w.t.name(addr), Path{Edge: "e2"}, "")
			e.pass(20 * time.Millisecond)
		}
		answer(errRefused)
		e.pass(20 * time.Millisecond)
		w.wantPhase("it is back", addr, Serving)
		if s := w.session(addr); s == nil || s.path.Edge != "e2" || s.Log.Epoch() != 2 {
			t.Errorf("given back: %v: it is %+v, want it to come over e2, in epoch 2", given, s)
		}
	}
}

// TestGivenToTheOwner: an edge that is given what it has, as the log says, answers that it has
// it, once, and goes on.
func TestGivenToTheOwner(t *testing.T) {
	e, addr := newTestEdge(t), clientAddr(1)
	e.join(addr)
	w := e.workers[0]
	w.t.Give(w.t.name(addr), Path{Edge: "e2"}, "asker")
	w.wantPhase("the log has to say which edge has it", addr, Revalidating)
	e.pass(time.Second)
	w.wantPhase("it still has it", addr, Serving)
	if s := w.session(addr); !slices.Equal(e.replies, []bool{true}) || s.givenBack != nil || s.asker != "" {
		t.Errorf("it answers %v; %+v is left of that", e.replies, s.givenBack)
	}
}

// TestDrainLongRound: a worker that drains more sessions than one round has time for is not
// due before the next hand-over.
func TestDrainLongRound(t *testing.T) {
	e, _, _ := newDrained(t)
	w := e.workers[0]
	w.t.Drain(e.net.Now())
	e.pass(prepareTime - time.Millisecond)
	e.net.Run(time.Millisecond)
	now := e.net.Now()
	d := &w.t.drainer
	d.candidates.answered(now, "e2", []string{"s"}, nil)
	for range edgeHandOversPerSecond {
		d.queue = append(d.queue, "gone")
	}
	d.look = now
	for ; len(d.queue) > 0; now = now.Add(10 * time.Millisecond) {
		if next := d.advanceDrain(now, now.Add(time.Hour)); !next.After(now) && len(d.queue) > 0 {
			t.Fatalf("with %d sessions to hand over, it is due at once", len(d.queue))
		}
	}
}
