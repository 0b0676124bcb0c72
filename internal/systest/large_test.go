package systest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// TestLargeSpace repairs replicas of a space whose answers have several parts, most of
// which get lost, while the space is idle, so that parts of different answers are of
// the same position. No state may ever be missing.
func TestLargeSpace(t *testing.T) { repeated(t, 2, largeSpace) }

func largeSpace(t *testing.T, seed uint64) {
	const states = 14 // of 50 kB each, so that three or four parts make the space
	g := newRing(t, seed, 1)
	rng := rand.New(rand.NewPCG(seed, 4))
	g.edges = []*simEdge{g.startEdge(wire.Denetwork, nil), g.startEdge(wire.Denetwork, nil)}
	put := func(i int) {
		value := fmt.Sprintf(`{"type":"string","value":%q}`, strings.Repeat(fmt.Sprint(rng.IntN(10)), 1000))
		values := strings.TrimSuffix(strings.Repeat(value+",", 50), ",")
		g.mustPublish("s", fmt.Sprintf(`{"op":"put","key":"k%d","audience":{"groups":["none"]},"values":[%s]}`, i, values))
	}
	for i := range states {
		put(i)
	}
	for _, e := range g.edges {
		g.play(e)
	}
	g.within(5*time.Second, "both have all", func() bool { return g.complete(states) })
	for range 6 {
		for _, e := range g.edges { // everything is different when they are back, and too long ago for batches
			e.bus.SetConnected(false)
		}
		for i := range states {
			put(i)
		}
		g.net.Run(5 * time.Second)
		g.hub.Loss, g.hub.Duplicate, g.hub.Jitter = 0.4, 0.4, 300*time.Millisecond
		for _, e := range g.edges {
			e.bus.SetConnected(true)
		}
		g.net.RunUntil(20*time.Second, func() bool {
			for _, e := range g.edges {
				if n := e.worker.Replica(audited).Len(); n != states {
					t.Fatalf("%s has %d states, none was ever removed", e.node, n)
				}
			}
			return g.complete(states)
		})
		g.hub.Loss, g.hub.Duplicate, g.hub.Jitter = 0, 0, 0
		g.within(2*time.Second, "both have all again", func() bool { return g.complete(states) })
		g.audit.step()
	}
	g.audit.check()
}

// complete reports whether every edge has that many states and lacks nothing.
func (g *ring) complete(states int) bool {
	_, store := g.authority()
	for _, e := range g.edges {
		if r := e.worker.Replica(audited); r == nil || store == nil || !at(r, store) || r.Len() != states {
			return false
		}
	}
	return true
}
