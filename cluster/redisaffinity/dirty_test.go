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
// away. The number of claims bounds those to write.
func TestDirty(t *testing.T) {
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-seed=%d", s)
	rng := rand.New(rand.NewPCG(s, 5))
	one, err := Open(Config{URLs: []string{"redis://127.0.0.1:1"}, Node: "a"})
	if err != nil {
		t.Fatal(err)
	}
	a := one.servers[0]
	defer a.client.Close()
	now := time.Unix(1e9, 0)
	claimed, due := map[string]uint64{}, map[string]uint64{} // epochs
	take := func() {
		p := a.take(now)
		for _, s := range p.claims {
			if epoch, ok := due[s.name]; !ok || epoch != s.epoch {
				t.Fatalf("%s is written with epoch %d; due are %v", s.name, s.epoch, due)
			}
			delete(due, s.name)
			err := error(nil)
			if rng.IntN(3) == 0 {
				err = cluster.ErrAffinityAway
				due[s.name] = s.epoch // it stays due
			}
			a.written(s, nil, err, now)
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
		if len(a.dirty) > len(claimed) {
			t.Fatalf("step %d: %d names wait, with %d claims; %d are due", step, len(a.dirty), len(claimed), len(due))
		}
	}
	for rounds := 0; len(due)+len(a.releases) > 0; rounds++ {
		if take(); rounds > 1000 {
			t.Fatalf("%d claims are not written: %v", len(due), due)
		}
	}
	if p := a.take(now); len(p.claims) > 0 {
		t.Errorf("%v are written needlessly", p.claims)
	}
}
