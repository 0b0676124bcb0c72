package logtest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// A Store is the store under test.
type Store struct {
	// A and B are logs of two edges over the store. Their timeout is longer than any machine needs.
	A, B sessionlog.Log
	// Hasty is the log of an edge with a short timeout, for survive.
	Hasty sessionlog.Log

	// Step makes the next event of a simulated store happen, and reports false if there is none. It
	// is nil if time passes by itself.
	Step func() bool

	// Trouble, if set, makes the store misbehave towards Hasty for write k of survive. Peace ends
	// that.
	Trouble func(k int)
	Peace   func()
}

// patience is how long a test waits before it fails.
const patience = 60 * time.Second

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
func (s *Store) wait(t testing.TB, c *call) []sessionlog.Answer {
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
func (s *Store) begin(l sessionlog.Log, writes ...sessionlog.Write) *call {
	c := newCall(len(writes))
	c.mu.Lock() // an answer within the call would hang here
	l.Append(writes, c.answer)
	c.mu.Unlock()
	return c
}

func (s *Store) append(t testing.TB, l sessionlog.Log, writes ...sessionlog.Write) []sessionlog.Answer {
	t.Helper()
	return s.wait(t, s.begin(l, writes...))
}

func (s *Store) read(t testing.TB, l sessionlog.Log, log string) sessionlog.Answer {
	t.Helper()
	c := newCall(1)
	c.mu.Lock()
	l.Read(log, func(a sessionlog.Answer) { c.answer(0, a) })
	c.mu.Unlock()
	return s.wait(t, c)[0]
}

// must appends one write that has to be stored, and returns its sequence. It repeats the write while the
// store is busy.
func (s *Store) must(t testing.TB, l sessionlog.Log, w sessionlog.Write, why string) uint64 {
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
func (s *Store) want(t testing.TB, l sessionlog.Log, log string, why string, data ...string) []sessionlog.Entry {
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
