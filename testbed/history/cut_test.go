package history

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// cutHistory is one fault. The way of a is cut from 1 s to 3 s, that of b is well.
func cutHistory(more ...Record) []Record {
	list := []Record{
		{Kind: PhaseIs, Note: "node"},
		{At: 1e6, Kind: Fault, N: 1, Who: "kn1"},
		{At: 1e6, Kind: Cut, Who: "a", Note: CutStart},
		{At: 3e6, Kind: Cut, Who: "a", Note: CutEnd},
		{At: 30e6, Kind: Healed, N: 1},
	}
	list = append(list, more...)
	slices.SortStableFunc(list, func(a, b Record) int { return int(a.At - b.At) })
	return list
}

// TestCutInterruption: the end of a session is no interruption while the way in of its player is
// cut and for as long afterwards as a client waits. The end of any other session is one, and so is
// the end of a session whose player has had a way in again for longer.
func TestCutInterruption(t *testing.T) {
	cases := []struct {
		about                    string
		who                      string
		at                       int64 // µs
		interrupted, ended, cuts int
	}{
		{"before the cut", "a.0", 0.9e6, 1, 0, 1},
		{"during the cut", "a.0", 2e6, 0, 1, 1},
		{"3 s after the cut", "a.0", 6e6, 0, 1, 1},
		{"later, with the fault still there", "a.0", 6e6 + 1, 1, 0, 1},
		{"the way of b is well", "b.0", 2e6, 1, 0, 1},
	}
	for _, c := range cases {
		v := check(t, cutHistory(Record{At: c.at, Kind: Closed, Who: c.who, Note: "timeout"}))
		p := v.Phases[0]
		if p.Interruptions != c.interrupted || p.Interrupted() != c.interrupted || p.CutEnded != c.ended || p.Cut() != c.cuts {
			t.Errorf("%s: %d interruptions of %d players, the way in of %d cut, %d sessions ended; want %d, %d, %d",
				c.about, p.Interruptions, p.Interrupted(), p.Cut(), p.CutEnded, c.interrupted, c.cuts, c.ended)
		}
		if v.Bad() != (c.interrupted > 0) {
			t.Errorf("%s: Bad is %v, violations %v", c.about, v.Bad(), v.Violations)
		}
	}
}

// TestCutOpen: a cut lasts until its end is recorded, in later phases too, and a second one
// replaces the first.
func TestCutOpen(t *testing.T) {
	v := check(t, []Record{
		{Kind: PhaseIs, Note: "one"},
		{At: 1e6, Kind: Cut, Who: "a", Note: CutStart},
		{At: 2e6, Kind: Cut, Who: "a", Note: CutEnd},
		{At: 9e6, Kind: Cut, Who: "a", Note: CutStart},
		{At: 9e6, Kind: Cut, Who: "b", Note: CutStart}, // and keeps its session
		{At: 10e6, Kind: PhaseIs, Note: "two"},
		{At: 20e6, Kind: Closed, Who: "a.0", Note: "timeout"},
		{At: 21e6, Kind: Cut, Who: "a", Note: CutEnd},
		{At: 21e6, Kind: Cut, Who: "b", Note: CutEnd},
		{At: 30e6, Kind: PhaseIs, Note: "three"},
		{At: 31e6, Kind: Closed, Who: "a.1", Note: "timeout"},
	})
	var got []int
	for _, p := range v.Phases {
		got = append(got, p.Cut(), p.CutEnded, p.Interruptions)
	}
	if want := []int{2, 0, 0, 2, 1, 0, 0, 0, 1}; !slices.Equal(got, want) {
		t.Errorf("players cut, sessions ended, interruptions by phase: %v, want %v", got, want)
	}
	if v := check(t, []Record{{Kind: PhaseIs, Note: "one"}, {Kind: Cut, Who: "a", Note: CutEnd}}); !v.Bad() {
		t.Error("a history with an end of a cut that never started is sound")
	}
}

// wrongs are the messages of a party that never arrive although they are acknowledged, or arrive
// twice or late, one of each.
func wrongs(who string) []Record {
	return []Record{
		{At: 1.1e6, Kind: Said, Who: who, N: 1}, {At: 1.2e6, Kind: Said, Who: who, N: 2}, {At: 1.2e6, Kind: Said, Who: who, N: 3},
		{At: 1.3e6, Kind: Heard, Who: who, N: 2}, {At: 1.4e6, Kind: Heard, Who: who, N: 1}, // out of order
		{At: 1.5e6, Kind: Heard, Who: who, N: 2}, // doubled
		{At: 1.6e6, Kind: Acked, Who: who, N: 3}, // lost
	}
}

// TestCutMessages: messages lost, doubled and out of order count for players whose way in is
// well, and for those whose way in is cut if their sessions live on. They are excused if the
// session ends because of the cut, and only in that phase.
func TestCutMessages(t *testing.T) {
	ends := Record{At: 2e6, Kind: Closed, Who: "a.0", Note: "timeout"}
	for _, c := range []struct {
		about                 string
		list                  []Record
		wrong, excused, stays int
	}{
		{"the way in is well", cutHistory(wrongs("b.0")...), 3, 0, 3},
		{"the way in is cut, and the session lives on", cutHistory(wrongs("a.0")...), 3, 0, 3},
		{"the session ends", cutHistory(append(wrongs("a.0"), ends)...), 0, 3, 0},
		{"another session ends", cutHistory(append(wrongs("b.0"), ends)...), 3, 0, 3},
		{"the next session of the player", cutHistory(append(wrongs("a.1"), ends)...), 3, 0, 3},
	} {
		m := check(t, c.list).Phases[0].Messages
		if m.Lost != 1 || m.Doubled != 1 || m.Disorder != 1 {
			t.Errorf("%s: %+v, want 1 of each", c.about, m)
		}
		if m.Wrong() != c.wrong || m.Excused != c.excused || m.Stayed != c.stays {
			t.Errorf("%s: %d wrong, %d excused, %d of players that stayed; want %d, %d, %d", c.about, m.Wrong(), m.Excused, m.Stayed, c.wrong, c.excused, c.stays)
		}
	}

	before := append([]Record{{Kind: PhaseIs, Note: "before"}}, wrongs("a.0")...)
	before = append(before, Record{At: 1.7e6, Kind: PhaseIs, Note: "node"}, Record{At: 1.8e6, Kind: Cut, Who: "a", Note: CutStart}, ends)
	v := check(t, before)
	if b := v.Phases[0].Messages; b.Wrong() != 3 || b.Excused != 0 || v.Phases[1].CutEnded != 1 {
		t.Errorf("%+v, want 3 messages to be wrong in the phase before, although the cut ends their session", v.Phases)
	}
}

// TestCutStale: the times without updates of players whose way in is cut have a list of their own.
func TestCutStale(t *testing.T) {
	p := check(t, cutHistory(Record{At: 31e6, Kind: Stale, Who: "a", D: 4e6}, Record{At: 31e6, Kind: Stale, Who: "b", D: 1e5}, Record{At: 31e6, Kind: Stale, Who: "c", D: 2e5})).Phases[0]
	if !slices.Equal(p.CutStale, []time.Duration{4 * time.Second}) || !slices.Equal(p.Stale, []time.Duration{100 * time.Millisecond, 200 * time.Millisecond}) {
		t.Errorf("cut: %v, well: %v", p.CutStale, p.Stale)
	}
}

// TestCutReport: the report separates the two kinds of players.
func TestCutReport(t *testing.T) {
	v := check(t, cutHistory(Record{At: 2e6, Kind: Closed, Who: "a.0", Note: "timeout"}))
	var b strings.Builder
	if err := v.Write(&b); err != nil {
		t.Fatal(err)
	}
	if want := "node: the way in of 1 players was cut; 1 of their sessions ended, which are no interruptions\n"; !strings.Contains(b.String(), want) {
		t.Errorf("%s\nhas no line %q", b.String(), want)
	}
}
