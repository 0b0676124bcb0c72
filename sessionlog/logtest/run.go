package logtest

import (
	"fmt"
	"testing"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// Run runs all tests, each with a store of its own.
func Run(t *testing.T, open func(t *testing.T) *Store) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *Store)
	}{
		{"Chain", chain}, {"Rollup", rollup}, {"Together", together}, {"Race", race}, {"Survive", survive},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

func write(log string, expect uint64, data string) sessionlog.Write {
	return sessionlog.Write{Log: log, Expect: expect, Data: []byte(data)}
}

// chain: each write follows the one that it names, or is refused.
func chain(t *testing.T, s *Store) {
	s.want(t, s.A, "CHAIN", "nothing was ever written")
	one := s.must(t, s.A, write("CHAIN", 0, "one"), "the log is empty")
	two := s.must(t, s.B, write("CHAIN", one, "two"), "it follows, whoever writes it")
	for _, expect := range []uint64{0, one, one - 1, two + 1, two + 1000} {
		if a := s.append(t, s.A, write("CHAIN", expect, "zombie"))[0]; a.Verdict != fence.Stale {
			t.Errorf("a write behind %d is answered %v, want stale: the last is %d", expect, a.Verdict, two)
		}
	}
	three := s.must(t, s.A, write("CHAIN", two, ""), "it follows, and has no data")
	entries := s.want(t, s.B, "CHAIN", "what was stored, oldest first", "one", "two", "")
	for i, seq := range []uint64{one, two, three} {
		if entries[i].Seq != seq {
			t.Errorf("entry %d has the sequence %d, and %d was answered", i, entries[i].Seq, seq)
		}
	}
	s.want(t, s.A, "OTHER", "another log has nothing to do with it")
	if a := s.append(t, s.A, write("OTHER", three, "x"))[0]; a.Verdict != fence.Stale {
		t.Errorf("a write to an empty log that expects a sequence of another is answered %v", a.Verdict)
	}
}

// rollup: a checkpoint deletes what precedes, if it is stored at all.
func rollup(t *testing.T, s *Store) {
	seq := uint64(0)
	for k := range 40 {
		seq = s.must(t, s.A, write("ROLL", seq, fmt.Sprint(k)), "it follows")
	}
	other := s.must(t, s.A, write("NEIGHBOUR", 0, "stays"), "the log is empty")
	w := write("ROLL", seq-1, "zombie")
	w.Rollup = true
	if a := s.append(t, s.B, w)[0]; a.Verdict != fence.Stale {
		t.Errorf("a checkpoint of a zombie is answered %v", a.Verdict)
	}
	var all []string
	for k := range 40 {
		all = append(all, fmt.Sprint(k))
	}
	s.want(t, s.B, "ROLL", "a refused checkpoint deletes nothing", all...)
	w = write("ROLL", seq, "ckpt")
	w.Rollup = true
	seq = s.must(t, s.A, w, "it follows")
	s.want(t, s.B, "ROLL", "a checkpoint deletes what precedes", "ckpt")
	seq = s.must(t, s.A, write("ROLL", seq, "after"), "it follows the checkpoint")
	s.want(t, s.B, "ROLL", "what follows is kept", "ckpt", "after")
	w = write("ROLL", seq, "close")
	w.Rollup, w.Final = true, true
	seq = s.must(t, s.A, w, "it follows")
	s.want(t, s.B, "ROLL", "the end is remembered", "close")
	w = write("ROLL", seq, "open")
	w.Rollup = true
	s.must(t, s.B, w, "a session may begin over the end of another")
	s.want(t, s.A, "ROLL", "the new session", "open")
	if e := s.want(t, s.A, "NEIGHBOUR", "another log is left alone", "stays"); e[0].Seq != other {
		t.Errorf("the other log has moved to %d", e[0].Seq)
	}
}

// together: writes that are appended together are stored or refused one by one.
func together(t *testing.T, s *Store) {
	const n = 300
	first := make([]sessionlog.Write, n)
	for i := range first {
		first[i] = write(fmt.Sprintf("LOG%d", i), 0, fmt.Sprintf("first %d", i))
	}
	answers := s.append(t, s.A, first...)
	second := make([]sessionlog.Write, n)
	for i := range second {
		if answers[i].Verdict != fence.OK {
			t.Fatalf("write %d to an empty log is answered %v", i, answers[i].Verdict)
		}
		second[i] = write(first[i].Log, answers[i].Seq, fmt.Sprintf("second %d", i))
		if i%3 == 0 {
			second[i].Expect--
		}
	}
	for i, a := range s.append(t, s.B, second...) {
		want := fence.OK
		if i%3 == 0 {
			want = fence.Stale
		}
		if a.Verdict != want {
			t.Errorf("write %d of many is answered %v, want %v whatever its neighbours are", i, a.Verdict, want)
		}
	}
	for _, i := range []int{0, 1, 2, n - 1} {
		want := []string{fmt.Sprintf("first %d", i), fmt.Sprintf("second %d", i)}
		if i%3 == 0 {
			want = want[:1]
		}
		s.want(t, s.A, first[i].Log, "one by one", want...)
	}
}

// race: of two writers that expect the same, one is stored.
func race(t *testing.T, s *Store) {
	seq := uint64(0)
	var all []string
	for k := 0; len(all) < 50 && k < 1000; k++ {
		a := write("RACE", seq, fmt.Sprintf("a%d", k))
		b := write("RACE", seq, fmt.Sprintf("b%d", k))
		first, second := s.begin(s.A, a), s.begin(s.B, b)
		x, y := s.wait(t, first)[0], s.wait(t, second)[0]
		switch {
		case x.Verdict == fence.OK && lost(y):
			seq, all = x.Seq, append(all, string(a.Data))
		case y.Verdict == fence.OK && lost(x):
			seq, all = y.Seq, append(all, string(b.Data))
		case lost(x) && lost(y) && (x.Verdict == fence.Busy || y.Verdict == fence.Busy):
			// It was not done with the round before.
		default:
			t.Fatalf("round %d: two that race are answered %v and %v, want one ok and one stale or busy", k, x.Verdict, y.Verdict)
		}
	}
	if len(all) < 50 {
		t.Errorf("the store is always busy: %d writes in 1000 rounds", len(all))
	}
	s.want(t, s.A, "RACE", "those that were told so", all...)
}

func lost(a sessionlog.Answer) bool { return a.Verdict == fence.Stale || a.Verdict == fence.Busy }
