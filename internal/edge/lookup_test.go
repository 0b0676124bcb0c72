package edge

import (
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/memaffinity"
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
