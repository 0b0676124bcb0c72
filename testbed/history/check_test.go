package history

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// sound is a history without a fault: three clients, messages both ways.
func sound() (all []Record) {
	add := func(k Kind, who string, n uint64) {
		all = append(all, Record{At: int64(len(all)+1) * 1000, Kind: k, Who: who, N: n})
	}
	all = append(all, Record{Kind: PhaseIs, Note: "kill"})
	for n := uint64(1); n <= 20; n++ {
		if n == 10 {
			add(Fault, "edge1", 1)
		}
		for i := range 3 {
			who := fmt.Sprint("c", i)
			add(Said, who, n)
			add(Told, who, n)
			add(Answered, who, n)
			add(Got, who, n)
			add(Heard, who, n)
		}
	}
	add(Healed, "", 1)
	return all
}

// check checks a history that does not break off.
func check(t *testing.T, list []Record) Verdict {
	t.Helper()
	return checkPart(t, append(slices.Clip(list), Record{Kind: Ended}), Everyone)
}

func checkPart(t *testing.T, list []Record, about func(who string) bool) Verdict {
	t.Helper()
	var b strings.Builder
	for _, r := range list {
		line, _ := json.Marshal(r)
		b.Write(append(line, '\n'))
	}
	v, err := Check(strings.NewReader(b.String()), about)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestCheck puts single mistakes into a sound history; the check must notice each.
func TestCheck(t *testing.T) {
	if v := check(t, sound()); v.Bad() || v.Said != 60 || v.Told != 60 {
		t.Fatalf("a sound history: %+v", v)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, k := range []Kind{Heard, Got} {
		for range 50 {
			list := sound()
			var at []int
			for i, r := range list {
				if r.Kind == k {
					at = append(at, i)
				}
			}
			i := at[rng.IntN(len(at)-3)]
			next := i + 1 + slices.IndexFunc(list[i+1:], func(r Record) bool { return r.Kind == k && r.Who == list[i].Who })
			lost := slices.Delete(slices.Clone(list), i, i+1)
			if v := check(t, lost); !v.Bad() || v.Lost != 1 || v.Doubled+v.Disorder != 0 {
				t.Fatalf("record %d (%s) is missing: %+v", i, k, v)
			}
			doubled := slices.Insert(slices.Clone(list), i+1+rng.IntN(len(list)-i-1), list[i])
			if v := check(t, doubled); !v.Bad() || v.Doubled != 1 || v.Lost != 0 {
				t.Fatalf("record %d (%s) is there twice: %+v", i, k, v)
			}
			swapped := slices.Clone(list)
			swapped[i].N, swapped[next].N = swapped[next].N, swapped[i].N
			if v := check(t, swapped); !v.Bad() {
				t.Fatalf("records %d and %d (%s) are swapped: %+v", i, next, k, v)
			}
		}
	}
}

// TestCheckDisorder: both were under way, and the later one came first.
func TestCheckDisorder(t *testing.T) {
	v := check(t, []Record{
		{Kind: PhaseIs, Note: "kill"},
		{At: 1, Kind: Said, Who: "c", N: 1}, {At: 2, Kind: Said, Who: "c", N: 2},
		{At: 3, Kind: Heard, Who: "c", N: 2}, {At: 4, Kind: Heard, Who: "c", N: 1},
	})
	if v.Disorder != 1 || v.Lost+v.Doubled != 0 || !v.Bad() {
		t.Errorf("%+v", v)
	}
}

// TestCheckInterruption: the end of a connection is an interruption. Messages under way are
// not lost then, but a message before one that arrived is.
func TestCheckInterruption(t *testing.T) {
	list := append(sound(), Record{At: 1e6, Kind: Said, Who: "c1", N: 21}, Record{At: 1e6, Kind: Closed, Who: "c1", Note: "timeout"})
	if v := check(t, list); v.Phases[0].Interruptions != 1 || v.Lost != 0 || !v.Bad() {
		t.Errorf("%+v", v)
	}
	hole := slices.DeleteFunc(slices.Clone(list), func(r Record) bool { return r.Kind == Heard && r.Who == "c1" && r.N == 5 })
	if v := check(t, hole); v.Lost != 1 {
		t.Errorf("a message before one that arrived counts as lost, with an interruption too: %+v", v)
	}
}

// TestCheckBrokenOff: where a history breaks off, messages behind the last that arrived may
// be under way, which the verdict says. A message before one that arrived is lost there too.
func TestCheckBrokenOff(t *testing.T) {
	list := append(sound(), Record{At: 1e6, Kind: Said, Who: "c1", N: 21}, Record{At: 1e6, Kind: Acked, Who: "c1", N: 21})
	if v := checkPart(t, list, Everyone); v.Bad() || v.UnderWay != 1 || len(v.Remarks) != 1 || v.Phases[0].Messages.Lost != 0 {
		t.Errorf("under way where the history breaks off: %+v", v)
	}
	if v := check(t, list); v.Lost != 1 || v.UnderWay != 0 || len(v.Remarks) != 0 || v.Phases[0].Messages.Lost != 1 {
		t.Errorf("at the end of a whole history: %+v", v)
	}
	hole := slices.DeleteFunc(slices.Clone(list), func(r Record) bool { return r.Kind == Heard && r.Who == "c2" && r.N == 5 })
	if v := checkPart(t, hole, Everyone); v.Lost != 1 || v.UnderWay != 1 {
		t.Errorf("a message before one that arrived: %+v", v)
	}
	unsure := append(slices.Clone(list), Record{At: 1e6, Kind: Ended, Note: "not settled"})
	if v := checkPart(t, unsure, Everyone); v.Lost != 1 || !slices.Equal(v.Remarks, []string{"not settled"}) {
		t.Errorf("the end says that messages may be under way: %+v", v)
	}
}

// TestCheckPromises: a promise counts in the phase in which it was made, whether the message
// arrives before it, after it, or never.
func TestCheckPromises(t *testing.T) {
	v := check(t, []Record{
		{Kind: PhaseIs, Note: "nats-kill"},
		{At: 1, Kind: Said, Who: "c", N: 1}, {At: 2, Kind: Heard, Who: "c", N: 1}, {At: 3, Kind: Acked, Who: "c", N: 1},
		{At: 4, Kind: Said, Who: "c", N: 2}, {At: 5, Kind: Acked, Who: "c", N: 2},
		{At: 6, Kind: Said, Who: "c", N: 3}, {At: 7, Kind: Acked, Who: "c", N: 3},
		{At: 8, Kind: PhaseIs, Note: "nats-stop"}, {At: 9, Kind: Heard, Who: "c", N: 2},
	})
	if m := v.Phases[0].Messages; m.Acknowledged != 3 || m.Lost != 1 || v.Lost != 1 || v.Phases[1].Messages != (Messages{}) {
		t.Errorf("%+v, want 3 acknowledged in the first phase, 1 of them lost", v)
	}
}

// TestCheckLeft: a client that leaves does not miss what an edge promises afterwards, but the
// game server must not miss what an edge acknowledged.
func TestCheckLeft(t *testing.T) {
	list := []Record{
		{Kind: PhaseIs, Note: "scaling"},
		{At: 1, Kind: Told, Who: "c", N: 1}, {At: 2, Kind: Answered, Who: "c", N: 1}, {At: 3, Kind: Got, Who: "c", N: 1},
		{At: 4, Kind: Said, Who: "c", N: 1}, {At: 5, Kind: Acked, Who: "c", N: 1},
		{At: 6, Kind: Left, Who: "c"},
		{At: 7, Kind: Told, Who: "c", N: 2}, {At: 8, Kind: Answered, Who: "c", N: 2},
	}
	if m := check(t, list).Phases[0].Messages; m.Missed != 0 || m.Promised != 1 || m.Lost != 1 {
		t.Errorf("%+v, want nothing missed of 1 promise, and 1 acknowledged message lost", m)
	}
	list[8].At = 3e6
	list[6].At = 5e6
	if m := check(t, list).Phases[0].Messages; m.Missed != 1 {
		t.Errorf("%+v, want the message that was promised 2 s before to be missed", m)
	}
	hole := append(slices.Delete(slices.Clone(list), 3, 4), Record{At: 9, Kind: Got, Who: "c", N: 2})
	if m := check(t, hole).Phases[0].Messages; m.Missed != 1 {
		t.Errorf("%+v, want the message before one that arrived to be missed", m)
	}
}

// TestCheckUnsure: a message without an answer may arrive or not, but not twice.
func TestCheckUnsure(t *testing.T) {
	list := []Record{{Kind: PhaseIs, Note: "kill"}, {At: 1, Kind: Told, Who: "c", N: 1}, {At: 2, Kind: Told, Who: "c", N: 2}, {At: 3, Kind: Answered, Who: "c", N: 2}, {At: 4, Kind: Got, Who: "c", N: 2}}
	if v := check(t, list); v.Bad() {
		t.Errorf("without an answer, and it did not arrive: %+v", v)
	}
	came := slices.Insert(slices.Clone(list), 4, Record{At: 4, Kind: Got, Who: "c", N: 1})
	if v := check(t, came); v.Bad() {
		t.Errorf("without an answer, and it arrived: %+v", v)
	}
	if v := check(t, append(came, Record{At: 9, Kind: Got, Who: "c", N: 1})); v.Doubled != 1 {
		t.Errorf("it arrived twice: %+v", v)
	}
	list[3].N, list[3].Note, list[3].At = 1, "number 7", 2_500_001
	v := check(t, append(list[:4], Record{At: 3e6, Kind: Ended}))
	if want := "0.000 s: message 1 of c never reaches the client (promised after 2500.0 ms: number 7); the last that does is 0"; v.Lost != 1 || !slices.Contains(v.Violations, want) {
		t.Errorf("with an answer, and it did not arrive: %+v, want %q", v, want)
	}
}

// TestCheckGaps: the longest silence of each client around a fault counts once.
func TestCheckGaps(t *testing.T) {
	ms := func(n int64) int64 { return n * 1000 }
	v := check(t, []Record{
		{Kind: PhaseIs, Note: "kill"},
		{At: ms(900), Kind: Silence, Who: "a", D: ms(800)}, // before
		{At: ms(1000), Kind: Fault, N: 1, Who: "edge1"},
		{At: ms(1100), Kind: Silence, Who: "a", D: ms(200)},
		{At: ms(1700), Kind: Silence, Who: "a", D: ms(500)},
		{At: ms(1790), Kind: Silence, Who: "a", D: ms(60)},
		{At: ms(1800), Kind: Silence, Who: "b", D: ms(100)},
		{At: ms(1801), Kind: Extra, Who: "b", N: 7}, {At: ms(1802), Kind: Extra, Who: "b", N: 8},
		{At: ms(2000), Kind: Healed, N: 1},
		{At: ms(9000), Kind: Silence, Who: "b", D: ms(900)}, // long after
	})
	p := v.Phases[0]
	if p.Gap.Most != 500*time.Millisecond || p.Gap.Count != 2 || p.Extra != 2 {
		t.Errorf("%+v", p)
	}
}

// TestCheckUnacknowledged: the longest time without an acknowledgement of each client around a
// fault counts once. A message that is never acknowledged counts until the connection ends, and
// is no acknowledgement.
func TestCheckUnacknowledged(t *testing.T) {
	ms := func(n int64) int64 { return n * 1000 }
	p := check(t, []Record{
		{Kind: PhaseIs, Note: "nats-kill"},
		{At: ms(900), Kind: Ack, Who: "a", D: ms(700)}, // before
		{At: ms(1000), Kind: Fault, N: 1, Who: "nats1"},
		{At: ms(1300), Kind: Ack, Who: "a", D: ms(400)},
		{At: ms(1400), Kind: Ack, Who: "a", D: ms(1)},
		{At: ms(2000), Kind: Healed, N: 1},
		{At: ms(4500), Kind: Waited, Who: "b", D: ms(3000)},
		{At: ms(4501), Kind: Closed, Who: "b", Note: "timeout"},
		{At: ms(9000), Kind: Ack, Who: "a", D: ms(900)}, // long after
	}).Phases[0]
	if u := p.Unacknowledged; u.Count != 2 || u.P50 != 3*time.Second || u.Most != 3*time.Second || p.Ack.Count != 4 || p.Ack.Most != 900*time.Millisecond {
		t.Errorf("%+v", p)
	}
}

// TestCheckGapMax: gaps and missing acknowledgements above the bar of their phase are
// violations.
func TestCheckGapMax(t *testing.T) {
	for _, k := range []Kind{Silence, Ack} {
		for d, bad := range map[int64]bool{1_200_000: false, 1_200_001: true} {
			list := []Record{{Kind: PhaseIs, Note: "nats-stop", D: 1_200_000}, {At: 1, Kind: Fault, N: 1}, {At: 2e6, Kind: k, Who: "c", D: d}, {At: 3e6, Kind: Healed, N: 1}}
			if v := check(t, list); v.Bad() != bad {
				t.Errorf("%s of %d µs: %+v, want a violation: %v", k, d, v, bad)
			}
			list[0].D = 0
			if v := check(t, list); v.Bad() {
				t.Errorf("%s of %d µs, without a bar: %+v", k, d, v)
			}
		}
	}
}

// TestCheckListening: gaps of clients that only listen have a bar of their own, in all phases.
func TestCheckListening(t *testing.T) {
	for d, bad := range map[int64]bool{2_200_000: false, 2_200_001: true} {
		v := check(t, []Record{{Kind: PhaseIs, Note: "nats-stop", D: 1_200_000}, {At: 1, Kind: Fault, N: 1}, {At: 3e6, Kind: Silence, Who: ListenerPrefix + "c.0", D: d}, {At: 3e6, Kind: Healed, N: 1}})
		if p := v.Phases[0]; v.Bad() != bad || p.Listening.Count != 1 || p.Gap.Count != 0 {
			t.Errorf("a silence of %d µs: %+v, want a violation: %v", d, v, bad)
		}
	}
}

// TestCheckAbout: players that listen and the others are judged apart, each with all phases and
// faults.
func TestCheckAbout(t *testing.T) {
	quiet := ListenerPrefix + "c"
	list := []Record{
		{Kind: PhaseIs, Note: "kill"},
		{At: 1, Kind: Fault, N: 1, Who: "edge1"},
		{At: 2, Kind: Closed, Who: "c.0", Note: "timeout"},
		{At: 3, Kind: Stale, Who: quiet, D: 4000}, {At: 3, Kind: Stale, Who: "c", D: 5000},
		{At: 4, Kind: Said, Who: quiet + ".0", N: 1}, {At: 5, Kind: Acked, Who: quiet + ".0", N: 1},
		{At: 6, Kind: Healed, N: 1},
		{At: 7, Kind: Late, D: 8000},
		{At: 9, Kind: Ended},
	}
	for _, c := range []struct {
		name                string
		about               func(string) bool
		interruptions, lost int
		stale               []time.Duration
	}{
		{"all", Everyone, 1, 1, []time.Duration{4 * time.Millisecond, 5 * time.Millisecond}},
		{"speakers", Speaker, 1, 0, []time.Duration{5 * time.Millisecond}},
		{"listeners", Listener, 0, 1, []time.Duration{4 * time.Millisecond}},
	} {
		v := checkPart(t, list, c.about)
		p := v.Phases[0]
		if p.Interruptions != c.interruptions || v.Lost != c.lost || p.Messages.Lost != c.lost || !slices.Equal(p.Stale, c.stale) {
			t.Errorf("%s: %d interruptions, %d messages lost, stale %v; want %d, %d, %v", c.name, p.Interruptions, v.Lost, p.Stale, c.interruptions, c.lost, c.stale)
		}
		if p.Faults != 1 || p.Took != 5*time.Microsecond || p.Late != 8*time.Millisecond {
			t.Errorf("%s: %d faults took %v, the machine was late by %v; want those of everyone: 1, 5µs, 8ms", c.name, p.Faults, p.Took, p.Late)
		}
	}
}

// TestCheckArrivals: a message counts in the phase in which it arrives, with the time since it
// was sent. A phase that goes on has the figures of all its parts.
func TestCheckArrivals(t *testing.T) {
	v := check(t, []Record{
		{Kind: PhaseIs, Note: "a"},
		{At: 1000, Kind: Said, Who: "c", N: 1}, {At: 1200, Kind: Told, Who: "c", N: 1},
		{At: 2000, Kind: PhaseIs, Note: "b"},
		{At: 8000, Kind: Heard, Who: "c", N: 1}, {At: 8000, Kind: Heard, Who: "c", N: 1},
		{At: 9000, Kind: PhaseIs, Note: "a"},
		{At: 9200, Kind: Got, Who: "c", N: 1}, {At: 9300, Kind: Said, Who: "c", N: 2}, {At: 9400, Kind: Heard, Who: "c", N: 2},
	})
	if len(v.Phases) != 2 {
		t.Fatalf("%+v, want two phases", v.Phases)
	}
	a, b := v.Phases[0], v.Phases[1]
	if a.ToGame.Count != 1 || a.ToGame.Most != 100*time.Microsecond || a.ToClients.Most != 8*time.Millisecond ||
		b.ToGame.Count != 1 || b.ToGame.Most != 7*time.Millisecond || b.ToClients.Count != 0 || v.Doubled != 1 {
		t.Errorf("%+v", v)
	}
}

// TestBound: the bound on interruptions counts faults, not the windows for comparison.
func TestBound(t *testing.T) {
	list := []Record{{Kind: PhaseIs, Note: "spray"}}
	for n := range uint64(12) {
		what := []string{NoFault, "sprayed"}[n%2]
		list = append(list, Record{Kind: Fault, N: n + 1, Note: what}, Record{Kind: Healed, N: n + 1})
	}
	list = append(list, Record{Kind: PhaseIs, Note: Steady}, Record{Kind: Fault, N: 13, Note: NoFault}, Record{Kind: Healed, N: 13})
	v := check(t, list)
	for i, want := range []string{"39.3 %", "-"} {
		if got := bound(v.Phases[i]); got != want {
			t.Errorf("%s: %d faults, below %s; want %s", v.Phases[i].Name, v.Phases[i].Faults, got, want)
		}
	}
}

func TestQuantile(t *testing.T) {
	var v []time.Duration
	for i := range 30 {
		v = append(v, time.Duration(30-i))
	}
	for q, want := range map[float64]time.Duration{0.5: 16, 0.99: 30, 1: 30, 0.9: 28, 0: 1} {
		if got := Quantile(v, q); got != want {
			t.Errorf("quantile %v of 1 to 30 is %d, want %d", q, got, want)
		}
	}
	if got := Quantile(nil, 0.5); got != 0 {
		t.Errorf("quantile of nothing is %d", got)
	}
}
