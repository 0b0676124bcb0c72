package cluster

import (
	"fmt"
	"testing"
	"time"
)

// TestAnnounced checks which relays may be given shards, step by step.
func TestAnnounced(t *testing.T) {
	start := time.Unix(1000, 0)
	roster := NewRoster(relays(3)) // shard 0 belongs to relay-1, then relay-2 or relay-0
	order := roster.Ranking(0)
	top, second, last := order[0], order[1], order[2]
	var a Announced
	want := func(at time.Duration, why string, names ...string) {
		t.Helper()
		if got := a.Candidates(start.Add(at), roster, second).Ranking(0); fmt.Sprint(got) != fmt.Sprint(names) {
			t.Errorf("%s: the candidates are %v, want %v", why, got, names)
		}
	}
	want(0, "nothing was heard", second)
	if !a.Heard(start, top) || !a.Heard(start, last) || a.Heard(start, last) {
		t.Error("a relay was silent until its first announcement, and not from then on")
	}
	a.Heard(start, "ghost")
	want(0, "all announced themselves", top, second, last)
	a.Heard(start.Add(time.Second), top)
	want(announceTimeout-time.Millisecond, "both were heard lately", top, second, last)
	want(announceTimeout, "one is silent", top, second)
	if !a.Left(top) || a.Left(top) {
		t.Error("a relay leaves once")
	}
	want(announceTimeout, "one leaves", second)
	a.Heard(start.Add(time.Second), top)
	a.Passed(start.Add(announceTimeout), roster, 0, second)
	a.Heard(start.Add(announceTimeout), top)
	want(announceTimeout, "one let the shard pass", second)
	later := announceTimeout + passTime
	a.Heard(start.Add(later), top)
	want(later-time.Millisecond, "it gets no shards for a while", second)
	want(later, "it is tried again", top, second)
	if got := a.Candidates(start.Add(later), NewRoster(nil), second).Ranking(0); len(got) != 0 {
		t.Errorf("%v are candidates although they are not in the roster", got)
	}
}

// TestAnnouncedIsBounded has one relay announce itself under many names.
func TestAnnouncedIsBounded(t *testing.T) {
	var a Announced
	now := time.Unix(1000, 0)
	for i := range 2 * announcedMax {
		a.Heard(now, fmt.Sprint("relay-", i))
	}
	if len(a.heard) != announcedMax {
		t.Errorf("%d relays are remembered, want %d", len(a.heard), announcedMax)
	}
	a.Candidates(now.Add(announceTimeout), Roster{}, "relay-0")
	if !a.Heard(now.Add(announceTimeout), "another") || len(a.heard) != 1 {
		t.Error("silent relays take the place of others")
	}
}

// TestRank compares Rank with Ranking.
func TestRank(t *testing.T) {
	r := NewRoster(relays(7))
	for shard := range 64 {
		for i, name := range r.Ranking(shard) {
			if got := r.Rank(shard, name); got != i {
				t.Fatalf("%s has rank %d for shard %d, want %d", name, got, shard, i)
			}
		}
	}
	if got := r.Rank(0, "nobody"); got != NoRank {
		t.Errorf("who is not in the roster has rank %d", got)
	}
}
