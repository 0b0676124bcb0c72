package edge

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/memaffinity"
)

// An other is what an edge answers that sessions are handed to.
type other struct {
	prepares, adopts bool
	asked, given     int // to prepare; sessions
	last             edgeRequest
}

// others puts edges on the bus.
func (l *leaver) others(nodes map[string]*other) {
	l.Helper()
	for node, o := range nodes {
		_, err := l.other.Subscribe(l.edge.cfg.Subjects.Edge(node), func(m bus.Msg) {
			var r edgeRequest
			if err := json.Unmarshal(m.Data, &r); err != nil {
				l.Error(err)
			}
			ok := o.prepares
			if r.Adopt != "" {
				o.given++
				o.last = r
				ok = o.adopts
			} else {
				o.asked++
			}
			answer := answerRefused
			if ok {
				answer = answerDone
			}
			_ = l.other.Publish(bus.Msg{Subject: m.Reply, Data: answer})
		})
		if err != nil {
			l.Fatal(err)
		}
	}
}

// newDrained returns an edge with a session, and two that may get it: first is the one
// that hashing chooses.
func newDrained(t *testing.T) (l *leaver, first, second *other) {
	l, w := newTravelled(t)
	addr := strayClient(1)
	l.join(w, addr)
	w.to = func(netip.AddrPort, []byte) {}
	first, second = &other{prepares: true, adopts: true}, &other{prepares: true, adopts: true}
	l.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady, "e2": cluster.PhaseReady, "e3": cluster.PhaseReady})
	nodes := map[string]*other{"e2": first, "e3": second}
	if l.edge.roster.heir(l.worker.keeper.name(addr), false) == "e3" {
		nodes = map[string]*other{"e3": first, "e2": second}
	}
	l.others(nodes)
	return l, first, second
}

// drained wants that so many sessions were given to each of the two.
func (l *leaver) drained(why string, first, second *other, given ...int) {
	l.Helper()
	if first.given != given[0] || second.given != given[1] {
		l.Errorf("%s: the first got %d sessions, the second %d, want %d", why, first.given, second.given, given)
	}
}

// TestDrainPrepared: sessions go to edges that have the states of their spaces, a moment
// after these were asked.
func TestDrainPrepared(t *testing.T) {
	l, first, second := newDrained(t)
	l.edge.BeginDrain()
	l.pass(prepareTime - 5*time.Millisecond)
	l.drained("others may be prepared in a moment", first, second, 0, 0)
	l.pass(15 * time.Millisecond)
	l.drained("both are prepared, and one is the heir", first, second, 1, 0)
	if n := l.edge.Kept(); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

// TestDrainUnprepared: an edge that does not have them gets no session while another does.
func TestDrainUnprepared(t *testing.T) {
	l, first, second := newDrained(t)
	first.prepares = false
	l.edge.BeginDrain()
	l.pass(prepareTime + 10*time.Millisecond)
	l.drained("the first has no states, and would leave the session alone until it has", first, second, 0, 1)
	if n := l.edge.Kept(); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

// TestDrainWaits: sessions stay where they are until somebody is prepared.
func TestDrainWaits(t *testing.T) {
	l, first, second := newDrained(t)
	first.prepares, second.prepares = false, false
	l.edge.BeginDrain()
	l.pass(5 * time.Second)
	l.drained("nobody has the states", first, second, 0, 0)
	if first.asked < 4 || first.asked > 6 {
		t.Errorf("the first is asked %d times in five seconds, want once a second", first.asked)
	}
	second.prepares, second.adopts = true, false
	l.pass(heirPause + drainRound)
	l.drained("the second has them by now", first, second, 0, 1)
	k := l.worker.keeper
	if heir := k.heir(l.net.Now(), "any"); heir != "" {
		t.Errorf("%s did not take a session, and is to be given another at once", heir)
	}
	l.pass(heirPause + drainRound)
	if k.heir(l.net.Now(), "any") == "" {
		t.Error("it says again that it is prepared, and is to be given none")
	}
}

// TestGivenAway: what a client says while its session has no owner waits for the next one.
// The last owner, which the affinity still knows, does not take it back.
func TestGivenAway(t *testing.T) {
	l, w := newTravelled(t)
	addr := strayClient(1)
	c := l.join(w, addr)
	k := l.worker.keeper
	name := k.name(addr)
	k.d.Affinity = memaffinity.New(l.net.Now).Node("e1")
	k.claim(k.byAddr[addr])
	l.roster(map[string]cluster.Phase{"e1": cluster.PhaseDraining, "e2": cluster.PhaseReady})
	next := ""
	if _, err := l.other.Subscribe(l.edge.cfg.Subjects.Edge("e2"), func(m bus.Msg) {
		if strings.Contains(string(m.Data), "adopt") {
			next = m.Reply
			return
		}
		_ = l.other.Publish(bus.Msg{Subject: m.Reply, Data: answerDone})
	}); err != nil {
		t.Fatal(err)
	}
	k.drainNow(l.net.Now())
	for end := l.net.Elapsed() + time.Second; next == "" && l.net.Elapsed() < end; {
		l.pass(time.Millisecond)
	}
	w.forwarded = nil
	_ = c.Send(l.net.Now(), []byte("in between"))
	neighbour, err := l.edge.AddWorker(Listener{Addr: netip.MustParseAddrPort("127.0.0.1:3413")}, w, func() {})
	if err != nil {
		t.Fatal(err)
	}
	neighbour.Deliver(l.net.Now(), "", 0, addr, []byte{3, 0, 0, 0})
	for range 20 {
		l.pass(time.Millisecond)
		if _, err := neighbour.Turn(l.net.Now(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if l.edge.Kept() != 1 || k.byName[name] != nil || neighbour.keeper.byName[name] != nil || len(w.forwarded) > 0 {
		t.Errorf("it is taken back: %v, by another worker: %v; forwarded to %q before anybody has it",
			k.byName[name] != nil, neighbour.keeper.byName[name] != nil, w.forwarded)
	}
	_ = l.other.Publish(bus.Msg{Subject: next, Data: answerDone})
	for range 20 {
		l.pass(time.Millisecond)
		if _, err := neighbour.Turn(l.net.Now(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(w.forwarded, []string{"e2", "e2"}) || k.drain.given > 0 {
		t.Errorf("what waited at both workers was forwarded to %q, and %d are still waited for", w.forwarded, k.drain.given)
	}
}

// TestGivenToTheOwner: an edge that is given what it has, as the log says, answers that it has
// it, once, and goes on.
func TestGivenToTheOwner(t *testing.T) {
	l, w := newTravelled(t)
	addr := strayClient(1)
	l.join(w, addr)
	var answers []string
	if _, err := l.other.Subscribe("asker", func(m bus.Msg) { answers = append(answers, string(m.Data)) }); err != nil {
		t.Fatal(err)
	}
	l.worker.adopt(l.worker.keeper.name(addr), way{via: "e2"}, "asker")
	l.pass(time.Second)
	x := l.worker.keeper.byAddr[addr]
	if !slices.Equal(answers, []string{string(answerDone)}) || !l.worker.Keeps(addr) || x.again != nil || x.asker != "" {
		t.Errorf("it answers %q and has the session: %v; %+v is left of that", answers, l.worker.Keeps(addr), x.again)
	}
}
