package cluster

import (
	"hash/fnv"
	"math/rand/v2"
	"testing"
)

// TestShard compares Shard with the standard library. bus/natsbus compares it with a NATS server.
func TestShard(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		name := make([]byte, rnd.IntN(65))
		for i := range name {
			name[i] = byte(rnd.Uint32())
		}
		shards := 1 + rnd.IntN(1000)
		h := fnv.New32a()
		h.Write(name)
		want := int(h.Sum32() % uint32(shards))
		if got := Shard(string(name), shards); got != want {
			t.Fatalf("Shard(%q, %d) = %d, want %d", name, shards, got, want)
		}
	}
}

func TestShardsAreEven(t *testing.T) {
	const shards, spaces = 64, 64_000
	var count [shards]int
	for i := range spaces {
		count[Shard("match-"+string(rune('a'+i%26))+string(rune('a'+i/26%26))+string(rune('a'+i/676%26))+string(rune('a'+i/17576)), shards)]++
	}
	for n, c := range count {
		if c < 700 || c > 1300 {
			t.Errorf("shard %d has %d of %d spaces", n, c, spaces)
		}
	}
}
