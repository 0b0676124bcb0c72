package cluster

// FNV-1a with 32 bits, http://www.isthe.com/chongo/tech/comp/fnv/.
const (
	fnvOffset = 2166136261
	fnvPrime  = 16777619
)

// Shard returns the shard of a space: FNV-1a 32 of its name modulo shards, which
// must be positive. NATS counts {{partition(shards,1)}} the same way, and the two
// must agree, or publishes reach a node that does not hold the space.
func Shard(space string, shards int) int {
	h := uint32(fnvOffset)
	for i := range len(space) {
		h = (h ^ uint32(space[i])) * fnvPrime
	}
	return int(h % uint32(shards))
}
