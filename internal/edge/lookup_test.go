package edge

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/memaffinity"
	"github.com/dnprelay/dnprelay/dnp/udp"
	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// TestAskedAgain: an edge to which datagrams of a client come while another edge takes the
// session over asks until that one has it, and forwards them. To drop them costs the client
// one of the six attempts that it has.
func TestAskedAgain(t *testing.T) {
	l, w := newTravelled(t)
	addr, k := strayClient(1), l.worker.keeper
	hub := memaffinity.New(l.net.Now)
	k.d.Affinity = hub.Node("e1")
	dead, other, name := hub.Node("e3"), hub.Node("e2"), k.name(addr)
	dead.Claim(name, 1)
	dead.Leave()
	other.Try(name, cluster.Served{Node: "e3", Epoch: 1}, func(cluster.Served, error) {})

	l.worker.Deliver(l.net.Now(), "", 0, addr, []byte{3, 1, 0})
	l.worker.Deliver(l.net.Now(), "", 0, addr, []byte{3, 2, 0})
	l.pass(3*askAgainTime + 10*time.Millisecond)
	if len(w.forwarded) > 0 || len(k.byName) > 0 {
		t.Errorf("e2 tries: forwarded to %q; %d sessions are taken over", w.forwarded, len(k.byName))
	}
	other.Claim(name, 2)
	l.pass(askAgainTime)
	if !slices.Equal(w.forwarded, []string{"e2", "e2"}) {
		t.Errorf("e2 has it: forwarded to %q, want both datagrams to e2", w.forwarded)
	}
	l.pass(strayTime)
	if n := len(k.strays.byAddr) + len(k.strays.asked); n > 0 {
		t.Errorf("%d traces are left", n)
	}
}

// TestAskedInVain: one whose session nobody gets meanwhile is asked about for as long as its
// datagrams wait.
func TestAskedInVain(t *testing.T) {
	l := newLoser(t)
	other := strayClient(2)
	dead := l.hub.Node("e3")
	dead.Claim(l.worker.keeper.name(other), 1)
	dead.Leave()
	l.other.Try(l.worker.keeper.name(other), cluster.Served{Node: "e3", Epoch: 1}, func(cluster.Served, error) {})
	l.worker.Deliver(l.net.Now(), "", 0, other, []byte{3, 1, 0})
	l.pass(time.Second)
	if want := int(strayTime / askAgainTime); l.finds != want || l.tries != want {
		t.Errorf("it asked %d times and tried %d times, want %d", l.finds, l.tries, want)
	}
}

// TestAskedAnotherWorker: datagrams that come to a worker while another worker of the edge
// takes the session over by its name go to that one.
func TestAskedAnotherWorker(t *testing.T) {
	first, w := newTravelled(t)
	addr := strayClient(1)
	first.join(w, addr)
	heir, _ := first.heirOf()
	other, err := heir.edge.AddWorker(Listener{Addr: netip.MustParseAddrPort("127.0.0.1:3413")}, nothing{}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	other.adopt(heir.worker.keeper.name(addr), way{}, "")
	heir.worker.Deliver(heir.net.Now(), "", 0, addr, []byte{3, 0, 0, 0})
	for range 10 {
		if _, err := other.Turn(heir.net.Now(), []udp.Datagram(nil)); err != nil {
			t.Fatal(err)
		}
		heir.passWith(first, 10*time.Millisecond)
	}
	if got := heir.worker.counts.StraysForwarded; got != 1 || len(heir.worker.keeper.strays.byAddr) > 0 {
		t.Errorf("%d datagrams are passed on, %d clients wait, want 1 and 0", got, len(heir.worker.keeper.strays.byAddr))
	}
}

// TestLoginMeanwhile: when a client's callout answers while this edge takes its old session
// over, nothing is left of either attempt, so that its next datagram is looked up.
func TestLoginMeanwhile(t *testing.T) {
	for _, claiming := range []bool{false, true} {
		first, w := newTravelled(t)
		addr := strayClient(1)
		first.join(w, addr)
		heir, _ := first.heirOf()
		k := heir.worker.keeper
		name := k.name(addr)
		heir.worker.adopt(name, way{}, "")
		heir.passWith(first, 200*time.Millisecond)
		x := k.byName[name]
		if x.core.Phase() != sessionlog.Found {
			t.Fatalf("the session is %v, want ready: nobody told the edge the states of its space", x.core.Phase())
		}
		if claiming {
			x.core.Claim()
			k.wake(x)
			heir.pass(time.Millisecond) // the log is asked, and does not answer
		}
		heir.worker.ep.LogIn(heir.net.Now(), addr, &auth.Claims{Client: "c", Space: "s", Write: true}, heir.worker.out)
		heir.worker.handle(heir.net.Now(), heir.worker.ep.Advance(heir.net.Now(), heir.worker.out))
		if k.byName[name] == x || k.byName[name].core.Phase() != sessionlog.Opening {
			t.Fatal("the login did not begin a session")
		}
		heir.passWith(first, time.Second)
		if heir.worker.counts.SessionsElsewhere != 1 || len(k.byName) > 0 || k.byAddr[addr] != nil {
			t.Errorf("claiming %v: %d sessions are elsewhere, %v are left, want 1 and none", claiming, heir.worker.counts.SessionsElsewhere, k.byName)
		}
		if !x.dropped || len(k.waiting) > 0 {
			t.Errorf("claiming %v: it goes on to take the old session over, which nobody could find", claiming)
		}
		if k.w.edge.names.has(name, heir.edge.workers) {
			t.Errorf("claiming %v: nobody would look the client up", claiming)
		}
	}
}
