package systest

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/simnet"
)

// pauseMost is how long a client may be without datagrams while its session is handed
// over, and when its balancer sends to another edge.
const pauseMost = 50 * time.Millisecond

// A pauseWatch is a client that notes how long it is without datagrams.
type pauseWatch struct {
	*keepPlayer
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
	p.keepPlayer.Receive(now, from, b)
}

// drainWatched drains an edge and returns the longest pause of each client whose session
// it had. The balancer sends to others 200 ms after all sessions are gone; that is before
// the edge ends.
func (w *keepWorld) drainWatched(watches []*pauseWatch, e *keepEdge) (pauses []time.Duration) {
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
	w.within(4*time.Second, "it comes again", e.well)
	w.net.Run(200 * time.Millisecond) // all know that
	return pauses
}

// TestDrainPause: edges are drained while a state changes every 10 ms, on a path and with
// a log that only take their time.
func TestDrainPause(t *testing.T) {
	var pauses []time.Duration
	for i := range 3 {
		w := newKeepWorld(t, uint64(3+i*len(keepPlans))) // the plan is that of drains, which this test does itself
		w.net.SetDefault(simnet.Path{Delay: 5 * time.Millisecond})
		w.strict = true
		var watches []*pauseWatch
		for _, p := range w.players {
			x := &pauseWatch{keepPlayer: p}
			watches = append(watches, x)
			w.net.Attach(p.addr, x)
			p.begin()
			if p.index == keepPlayers-1 { // who never speaks keeps the balancer where it is
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
		t.Fatalf("%d sessions moved, which shows nothing", len(pauses))
	}
	t.Logf("%d sessions moved: pause p50 %v, longest %v", len(pauses), pauses[len(pauses)/2], pauses[len(pauses)-1])
	if longest := pauses[len(pauses)-1]; longest > pauseMost {
		t.Errorf("a client waits for %v", longest)
	}
}
