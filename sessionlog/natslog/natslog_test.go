package natslog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/jetstream"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

func TestMain(m *testing.M) { natstest.VerifyNoLeaks(m) }

// patience is how long a test waits for what must happen.
const patience = 60 * time.Second

// open returns a log that runs until the test ends.
func open(t testing.TB, cfg Config) *Log {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	l, err := Open(ctx, cfg)
	for err != nil && !errors.Is(err, jetstream.ErrDeployment) && ctx.Err() == nil { // a cluster needs a while for its first stream
		l, err = Open(ctx, cfg)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { l.Run(ctx); close(done) }()
	t.Cleanup(func() { stop(); <-done })
	return l
}

// TestStuck checks that a peer which reads nothing does not block callers of Append, and that
// every write is answered in time.
func TestStuck(t *testing.T) {
	c := natstest.Start(t, 1)
	p := natstest.NewProxy(t, c)
	l := open(t, Config{Conn: p.Connect(t, c), Shards: 1, Queue: 150, InFlight: 100, Timeout: 200 * time.Millisecond})
	p.SetStuck(true)
	const n = 300
	answers := make(chan sessionlog.Answer, n)
	for i := range n {
		l.Append(sessionlog.Write{Log: fmt.Sprint(i), Data: make([]byte, 100<<10)}, func(a sessionlog.Answer) { answers <- a })
	}
	counts := map[fence.Verdict]int{}
	for range n {
		select {
		case a := <-answers:
			counts[a.Verdict]++
		case <-time.After(patience):
			t.Fatalf("some of %d writes are not answered, the others %v", n, counts)
		}
	}
	if counts[fence.OK] > 0 || counts[fence.Unknown] == 0 || counts[fence.Unreachable] < n-150-100 {
		t.Errorf("answers %v, want unknown for writes that were sent and unreachable for the others", counts)
	}
	p.SetStuck(false)
	p.Cut()
	for end := time.Now().Add(patience); ; {
		l.Append(sessionlog.Write{Log: "after"}, func(a sessionlog.Answer) { answers <- a })
		if a := <-answers; a.Verdict == fence.OK || a.Verdict == fence.Stale {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the log does not recover after the connection was cut")
		}
	}
}

// TestWithoutServer checks that without a server every request is unreachable at once.
func TestWithoutServer(t *testing.T) {
	c := natstest.Start(t, 1)
	nc := c.Connect(t)
	l := open(t, Config{Conn: nc, Shards: 1})
	gone := nc.StatusChanged(nats.RECONNECTING)
	c.Stop(0)
	<-gone
	answers := make(chan sessionlog.Answer, 1)
	for what, ask := range map[string]func(){
		"write": func() {
			l.Append(sessionlog.Write{Log: "x"}, func(a sessionlog.Answer) { answers <- a })
		},
		"read": func() { l.Read("x", func(a sessionlog.Answer) { answers <- a }) },
	} {
		ask()
		a := <-answers
		for end := time.Now().Add(patience); a.Verdict == fence.Unknown && time.Now().Before(end); a = <-answers {
			ask() // the log had not noticed yet that the connection is gone
		}
		if a.Verdict != fence.Unreachable {
			t.Errorf("a %s without a server is answered %v, want unreachable", what, a.Verdict)
		}
	}
}

// TestEndIsForgotten checks that the end of a session has a time to live.
func TestEndIsForgotten(t *testing.T) {
	c := natstest.Start(t, 1)
	nc := c.Connect(t)
	l := open(t, Config{Conn: nc, Shards: 1})
	done := make(chan sessionlog.Answer, 1)
	l.Append(sessionlog.Write{Log: "x", Rollup: true, Final: true}, func(a sessionlog.Answer) { done <- a })
	<-done
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), StreamName(0))
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.GetLastMsgForSubject(t.Context(), l.cfg.Subjects.Log(0, "x"))
	if err != nil || m.Header.Get("Nats-TTL") != "10m" {
		t.Errorf("the end of the session is %+v, %v; want a TTL of 10m", m, err)
	}
	if first := s.CachedInfo().Config.FirstSeq; time.Since(time.UnixMilli(int64(first))).Abs() > time.Hour {
		t.Errorf("the first sequence is %d, want the time in milliseconds", first)
	}
}

func TestDeploymentThatDiffers(t *testing.T) {
	c := natstest.Start(t, 1)
	nc := c.Connect(t)
	open(t, Config{Conn: nc, Shards: 8, Streams: 2})
	for _, x := range []struct {
		cfg  Config
		want []string
	}{
		{Config{Shards: 16, Streams: 2}, []string{"DNP_LOG_0", "8 log shards", "16"}},
		{Config{Shards: 8, Streams: 4}, []string{"DNP_LOG_0", "2 log streams", "4"}},
	} {
		x.cfg.Conn = nc
		_, err := Open(t.Context(), x.cfg)
		if !errors.Is(err, jetstream.ErrDeployment) {
			t.Errorf("opening with %+v: %v, want %v", x.cfg, err, jetstream.ErrDeployment)
			continue
		}
		for _, w := range x.want {
			if !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %q, want one line with %q", err, w)
			}
		}
	}
}

// TestReadSteps checks that a read takes one request per write from the checkpoint on.
func TestReadSteps(t *testing.T) {
	c := natstest.Start(t, 1)
	l := open(t, Config{Conn: c.Connect(t), Shards: 1})
	done := make(chan sessionlog.Answer, 1)
	seq := uint64(0)
	for k := range 10 {
		w := sessionlog.Write{Log: "x", Expect: seq, Rollup: k == 4}
		l.Append(w, func(a sessionlog.Answer) { done <- a })
		seq = (<-done).Seq
	}
	l.Read("x", func(a sessionlog.Answer) { done <- a })
	if a := <-done; len(a.Entries) != 6 || l.counts.steps.Load() != 6 {
		t.Errorf("the read has %d writes in %d steps, want 6 in 6", len(a.Entries), l.counts.steps.Load())
	}
}
