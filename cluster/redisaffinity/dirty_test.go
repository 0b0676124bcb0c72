package redisaffinity

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
)

var seed = flag.Uint64("seed", 0, "of random tests; 0 = a new one")

// TestDirty compares the claims to write with a plain map, while sessions come and go and Redis is mostly
// away. The number of claims bounds the list.
func TestDirty(t *testing.T) {
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-seed=%d", s)
	rng := rand.New(rand.NewPCG(s, 5))
	a, err := Open(Config{URL: "redis://127.0.0.1:1", Node: "a"})
	if err != nil {
		t.Fatal(err)
	}
	defer a.client.Close()
	now := time.Unix(1e9, 0)
	claimed, due := map[string]uint64{}, map[string]uint64{} // epochs
	peak := 0
	take := func() {
		p := a.take(now)
		for i, name := range p.names {
			if epoch, ok := due[name]; !ok || epoch != p.epochs[i] {
				t.Fatalf("%s is written with epoch %d; due are %v", name, p.epochs[i], due)
			}
			delete(due, name)
			err := error(nil)
			if rng.IntN(3) == 0 {
				err = cluster.ErrAffinityAway
				due[name] = p.epochs[i] // it stays due
			}
			a.written(name, p.epochs[i], nil, err, now)
		}
	}
	names := 0
	for step := range 60_000 {
		if step%6000 == 0 {
			names = []int{1, 10, 300}[step/6000%3]
		}
		name := fmt.Sprint("s", rng.IntN(names))
		switch n := rng.IntN(3000); {
		case n == 0:
			take()
		case n == 1:
			a.touchAll()
			maps.Copy(due, claimed)
		case n < 1500:
			a.Claim(name, uint64(step))
			claimed[name], due[name] = uint64(step), uint64(step)
		default:
			a.Release(name, claimed[name])
			delete(claimed, name)
			delete(due, name)
		}
		peak = max(peak, len(claimed))
		if most := max(2*peak, writesPerTrip); len(a.dirty) > most {
			t.Fatalf("step %d: %d names wait, with %d claims at most; %d are due", step, len(a.dirty), peak, len(due))
		}
	}
	for rounds := 0; len(due)+len(a.releases) > 0; rounds++ {
		if take(); rounds > 1000 {
			t.Fatalf("%d claims are not written: %v", len(due), due)
		}
	}
	if p := a.take(now); len(p.names) > 0 {
		t.Errorf("%v are written needlessly", p.names)
	}
}
