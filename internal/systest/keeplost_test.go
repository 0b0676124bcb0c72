package systest

import (
	"slices"
	"testing"
	"time"
)

// ownerByLog returns the edge that the log of a client's session names, dead or alive.
func (p *keepPlayer) ownerByLog() *keepEdge {
	node := p.w.fence.of(p.log()).node
	return p.w.edges[slices.IndexFunc(p.w.edges, func(e *keepEdge) bool { return e.name == node })]
}

// TestLostToTheDead stops the edge of a silent client, and kills the edge that takes the
// session over when the log has its ADOPT and its claim is not written. The first edge goes on,
// so no edge looks after its claims, and learns that the session is another's. It takes the
// session back, although the other edge, which knows nothing of it, has started again by then.
func TestLostToTheDead(t *testing.T) {
	for seed := range uint64(4) {
		w, p, first := silentClient(t, seed)
		first.pause(time.Second)
		w.within(time.Second, "another edge writes ADOPT", func() bool { return p.ownerByLog() != first })
		next := p.ownerByLog()
		if p.owner() != first {
			t.Fatalf("%s claims the session already", next.name)
		}
		next.ends()
		w.net.Schedule(time.Second, next.boot)
		w.within(4*time.Second, "the session has an owner again", func() bool {
			o := p.ownerByLog()
			return o.alive && o.keeps(p) && p.owner() == o
		})
		w.net.Run(3 * time.Second)
		if n := p.owners(); n != 1 {
			t.Errorf("seed %d: the session has %d owners", seed, n)
		}
	}
}
