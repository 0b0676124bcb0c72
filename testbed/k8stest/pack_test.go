//go:build linux

package k8stest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// place returns a placement on three nodes: "edge kn1 kn2" are two edges.
func place(lines ...string) placement {
	p := placement{nodes: []string{"kn1", "kn2", "kn3"}}
	for _, line := range lines {
		f := strings.Fields(line)
		for i, n := range f[1:] {
			p.pods = append(p.pods, placed{pod: pod{name: fmt.Sprint(f[0], "-", i), node: n}, kind: f[0], ready: true})
		}
	}
	return p
}

// TestFull requires an error that names the kind of which a node has too few or too many.
func TestFull(t *testing.T) {
	for _, c := range []struct {
		p    placement
		want string // in the error; empty for none
	}{
		{place("edge kn1 kn2", "relay kn1 kn3", "nats kn1 kn2 kn3", "redis kn1"), ""},
		{place("edge kn1 kn2", "relay kn1 kn3", "nats kn1 kn2 kn3", "redis kn1 kn3"), ""},
		{place("edge kn1 kn1 kn2", "relay kn1 kn3", "nats kn1 kn2 kn2", "redis kn1"), ""},
		{place("edge kn1 kn2", "relay kn1 kn3", "nats kn1 kn2 kn3"), ""}, // sessions are not durable
		{place("edge kn1 kn1", "relay kn1 kn3", "nats kn1 kn2 kn3", "redis kn1"), "2 of 2 pods of kind edge"},
		{place("edge kn3 kn2", "relay kn1 kn3", "nats kn1 kn2 kn3", "redis kn1"), "0 of 2 pods of kind edge"},
		{place("edge kn1 kn2", "relay kn1 kn1", "nats kn1 kn2 kn3", "redis kn1"), "2 of 2 pods of kind relay"},
		{place("edge kn1 kn2", "relay kn2 kn3", "nats kn1 kn2 kn3", "redis kn1"), "0 of 2 pods of kind relay"},
		{place("edge kn1 kn2", "relay kn1 kn3", "nats kn1 kn1 kn3", "redis kn1"), "2 of 3 pods of kind nats"},
		{place("edge kn1 kn2", "relay kn1 kn3", "nats kn2 kn2 kn3", "redis kn1"), "0 of 3 pods of kind nats"},
		{place("edge kn1 kn2", "relay kn1 kn3", "nats kn1 kn2 kn3", "redis kn2"), "0 of 1 pods of kind redis"},
		{place("edge kn1 kn2", "relay kn1 kn3", "nats kn1 kn2 kn3", "redis kn1 kn1"), "2 of 2 pods of kind redis"},
	} {
		err := c.p.full("kn1")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.p, err, c.want)
		}
	}
}

// TestCheapest: the node that needs the cheapest moves becomes the full one, and stays it.
func TestCheapest(t *testing.T) {
	for _, c := range []struct {
		p               placement
		preferred, want string
	}{
		{place("edge kn1 kn2", "relay kn1 kn3", "nats kn1 kn2 kn3", "redis kn3"), "", "kn3"}, // an edge moves, and not Redis
		{place("edge kn1 kn2", "relay kn1 kn2", "nats kn1 kn2 kn3", "redis kn1 kn2"), "", "kn1"},
		{place("edge kn1 kn2", "relay kn1 kn2", "nats kn1 kn2 kn3", "redis kn1 kn2"), "kn2", "kn2"},
		{place("edge kn1 kn2", "relay kn1 kn2", "nats kn1 kn2 kn3", "redis kn1"), "kn2", "kn1"}, // kn2 is no longer full
		{place("edge kn1 kn2", "relay kn1 kn2", "nats kn1 kn2 kn3", "redis kn1"), "kn7", "kn1"},
	} {
		if got := c.p.cheapest(c.preferred); got != c.want {
			t.Errorf("%s: %s becomes full, want %s (preferred: %q)", c.p, got, c.want, c.preferred)
		}
	}
}

// TestPack packs any placement, where the scheduler puts each pod on any node that takes it.
func TestPack(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	worst := 0
	for round := range 2000 {
		p := place("edge 0 0"+strings.Repeat(" 0", rng.IntN(3)), "relay 0 0", "nats 0 0 0", "redis 0"+strings.Repeat(" 0", rng.IntN(2)))
		for i := range p.pods {
			p.pods[i].node = p.nodes[rng.IntN(3)]
		}
		start, moves := p.String(), 0
		if err := p.possible(true); err != nil {
			t.Fatal(err)
		}
		node, err := p.pack("", func(m podMove) (placement, error) {
			moves++
			takes := slices.DeleteFunc(slices.Clone(p.nodes), func(n string) bool { return slices.Contains(m.closed, n) })
			i := slices.IndexFunc(p.pods, func(at placed) bool { return at.name == m.name })
			if len(takes) == 0 || slices.Contains(takes, m.node) {
				t.Fatalf("round %d: %s on %s moves to %v: %s", round, m.name, m.node, takes, p)
			}
			p.pods[i].node = takes[rng.IntN(len(takes))]
			return p, nil
		})
		if err == nil {
			err = p.full(node)
		}
		if err != nil {
			t.Fatalf("round %d: from %s: %v", round, start, err)
		}
		worst = max(worst, moves)
	}
	if worst > movesMax/2 {
		t.Errorf("up to %d moves, of %d that are allowed", worst, movesMax)
	}
}

// TestPackFails: where the scheduler puts pods back, packing ends with an error that says what is
// missing, and so it does where a move fails.
func TestPackFails(t *testing.T) {
	p, moves := place("edge kn2 kn3", "relay kn1 kn3", "nats kn1 kn2 kn3", "redis kn1"), 0
	_, err := p.pack("", func(podMove) (placement, error) { moves++; return p, nil })
	if want := "kn1 has 0 of 2 pods of kind edge"; err == nil || !strings.Contains(err.Error(), want) || moves != movesMax {
		t.Errorf("after %d moves: %v, want %q after %d", moves, err, want, movesMax)
	}
	broken := errors.New("no answer")
	if _, err := p.pack("", func(podMove) (placement, error) { return placement{}, broken }); !errors.Is(err, broken) {
		t.Errorf("%v, want %v", err, broken)
	}
}

// TestPossible: some deployments have no node whose loss the others can bear.
func TestPossible(t *testing.T) {
	for _, c := range []struct {
		p       placement
		durable bool
		want    string
	}{
		{place("edge kn1 kn2", "relay kn1 kn3", "nats kn1 kn2 kn3", "redis kn1"), true, ""},
		{place("edge kn1 kn2", "relay kn1 kn3", "nats kn1 kn2 kn3"), false, ""},
		{place("edge kn1 kn2", "relay kn1 kn3", "nats kn1 kn2 kn3"), true, "0 pods of kind redis, at least 1 wanted"},
		{place("edge kn1", "relay kn1 kn3", "nats kn1 kn2 kn3", "redis kn1"), true, "1 pods of kind edge, at least 2 wanted"},
		{place("edge kn1 kn2", "relay kn1", "nats kn1 kn2 kn3", "redis kn1"), true, "1 pods of kind relay, at least 2 wanted"},
		{place("edge kn1 kn2", "relay kn1 kn3", "nats kn1 kn2", "redis kn1"), true, "2 pods of kind nats, at least 3 wanted"},
	} {
		err := c.p.possible(c.durable)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.p, err, c.want)
		}
	}
}
