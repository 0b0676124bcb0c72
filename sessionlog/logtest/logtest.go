// Package logtest is the conformance suite of session logs. The tests of memlog, natslog and
// quorumlog run it, so that results of simulations hold for JetStream:
//
//	logtest.Run(t, func(t *testing.T) *logtest.Fixture { ... })
package logtest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// patience is how long the suite waits for an answer. It is long, because only a failing test waits
// that long.
const patience = 60 * time.Second

// A Fixture is the store under test. Its logs share it, as those of several edges do.
type Fixture struct {
	// A and B are logs of two edges over the store. Their timeout is longer than any machine needs.
	A, B sessionlog.Log
	// Hasty is the log of an edge with a short timeout, which must store every write while the
	// store misbehaves.
	Hasty sessionlog.Log

	// Step makes the next event of a simulated store happen, and reports false if there is none. It
	// is nil if time passes by itself.
	Step func() bool

	// Trouble makes the store misbehave towards Hasty for its k-th write, from 0 on. Peace ends that.
	Trouble func(k int)
	Peace   func()
}

// Run runs the conformance suite of sessionlog.Log, each test with a store of its own: chains of
// expected sequences, writers that race, checkpoints that delete, and a writer that follows the rules
// of a session while answers get lost.
func Run(t *testing.T, open func(t *testing.T) *Fixture) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *Fixture)
	}{
		{"Chain", chains}, {"Rollup", rollups}, {"Together", writtenTogether}, {"Race", races}, {"TooLarge", tooLarge}, {"Survive", survival},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

func write(log string, expect uint64, data string) sessionlog.Write {
	return sessionlog.Write{Log: log, Expect: expect, Data: []byte(data)}
}

// chains checks that a write which does not follow the one that it names is refused.
func chains(t *testing.T, s *Fixture) {
	s.want(t, s.A, "CHAIN", "nothing was ever written")
	one := s.must(t, s.A, write("CHAIN", 0, "one"), "the log is empty")
	two := s.must(t, s.B, write("CHAIN", one, "two"), "it follows, and any edge may write it")
	for _, expect := range []uint64{0, one, one - 1, two + 1, two + 1000} {
		if a := s.append(t, s.A, write("CHAIN", expect, "zombie"))[0]; a.Verdict != fence.Stale {
			t.Errorf("a write that expects %d is answered %v, want stale: the last sequence is %d", expect, a.Verdict, two)
		}
	}
	three := s.must(t, s.A, write("CHAIN", two, ""), "it follows, and has no data")
	entries := s.want(t, s.B, "CHAIN", "all stored writes, oldest first", "one", "two", "")
	for i, seq := range []uint64{one, two, three} {
		if entries[i].Seq != seq {
			t.Errorf("entry %d has the sequence %d, but %d was answered", i, entries[i].Seq, seq)
		}
	}
	s.want(t, s.A, "OTHER", "another log is independent")
	if a := s.append(t, s.A, write("OTHER", three, "x"))[0]; a.Verdict != fence.Stale {
		t.Errorf("a write to an empty log that expects a sequence of another is answered %v", a.Verdict)
	}
}

// tooLarge checks that a write beyond the max_payload of NATS is refused for good, and changes nothing.
func tooLarge(t *testing.T, s *Fixture) {
	one := s.must(t, s.A, write("LARGE", 0, "one"), "the log is empty")
	for range 2 {
		if a := s.append(t, s.A, write("LARGE", one, strings.Repeat("x", 1<<20+1)))[0]; a.Verdict != fence.TooLarge {
			t.Fatalf("a write of more than 1 MiB is answered %v", a.Verdict)
		}
	}
	s.must(t, s.A, write("LARGE", one, strings.Repeat("x", 1<<20-1024)), "there is room for its headers")
}

// rollups checks that a checkpoint deletes all earlier writes, if it is stored.
func rollups(t *testing.T, s *Fixture) {
	seq := uint64(0)
	for k := range 40 {
		seq = s.must(t, s.A, write("ROLL", seq, fmt.Sprint(k)), "it follows")
	}
	other := s.must(t, s.A, write("NEIGHBOUR", 0, "stays"), "the log is empty")
	w := write("ROLL", seq-1, "zombie")
	w.Rollup = true
	if a := s.append(t, s.B, w)[0]; a.Verdict != fence.Stale {
		t.Errorf("a stale checkpoint is answered %v, want stale", a.Verdict)
	}
	var all []string
	for k := range 40 {
		all = append(all, fmt.Sprint(k))
	}
	s.want(t, s.B, "ROLL", "a refused checkpoint deletes nothing", all...)
	w = write("ROLL", seq, "ckpt")
	w.Rollup = true
	seq = s.must(t, s.A, w, "it follows")
	s.want(t, s.B, "ROLL", "a checkpoint deletes all earlier writes", "ckpt")
	seq = s.must(t, s.A, write("ROLL", seq, "after"), "it follows the checkpoint")
	s.want(t, s.B, "ROLL", "later writes stay", "ckpt", "after")
	w = write("ROLL", seq, "close")
	w.Rollup, w.Final = true, true
	seq = s.must(t, s.A, w, "it follows")
	s.want(t, s.B, "ROLL", "the end of the session stays", "close")
	w = write("ROLL", seq, "open")
	w.Rollup = true
	s.must(t, s.B, w, "a session may begin over the end of another")
	s.want(t, s.A, "ROLL", "the new session", "open")
	if e := s.want(t, s.A, "NEIGHBOUR", "another log is left alone", "stays"); e[0].Seq != other {
		t.Errorf("the other log has moved to %d", e[0].Seq)
	}
}

// writtenTogether checks that writes which are appended together are stored or refused individually.
func writtenTogether(t *testing.T, s *Fixture) {
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
			t.Errorf("write %d of many is answered %v, want %v whatever the others are", i, a.Verdict, want)
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

// races checks that of two writes with the same expected sequence one is stored.
func races(t *testing.T, s *Fixture) {
	seq := uint64(0)
	var all []string
	for k := 0; len(all) < 50 && k < 1000; k++ {
		a := write("RACE", seq, fmt.Sprintf("a%d", k))
		b := write("RACE", seq, fmt.Sprintf("b%d", k))
		first, second := s.begin(s.A, a), s.begin(s.B, b)
		x, y := s.wait(t, first)[0], s.wait(t, second)[0]
		switch {
		case x.Verdict == fence.OK && refused(y):
			seq, all = x.Seq, append(all, string(a.Data))
		case y.Verdict == fence.OK && refused(x):
			seq, all = y.Seq, append(all, string(b.Data))
		case refused(x) && refused(y) && (x.Verdict == fence.Busy || y.Verdict == fence.Busy):
			// The store was still busy with the round before.
		default:
			t.Fatalf("round %d: two that race are answered %v and %v, want one ok and one stale or busy", k, x.Verdict, y.Verdict)
		}
	}
	if len(all) < 50 {
		t.Errorf("the store stays busy: %d writes in 1000 rounds", len(all))
	}
	s.want(t, s.A, "RACE", "the writes that were answered ok", all...)
}

func refused(a sessionlog.Answer) bool { return a.Verdict == fence.Stale || a.Verdict == fence.Busy }

// survivors is how many writes the writer of survival makes.
const survivors = 60

// survival checks that a writer which judges answers as a session does gets every write into the log once
// and in order, however the store misbehaves.
func survival(t *testing.T, s *Fixture) {
	seq := uint64(0)
	var all []string
	counts := map[fence.Verdict]int{}
	for k := range survivors {
		s.Trouble(k)
		w := write("SURVIVE", seq, fmt.Sprintf("write %d", k))
		if k%20 == 19 {
			w.Rollup, all = true, nil
		}
		seq = s.insist(t, w, counts)
		all = append(all, string(w.Data))
	}
	s.Peace()
	for s.read(t, s.B, "SURVIVE").Verdict != fence.OK {
	}
	s.want(t, s.B, "SURVIVE", "each once, in order", all...)
	t.Logf("%d writes, answers to attempts: %v", survivors, counts)
}

// insist repeats w until it is certainly stored, as sessionlog.Session does.
func (s *Fixture) insist(t *testing.T, w sessionlog.Write, counts map[fence.Verdict]int) uint64 {
	t.Helper()
	for {
		a := s.append(t, s.Hasty, w)[0]
		counts[a.Verdict]++
		switch a.Verdict {
		case fence.OK:
			return a.Seq
		case fence.Busy, fence.Unreachable:
			continue
		}
		r := s.read(t, s.Hasty, w.Log)
		if r.Verdict != fence.OK || len(r.Entries) == 0 {
			continue
		}
		last := r.Entries[len(r.Entries)-1]
		switch {
		case last.Seq > w.Expect && string(last.Data) == string(w.Data):
			return last.Seq // its answer was lost
		case last.Seq > w.Expect:
			t.Fatalf("%q is to follow %d, but the log has %q although there is no other writer", w.Data, w.Expect, last.Data)
		}
	}
}

// A call is one Append or Read with its answers.
type call struct {
	mu      sync.Mutex
	answers []sessionlog.Answer
	times   []int // how many answers each write has
	left    int
	done    chan struct{}
}

func newCall(n int) *call {
	return &call{answers: make([]sessionlog.Answer, n), times: make([]int, n), left: n, done: make(chan struct{})}
}

func (c *call) answer(i int, a sessionlog.Answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[i], c.times[i] = a, c.times[i]+1
	if c.left--; c.left == 0 {
		close(c.done)
	}
}

// wait returns the answers.
func (s *Fixture) wait(t testing.TB, c *call) []sessionlog.Answer {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case <-c.done:
			return c.check(t)
		default:
		}
		if s.Step == nil {
			select {
			case <-c.done:
			case <-timeout:
				t.Fatal("the log does not answer")
			}
		} else if !s.Step() {
			t.Fatal("the log does not answer, and no event is left")
		}
	}
}

func (c *call) check(t testing.TB) []sessionlog.Answer {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, n := range c.times {
		if n != 1 {
			t.Errorf("%d answers to write %d, want one", n, i)
		}
	}
	return c.answers
}

// begin appends without waiting.
func (s *Fixture) begin(l sessionlog.Log, writes ...sessionlog.Write) *call {
	c := newCall(len(writes))
	c.mu.Lock() // an answer within the call would hang here
	for i, w := range writes {
		l.Append(w, func(a sessionlog.Answer) { c.answer(i, a) })
	}
	c.mu.Unlock()
	return c
}

func (s *Fixture) append(t testing.TB, l sessionlog.Log, writes ...sessionlog.Write) []sessionlog.Answer {
	t.Helper()
	return s.wait(t, s.begin(l, writes...))
}

func (s *Fixture) read(t testing.TB, l sessionlog.Log, log string) sessionlog.Answer {
	t.Helper()
	c := newCall(1)
	c.mu.Lock()
	l.Read(log, func(a sessionlog.Answer) { c.answer(0, a) })
	c.mu.Unlock()
	return s.wait(t, c)[0]
}

// must appends one write that has to be stored, and returns its sequence. It repeats the write while the
// store is busy.
func (s *Fixture) must(t testing.TB, l sessionlog.Log, w sessionlog.Write, why string) uint64 {
	t.Helper()
	for {
		switch a := s.append(t, l, w)[0]; a.Verdict {
		case fence.OK:
			return a.Seq
		case fence.Busy:
		default:
			t.Fatalf("a write is answered %v, want ok: %s", a.Verdict, why)
		}
	}
}

// want compares the entries of a log.
func (s *Fixture) want(t testing.TB, l sessionlog.Log, log string, why string, data ...string) []sessionlog.Entry {
	t.Helper()
	a := s.read(t, l, log)
	if a.Verdict != fence.OK {
		t.Fatalf("a read is answered %v, want ok: %s", a.Verdict, why)
	}
	var got []string
	last := uint64(0)
	for _, e := range a.Entries {
		got = append(got, string(e.Data))
		if e.Seq <= last {
			t.Errorf("sequence %d after %d", e.Seq, last)
		}
		last = e.Seq
	}
	if fmt.Sprint(got) != fmt.Sprint(data) {
		t.Fatalf("the log has %q, want %q: %s", got, data, why)
	}
	return a.Entries
}
