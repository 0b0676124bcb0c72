package fanout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/command"
	"github.com/dnprelay/dnprelay/replication"
)

// say has the client send an unreliable message.
func (s *sessionTest) say(text string) {
	s.session.Handle(start, &dnp.Event{Kind: dnp.EventMessage, Conn: s.conn, Data: []byte(text)})
}

// TestUnheard: what a client says waits until game servers hear that it joined, in order. When 256 messages wait, game servers
// hear so at once, and nothing is lost.
func TestUnheard(t *testing.T) {
	s := newSessionTest(t)
	s.session.Begin(start, s.conn)
	var want []string
	for i := range 257 {
		if got := s.heard(); got != "" {
			t.Fatalf("game servers heard %q before message %d, although the holder did not answer", got, i)
		}
		s.say(fmt.Sprint(i))
		want = append(want, fmt.Sprint("message ", i))
	}
	if got := s.heard(); got != "joined, "+strings.Join(want, ", ") {
		t.Errorf("game servers heard %q, want joined, and then the 257 messages in order", got)
	}
}

// TestNoAnswer: game servers hear of a client after half a minute without an answer of a holder, and that it left after 5 s more. The
// edge goes on to tell the holder for a minute.
func TestNoAnswer(t *testing.T) {
	s := newSessionTest(t)
	s.session.Begin(start, s.conn)
	s.say("hi")
	at := func(d time.Duration, why, want string) {
		t.Helper()
		s.spaces.Advance(start.Add(d))
		if got := s.heard(); got != want {
			t.Errorf("after %v, %s: game servers heard %q, want %q", d, why, got, want)
		}
	}
	at(29*time.Second, "no holder answered", "")
	at(30*time.Second, "the patience is over", "joined, message hi")
	s.host.messages = nil
	s.session.Handle(start.Add(40*time.Second), &dnp.Event{Kind: dnp.EventClosed, Conn: s.conn, Reason: dnp.ClosePeer})
	at(44*time.Second, "no holder answered", "")
	at(45*time.Second, "the patience is over", "left peer")
	s.host.take()
	at(99*time.Second, "nothing more", "left peer")
	if len(s.host.take()) != 1 {
		t.Error("after a minute the holder is not told any more that the session left")
	}
	at(101*time.Second, "nothing more", "left peer")
	if len(s.host.take()) != 0 || len(s.session.space.departures) != 0 {
		t.Error("the edge does not forget the session")
	}
}

// TestFinish: a worker that ends says what waits: of a client that came and left before a holder heard of it, joined, its messages, and left.
func TestFinish(t *testing.T) {
	s := newSessionTest(t)
	s.session.Begin(start, s.conn)
	s.say("hi")
	s.session.Handle(start, &dnp.Event{Kind: dnp.EventClosed, Conn: s.conn, Reason: dnp.CloseDrain})
	s.spaces.Finish()
	s.spaces.Finish()
	if got := s.heard(); got != "joined, message hi, left drain" {
		t.Errorf("game servers heard %q, want joined, the message and left", got)
	}
}

// TestResumedJoin: game servers hear once that a client joined, whichever edge serves it when its holder answers.
func TestResumedJoin(t *testing.T) {
	for _, c := range []struct {
		why   string
		age   time.Duration
		state uint64
		want  string
	}{
		{"the former edge did not announce it", time.Second, 0, "joined, message hi"},
		{"the former edge announced it, and the holder heard that", time.Second, replication.JoinAnnounced, "message hi"},
		{"the former edge had the time to announce it", time.Minute, 0, "message hi"},
	} {
		s := newSessionTest(t)
		s.session.Began = start.Add(-c.age)
		s.session.Resume(start, s.conn, 0, command.Progress{})
		s.say("hi")
		s.spaces.Advance(start)
		for _, r := range s.host.take() {
			if got := s.heard(); got != "" {
				t.Errorf("%s: game servers heard %q, before the holder answered", c.why, got)
			}
			r.done(start, replication.AppendWriteResult(nil, replication.WriteResult{State: c.state}), nil)
		}
		if got := s.heard(); got != c.want {
			t.Errorf("%s: game servers heard %q, want %q", c.why, got, c.want)
		}
	}
}
