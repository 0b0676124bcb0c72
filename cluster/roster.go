package cluster

import (
	"cmp"
	"hash/fnv"
	"iter"
	"slices"
	"strings"

	"github.com/dnprelay/dnprelay/internal/format"
)

// A Roster is the members of a cluster, sorted by name. It never changes, so goroutines may share
// it. The zero Roster is empty.
//
// It is a hint: see the package comment.
type Roster struct {
	members []Member
}

// NewRoster returns the roster of members, whose slice it does not keep. Of two members with the
// same name the later incarnation counts.
func NewRoster(members []Member) Roster {
	sorted := slices.Clone(members)
	slices.SortStableFunc(sorted, func(a, b Member) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(b.Incarnation, a.Incarnation))
	})
	return Roster{members: slices.CompactFunc(sorted, func(a, b Member) bool { return a.Name == b.Name })}
}

// Len returns the number of members.
func (r Roster) Len() int { return len(r.members) }

// All yields the members in the order of their names. Their addresses must not be
// changed.
func (r Roster) All() iter.Seq[Member] { return slices.Values(r.members) }

// Member returns the member with a name.
func (r Roster) Member(name string) (Member, bool) {
	i, ok := slices.BinarySearchFunc(r.members, name, func(m Member, name string) int { return strings.Compare(m.Name, name) })
	if !ok {
		return Member{}, false
	}
	return r.members[i], true
}

// Format returns the lowest format that all members read, which is the one to write; see package
// format. For an empty Roster it is the oldest.
func (r Roster) Format() uint8 {
	if len(r.members) == 0 {
		return format.Oldest
	}
	return slices.MinFunc(r.members, func(a, b Member) int { return cmp.Compare(a.format(), b.format()) }).format()
}

// Since returns the members of r that were not in old, and those of old that are not in r, each in the
// order of names. A member that was restarted has left as it was and joined as it is, because the
// former process has gone with everything that it held.
func (r Roster) Since(old Roster) (joined, left []Member) { return r.without(old), old.without(r) }

// without returns the members of r whose processes are not in o.
func (r Roster) without(o Roster) (list []Member) {
	for _, m := range r.members {
		if other, ok := o.Member(m.Name); !ok || other.Incarnation != m.Incarnation {
			list = append(list, m)
		}
	}
	return list
}

// Rendezvous hashing, D. Thaler and C. V. Ravishankar, "Using name-based mappings to increase hit
// rates", 1998: every relay draws a number for every shard from its own name, and the relay with
// the highest number should hold the shard. So all nodes that see the same roster agree without
// talking, and when one of n relays goes, only its own shards move: 1/n of them, spread over the
// others.

// FNV-1a with 64 bits. Package fnv costs a roster of a thousand edges a third more.
const (
	fnvOffset64 = 14695981039346656037
	fnvPrime64  = 1099511628211
)

func seedOf(name string) uint64 {
	h := uint64(fnvOffset64)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * fnvPrime64
	}
	return mix(h)
}

// DrawShard returns the number that a relay draws for a shard: the one with the highest number should hold it. It must never change:
// nodes of different releases have to agree.
func DrawShard(node string, shard int) uint64 {
	return mix(seedOf(node) + uint64(shard)*0x9e3779b97f4a7c15)
}

// mix spreads every bit of x over all bits: the finalizer of SplitMix64, G. Steele and others,
// "Fast splittable pseudorandom number generators", 2014. FNV alone gives close numbers to names
// that differ in the last byte.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Draw returns the number that a node draws for another name. It must never change.
func Draw(node, name string) uint64 {
	return mix(seedOf(node) + seedOf(name)*0x9e3779b97f4a7c15)
}

// Choose returns the node to which a key belongs, by the same hashing: the answer does not depend
// on the order of the names, and when a node goes, only its keys move. It is empty without names.
func Choose(key string, names []string) (best string) {
	var most uint64
	for _, name := range names {
		n := Draw(name, key)
		if best == "" || n > most || n == most && name < best {
			best, most = name, n
		}
	}
	return best
}

// Shard returns the shard of a space: FNV-1a 32 of its name modulo shards, which must be positive.
// NATS computes {{partition(shards,1)}} the same way, and the two must agree, or publishes reach a
// node that does not hold the space.
func Shard(space string, shards int) int {
	h := fnv.New32a()
	h.Write([]byte(space))
	return int(h.Sum32() % uint32(shards))
}
