package systest

import (
	"net/netip"
	"testing"
	"time"
)

// A balancer that tracks connections, such as kube-proxy, lets only answers of the edge through
// that it sends a client to. An edge that sends to a client that never came there leaves an
// entry for the pair of addresses, and when the balancer moves the client to that edge, the
// entry is taken: the client gets another port, and is a stranger to all edges.
var trackedPlans = []keepPlan{
	{name: "tracked, drain", drains: true, loss: 0.02, tracked: true},
	{name: "tracked, kill", kills: true, drains: true, loss: 0.02, tracked: true},
	{name: "tracked, lies", drains: true, lies: 0.1, loss: 0.01, tracked: true},
}

// keepLeave is for how long clients speak after the last trouble: edges that leave are gone
// then. Behind such a balancer no edge can send to a client that was silent since its edge went.
const keepLeave = 6 * time.Second

// tracks judges a datagram that leaves for a client.
func (k *keepWorker) tracks(to netip.AddrPort, b []byte) {
	if w := k.e.w; w.tracked && !k.e.heard[to] {
		w.failf("%s sends % x to player %d, who never came there", k.e.name, b[:min(len(b), 8)], w.player(to).index)
	}
}

// rerouted has the balancer send the clients of an edge that leaves to others, with their next
// datagrams.
func (e *keepEdge) rerouted() {
	for _, p := range e.w.players {
		if o := e.w.living(); p.route == e && o != e && !o.draining {
			p.next = o
		}
	}
}

// TestKeepTracked plays clients behind such a balancer, which moves them at any time of the
// drains of their edges. Nothing may be sent to a client where it never came, and otherwise
// everything is as in TestKeep, of whose seeds it plays a tenth.
func TestKeepTracked(t *testing.T) {
	n := uint64(max(*keepSeeds/10, min(*keepSeeds, len(trackedPlans))))
	for s := *keepFirst; s < *keepFirst+n && !t.Failed(); s++ {
		w := newKeepWorldOf(t, s, trackedPlans[s%uint64(len(trackedPlans))])
		for _, e := range w.play() {
			t.Errorf("seed %d (%s): %s", s, w.name, e)
		}
		if t.Failed() {
			t.Logf("repeat with -keep-first %d -keep-seeds 1 -keep-story", s)
		}
	}
}
