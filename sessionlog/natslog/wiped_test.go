package natslog

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/dnprelay/dnprelay/sessionlog"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// TestStreamsAreMadeAgain deletes the streams of a log that is in use. The log takes new sessions
// soon, under the same names, and refuses what continues a session of the former streams.
func TestStreamsAreMadeAgain(t *testing.T) {
	c := natstest.Start(t, 1)
	nc := c.Connect(t)
	l := open(t, Config{Conn: nc, Shards: 4, Streams: 2})
	done := make(chan sessionlog.Answer, 1)
	ctx, stop := context.WithCancel(t.Context())
	kept := make(chan error)
	go func() { kept <- l.Maintain(ctx) }()
	defer func() { stop(); <-kept }()
	append := func(expect uint64) sessionlog.Answer {
		l.Append(sessionlog.Write{Log: "x", Expect: expect, Data: []byte("data"), Rollup: true}, func(a sessionlog.Answer) { done <- a })
		return <-done
	}
	first := append(0)
	if first.Verdict != fence.OK {
		t.Fatalf("the first write is answered %+v", first)
	}
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for g := range 2 {
		natstest.DeleteStream(t, js, StreamName(g))
	}
	a := append(first.Seq)
	for end := time.Now().Add(patience); a.Verdict == fence.Unreachable; a = append(first.Seq) {
		if time.Now().After(end) {
			t.Fatal("the stream is not made again")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if a.Verdict != fence.Stale {
		t.Errorf("a write that continues a log of the former stream is answered %+v", a)
	}
	if a = append(0); a.Verdict != fence.OK || a.Seq <= first.Seq {
		t.Errorf("the first write of a new session is answered %+v, want a sequence above %d", a, first.Seq)
	}
	for end := time.Now().Add(patience); l.Replaced() < 2 || len(l.Missing()) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d streams were made again, missing %v", l.Replaced(), l.Missing())
		}
	}
	if other := open(t, Config{Conn: nc, Shards: 4, Streams: 2}); !bytes.Equal(other.Secret(), l.Secret()) {
		t.Error("an edge that starts later gives sessions other names")
	}
}

// TestOtherSecret makes the first stream again with another secret, as an edge does that starts
// when the stream is gone. The edges would give one session two names, so the log ends.
func TestOtherSecret(t *testing.T) {
	c := natstest.Start(t, 1)
	nc := c.Connect(t)
	l, err := Open(t.Context(), Config{Conn: nc, Shards: 4, Streams: 1})
	if err != nil {
		t.Fatal(err)
	}
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	natstest.DeleteStream(t, js, StreamName(0))
	if _, err := Open(t.Context(), Config{Conn: nc, Shards: 4, Streams: 1}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := l.Maintain(ctx); err == nil || !strings.Contains(err.Error(), "another secret") {
		t.Errorf("Maintain ends with %v, want the reason", err)
	}
}
