package jetstream

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/dnprelay/dnprelay/internal/turn"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 60 * time.Second

// TestOneAtATime checks that an answer, and not only the timeout, lets the next request leave.
func TestOneAtATime(t *testing.T) {
	nc := natstest.Start(t, 1).Connect(t)
	if _, err := nc.Subscribe("echo", func(m *nats.Msg) { m.Respond(m.Data) }); err != nil {
		t.Fatal(err)
	}
	a := run(t, RequesterConfig{Conn: nc, InFlight: 1, Timeout: 10 * patience})
	const n = 20
	answers := make(chan byte, 2*n)
	var all []Request
	for i := range byte(n) {
		all = append(all, Request{Msg: &nats.Msg{Subject: "echo", Data: []byte{i}}, Done: func(m *nats.Msg, err error) {
			if err != nil {
				t.Error(err)
				return
			}
			answers <- m.Data[0]
		}})
	}
	for _, r := range all {
		a.Send(r)
	}
	for i := range byte(n) {
		select {
		case got := <-answers:
			if got != i {
				t.Fatalf("answer %d arrives, want %d", got, i)
			}
		case <-time.After(patience):
			t.Fatalf("answer %d does not arrive", i)
		}
	}
	unserved := make(chan error, 1)
	a.Send(Request{Msg: &nats.Msg{Subject: "unserved"}, Done: func(_ *nats.Msg, err error) { unserved <- err }})
	if err := <-unserved; !errors.Is(err, ErrNotSent) {
		t.Errorf("a request without a responder ends with %v, want %v", err, ErrNotSent)
	}
}

func run(t *testing.T, cfg RequesterConfig) *Requester {
	t.Helper()
	a := NewRequester(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { a.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return a
}

// TestBounds checks that requests beyond the bounds are refused, be they many or large.
func TestBounds(t *testing.T) {
	for _, c := range []struct {
		cfg     RequesterConfig
		size, n int
		refused int
	}{
		{RequesterConfig{Queue: 2}, 1, 5, 3},
		{RequesterConfig{Bytes: 10_000}, 4000, 5, 3},
		{RequesterConfig{}, 1, 5, 0},
	} {
		a := &Requester{cfg: c.cfg.withDefaults(), work: turn.NewWake(), reject: turn.NewWake()}
		refused := 0
		for range c.n {
			a.Send(Request{Msg: &nats.Msg{Data: make([]byte, c.size)}, Done: func(_ *nats.Msg, err error) {
				if errors.Is(err, ErrNotSent) {
					refused++
				}
			}})
		}
		a.giveUp(time.Time{}, time.Time{})
		if refused != c.refused {
			t.Errorf("%+v: %d of %d refused, want %d", c.cfg, refused, c.n, c.refused)
		}
	}
}

// TestCut checks that requests in flight are given up as soon as the connection breaks.
func TestCut(t *testing.T) {
	c := natstest.Start(t, 1)
	heard := make(chan bool, 1)
	other := c.Connect(t)
	if _, err := other.Subscribe("silent", func(*nats.Msg) { heard <- true }); err != nil || other.Flush() != nil {
		t.Fatal(err)
	}
	wire := natstest.NewProxy(t, c)
	a := run(t, RequesterConfig{Conn: wire.Connect(t, c), Timeout: 10 * patience})
	done := make(chan error, 1)
	a.Send(Request{Msg: &nats.Msg{Subject: "silent"}, Done: func(_ *nats.Msg, err error) { done <- err }})
	<-heard
	wire.Cut()
	select {
	case err := <-done:
		if !errors.Is(err, ErrNoAnswer) {
			t.Errorf("a request that may have been carried out ends with %v, want %v", err, ErrNoAnswer)
		}
	case <-time.After(patience):
		t.Error("the request still waits for an answer that cannot come")
	}
}

// TestQueue checks the order of the requests that wait, and that their memory does not grow.
func TestQueue(t *testing.T) {
	var q Requester
	next, want := uint64(0), uint64(0)
	for round := range 1000 {
		for range round % 7 {
			q.waiting = append(q.waiting, &Request{id: next})
			next++
		}
		for _, r := range q.takeLocked(min(round%5, len(q.waiting))) {
			if r.id != want {
				t.Fatalf("the queue returns %d, want %d", r.id, want)
			}
			want++
		}
	}
	if n := len(q.waiting); uint64(n) != next-want || cap(q.waiting) > 4*n+64 {
		t.Errorf("the queue has %d requests and room for %d, want %d requests", n, cap(q.waiting), next-want)
	}
}
