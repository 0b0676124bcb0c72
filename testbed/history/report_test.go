package history

import (
	"testing"
	"time"
)

// TestPauses: the silence around a hand-over is that of the client, and beside it that of a
// client whose session stayed. Silences at other times count for neither.
func TestPauses(t *testing.T) {
	ms := func(n int64) int64 { return n * 1000 }
	v := check(t, []Record{
		{Kind: PhaseIs, Note: "drain"},
		{At: ms(500), Kind: Silence, Who: "a", D: ms(300)}, // before
		{At: ms(1000), Kind: Fault, N: 1, Who: "edge1"},
		{At: ms(1100), Kind: Handed, Who: "a"},
		{At: ms(1101), Kind: Handed, Who: "c"}, // c is never silent
		{At: ms(1130), Kind: Silence, Who: "a", D: ms(40)},
		{At: ms(1140), Kind: Silence, Who: "b", D: ms(30)},
		{At: ms(1900), Kind: Silence, Who: "b", D: ms(400)}, // later
		{At: ms(2000), Kind: Moved, Who: "a"},
		{At: ms(3000), Kind: Silence, Who: "a", D: ms(600)},
		{At: ms(3001), Kind: Healed, N: 1},
	})
	p := v.Phases[0]
	if p.Handed.Count != 2 || p.Handed.P50 != 40*time.Millisecond || p.Handed.list[0] != SilenceLeast {
		t.Errorf("handed over: %+v", p.Handed)
	}
	if p.Others.Count != 2 || p.Others.Most != 30*time.Millisecond {
		t.Errorf("others: %+v", p.Others)
	}
	if p.Above.Count != 2 || p.Above.Most != 10*time.Millisecond || p.Above.P50 != 10*time.Millisecond {
		t.Errorf("above: %+v", p.Above)
	}
	if p.Moved.Count != 1 || p.Moved.Most != 600*time.Millisecond {
		t.Errorf("moved: %+v", p.Moved)
	}
}

// TestOperations: operations count per second, and per message of the same time.
func TestOperations(t *testing.T) {
	v := check(t, []Record{
		{Kind: PhaseIs, Note: "calm"},
		{At: 1e6, Kind: Said, Who: "c", N: 1}, {At: 11e5, Kind: Heard, Who: "c", N: 1},
		{At: 2e6, Kind: Said, Who: "c", N: 2}, {At: 21e5, Kind: Heard, Who: "c", N: 2},
		{At: 22e5, Kind: Told, Who: "c", N: 1}, {At: 23e5, Kind: Answered, Who: "c", N: 1}, {At: 24e5, Kind: Got, Who: "c", N: 1},
		{At: 35e5, Kind: Ops, Note: "writes", N: 6, D: 2e6},
	})
	if len(v.Operations) != 1 || v.Operations[0] != (Operation{"writes", 3, 3}) {
		t.Errorf("%+v", v.Operations)
	}
}
