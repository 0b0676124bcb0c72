package cluster

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

func relays(n int) (list []Member) {
	for i := range n {
		list = append(list, Member{Name: fmt.Sprintf("relay-%d", i), Role: RoleRelay, Phase: PhaseReady, Shards: 64, Incarnation: 1})
	}
	return list
}

// placement returns the relays with the highest draws for shards.
func placement(relays []Member, shards int) (names []string) {
	for shard := range shards {
		best := slices.MaxFunc(relays, func(a, b Member) int { return cmp.Compare(DrawShard(a.Name, shard), DrawShard(b.Name, shard)) })
		names = append(names, best.Name)
	}
	return names
}

func TestRosterIsSortedAndItsOwn(t *testing.T) {
	list := relays(12)
	old := list[3]
	list[3].Incarnation, list[3].Load = 7, 9
	list = append(list, old)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	r := NewRoster(list)
	list[0].Name = "changed afterwards"
	names := []string{}
	for m := range r.All() {
		names = append(names, m.Name)
	}
	if !slices.IsSorted(names) || r.Len() != 12 {
		t.Errorf("want 12 members in the order of names, got %q", names)
	}
	if m, ok := r.Member("relay-3"); !ok || m.Incarnation != 7 || m.Load != 9 {
		t.Errorf("of two incarnations the later counts, got %+v, %v", m, ok)
	}
	if _, ok := r.Member("changed afterwards"); ok {
		t.Error("the roster shares the list that it was made from")
	}
	if _, ok := (Roster{}).Member("relay-0"); ok || (Roster{}).Len() != 0 {
		t.Error("the zero roster has members")
	}
}

func TestDifference(t *testing.T) {
	list := relays(4)
	old := NewRoster(list)
	now := slices.Clone(list)
	now[1].Incarnation++         // restarted
	now[2].Phase = PhaseDraining // changed
	now[3].Name = "relay-9"      // left, and another joined
	joined, left := NewRoster(now).Since(old)
	if len(left) != 2 || left[0].Name != "relay-1" || left[0].Incarnation != 1 || left[1].Name != "relay-3" {
		t.Errorf("left: got %+v", left)
	}
	if len(joined) != 2 || joined[0].Name != "relay-1" || joined[0].Incarnation != 2 || joined[1].Name != "relay-9" {
		t.Errorf("joined: got %+v", joined)
	}
	if now[2].Equal(list[2]) {
		t.Error("another phase is no change")
	}
	if joined, left := old.Since(NewRoster(list)); len(joined)+len(left) > 0 || !slices.EqualFunc(old.members, list, Member.Equal) {
		t.Errorf("equal rosters differ: %+v, %+v", joined, left)
	}
	moved := list[0]
	moved.Addresses = []Address{{ServiceHTTP, netip.MustParseAddrPort("127.0.0.1:1")}}
	if moved.Equal(list[0]) {
		t.Error("a new address is no change")
	}
}

// TestPlacementIsTheSameEverywhere has figures that must never change, because nodes of different
// releases have to agree on which relay should hold a shard.
func TestPlacementIsTheSameEverywhere(t *testing.T) {
	got := ""
	for _, name := range placement(relays(3), 64) {
		got += name[len(name)-1:]
	}
	if want := "1211110212202120101102012101212000200101022212212221200001200212"; got != want {
		t.Errorf("64 shards on relay-0 to relay-2:\ngot  %s\nwant %s", got, want)
	}
}

// TestShardsSpread checks the shares of relays. Every relay draws independently, so the share of one
// of n is binomial: mean 64/n, standard deviation sqrt(64/n*(1-1/n)). The names of StatefulSets,
// which differ in one digit, must not make it worse.
func TestShardsSpread(t *testing.T) {
	const shards = 64
	for n := 1; n <= 16; n++ {
		share := map[string]int{}
		for _, name := range placement(relays(n), shards) {
			share[name]++
		}
		mean := shards / float64(n)
		bound := 3 * math.Sqrt(mean*(1-1/float64(n)))
		for _, m := range relays(n) {
			if got := float64(share[m.Name]); math.Abs(got-mean) > bound {
				t.Errorf("%d relays: %s has %v of %d shards, want %.1f ± %.1f", n, m.Name, got, shards, mean, bound)
			}
		}
	}
}

// TestDrawsAreUniform checks that the draws are uniform over many names: chi-squared of 8 relays with
// 64,000 shards, 7 degrees of freedom, is above 24.3 once in a thousand.
func TestDrawsAreUniform(t *testing.T) {
	share := map[string]int{}
	for _, name := range placement(relays(8), 64_000) {
		share[name]++
	}
	chi := 0.0
	for _, n := range share {
		chi += (float64(n) - 8000) * (float64(n) - 8000) / 8000
	}
	if chi > 24.3 {
		t.Errorf("chi-squared %.1f of %v, want at most 24.3", chi, share)
	}
}

func TestOnlyTheShardsOfTheGoneMove(t *testing.T) {
	const shards = 64
	for n := 2; n <= 9; n++ {
		all := relays(n)
		before := placement(all, shards)
		for gone := range n {
			after := placement(slices.Delete(slices.Clone(all), gone, gone+1), shards)
			for shard := range shards {
				if was, is := before[shard], after[shard]; was != is && was != all[gone].Name {
					t.Fatalf("%d relays, %s goes: shard %d moved needlessly from %s to %s", n, all[gone].Name, shard, was, is)
				}
			}
		}
	}
}

// TestFormat checks that a roster has the format that all its members read.
func TestFormat(t *testing.T) {
	member := func(name string, format uint8) Member { return Member{Name: name, Format: format} }
	for _, c := range []struct {
		members []Member
		want    uint8
	}{
		{nil, 1},
		{[]Member{member("a", 0)}, 1},
		{[]Member{member("a", 2)}, 2},
		{[]Member{member("a", 3), member("b", 2)}, 2},
		{[]Member{member("a", 3), member("b", 0), member("c", 2)}, 1},
	} {
		if got := NewRoster(c.members).Format(); got != c.want {
			t.Errorf("the format of %+v is %d, want %d", c.members, got, c.want)
		}
	}
	if !member("a", 1).Equal(member("a", 0)) {
		t.Error("no format and format 1 differ")
	}
	if member("a", 2).Equal(member("a", 1)) {
		t.Error("a new format is no change")
	}
}

// TestShard compares Shard with the standard library. bus/natsbus compares it with a NATS server.
func TestShard(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		name := make([]byte, rnd.IntN(65))
		for i := range name {
			name[i] = byte(rnd.Uint32())
		}
		shards := 1 + rnd.IntN(1000)
		h := uint32(2166136261) // FNV-1a, as in the subject mappings of nats-server
		for _, c := range name {
			h = (h ^ uint32(c)) * 16777619
		}
		want := int(h % uint32(shards))
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
