package systest

import (
	"fmt"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// TestStoreWiped makes the durable store anew while relays hold shards with states that were
// stored, that changed since, and that were removed, while the store answers or after it was
// silent for so long that the relays gave their shards up. What the holder had is served and
// stored again: the relay that takes over when it dies has it, and nothing that was removed.
func TestStoreWiped(t *testing.T) { repeated(t, 24, storeWiped) }

func storeWiped(t *testing.T, seed uint64) {
	silence, wiped, deaf := []time.Duration{0, time.Second, 30 * time.Second}[seed%3], seed/3%2 == 0, seed/6%2 == 0
	g := newRing(t, seed, 2)
	e := g.startEdge(wire.Denetwork, nil)
	g.net.Run(time.Second)
	p := g.join(e, dnptest.Cpp(), dnptest.App{})
	state := func(key string, n int) {
		g.mustPublish("s", fmt.Sprintf(`{"op":"put","key":%q,"message":%q,"values":[{"name":"n","type":"uint16","value":%d}]}`, key, key, n))
	}
	for i, key := range []string{"a", "b", "c", "d"} {
		state(key, i)
	}
	g.net.Run(2 * time.Second)
	g.within(time.Second, "the client sees the states", func() bool { return p.has("d", 0, u16(3)) })

	silent := g.leases.SetSilent // of what it is asked meanwhile, it does half
	if deaf {                    // or nothing
		silent = func(silent bool) {
			for _, r := range g.relays {
				g.leases.Cut(r.name, silent)
			}
		}
	}
	silent(silence > 0)
	state("b", 7) // not stored, if the store is silent
	g.mustPublish("s", `{"op":"remove","key":"c"}`)
	state("e", 8)
	g.net.Run(silence)
	holder, epoch := g.holder("s"), g.leases.Epoch(cluster.Shard("s", simShards))
	if wiped {
		g.leases.Wipe()
	}
	silent(false)
	g.within(5*time.Second, "a relay serves the space again", func() bool { return g.held("s") != "" && g.holder("s").store("s") != nil })
	g.net.Run(5 * time.Second)
	if now := g.leases.Epoch(cluster.Shard("s", simShards)); g.holder("s") != holder || wiped && now <= epoch {
		t.Fatalf("seed %d: %s holds the space in epoch %d after %s in %d", seed, g.held("s"), now, holder.name, epoch)
	}
	check := func(why string) {
		t.Helper()
		sees := func() bool {
			return p.has("a", 0, u16(0)) && p.has("b", 0, u16(7)) && p.LinkNamed("c") == nil && p.has("d", 0, u16(3)) && p.has("e", 0, u16(8))
		}
		g.within(5*time.Second, fmt.Sprintf("seed %d: the client sees what was published: %s", seed, why), sees)
		list := g.holder("s").store("s").List("", 100)
		if len(list.States) != 4 {
			t.Errorf("seed %d: the holder has %d states, want a, b, d and e: %s", seed, len(list.States), why)
		}
	}
	check("the holder holds the shard again")
	g.die(holder)
	g.within(10*time.Second, "the other relay takes over", func() bool { return g.held("s") != holder.name && g.holder("s").store("s") != nil })
	g.net.Run(5 * time.Second) // until the client sees what that relay has
	check("another relay loaded it")
	for _, v := range g.leases.Violations {
		t.Errorf("seed %d: %s", seed, v)
	}
}
