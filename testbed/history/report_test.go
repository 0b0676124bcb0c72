package history

import (
	"slices"
	"strings"
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

// TestUses: what phases used are medians, beside the first phase with the same first word.
func TestUses(t *testing.T) {
	const cost = "µs of NATS servers' CPU per write to session logs"
	list := []Record{{Kind: PhaseIs, Note: "spray, direct"}, {Kind: Used, Note: cost, D: 10, N: 1}, {Kind: PhaseIs, Note: "spray, sprayed"}, {Kind: Used, Note: cost, D: 30, N: 1}}
	for n, second := range []int64{12, 13, 90} {
		for i, phase := range []string{"steady, one", "steady, other"} {
			fault, d := uint64(2*n+i+1), []int64{100, second * 10}[i]
			list = append(list, Record{Kind: PhaseIs, Note: phase}, Record{Kind: Ack, Who: "c", D: 1}, Record{Kind: Fault, N: fault, Note: NoFault},
				Record{Kind: Ack, Who: "c", D: 1000 + d}, Record{Kind: Ack, Who: "c", D: 100 + d}, Record{Kind: Ack, Who: "c", D: 200 + d},
				Record{Kind: Used, Note: cost, D: d, N: 10}, Record{Kind: Used, Note: "x", D: 1, N: 0}, Record{Kind: Healed, N: fault})
		}
	}
	want := []string{
		"spray, direct: 10.00 " + cost + " (median of 1)",
		"spray, sprayed: 30.00 " + cost + " (median of 1), 3.00 times the first",
		"steady, one: 10.00 " + cost + " (median of 3)",
		"steady, other: 13.00 " + cost + " (median of 3), 1.30 times the first",
		"steady, one: 300.00 " + ackP50 + " (median of 3)",
		"steady, other: 330.00 " + ackP50 + " (median of 3), 1.10 times the first",
		"steady, one: 1100.00 " + ackP99 + " (median of 3)",
		"steady, other: 1130.00 " + ackP99 + " (median of 3), 1.03 times the first",
	}
	var got []string
	for _, u := range check(t, list).Uses {
		got = append(got, u.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
