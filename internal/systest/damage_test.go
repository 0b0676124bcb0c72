package systest

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// TestDamage changes batches on their way to edges, as no network should, and as a
// mistake in a codec or in memory would. Checksums find it, repair heals it, within a
// second after the last change.
func TestDamage(t *testing.T) { repeated(t, 8, damage) }

func damage(t *testing.T, seed uint64) {
	g := newRing(t, seed, 3)
	rng := rand.New(rand.NewPCG(seed, 4))
	g.edges = []*simEdge{g.startEdge(wire.Denetwork, nil), g.startEdge(wire.Denetwork, nil)}
	for i := range 4 {
		g.play(g.edges[i%2])
	}
	m := newMirror(g.world, rng, kindPair, kindNullable, kindWide)
	g.audit.damaged = true
	g.hub.Duplicate, g.hub.Jitter = 0.3, 80*time.Millisecond // a repair is often followed by another one
	g.hub.Damage = func(to string, msg bus.Msg) bus.Msg {
		if strings.HasPrefix(to, "edge") && msg.Subject == g.subjects.Live(audited) && rng.IntN(5) == 0 {
			msg.Data = bytes.Clone(msg.Data)
			msg.Data[len(msg.Data)-1] ^= 1 << rng.IntN(8) // the last byte of a value, mostly
		}
		return msg
	}
	for range 200 {
		m.change()
		g.net.Run(50 * time.Millisecond)
	}
	g.hub.Damage = nil
	g.net.Run(healMax)
	_, store := g.authority()
	found := uint64(0)
	for _, e := range g.edges {
		r := e.worker.Replica(audited)
		found += r.Stats().Divergence
		if d := differ(store, r); d != "" {
			t.Errorf("%s differs %v after the last change: %s", e.node, healMax, d)
		}
	}
	g.audit.check()
	if found == 0 {
		t.Error("no checksum differed, so nothing was tested")
	}
	m.repeat()
	g.net.Run(5 * time.Second)
	for i, p := range g.audit.players {
		m.check(t, p, i)
		m.checkGone(t, p, i)
	}
}
