package natsask

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 60 * time.Second

// TestOneAtATime: what waits goes on when an answer comes, and not when the time is up.
func TestOneAtATime(t *testing.T) {
	nc := natstest.Start(t, 1).Connect(t)
	if _, err := nc.Subscribe("echo", func(m *nats.Msg) { m.Respond(m.Data) }); err != nil {
		t.Fatal(err)
	}
	a := run(t, Config{Conn: nc, InFlight: 1, Timeout: 10 * patience})
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
	a.Ask(all...)
	for i := range byte(n) {
		select {
		case got := <-answers:
			if got != i {
				t.Fatalf("answer %d comes, want %d", got, i)
			}
		case <-time.After(patience):
			t.Fatalf("answer %d does not come", i)
		}
	}
	nobody := make(chan error, 1)
	a.Ask(Request{Msg: &nats.Msg{Subject: "nobody"}, Done: func(_ *nats.Msg, err error) { nobody <- err }})
	if err := <-nobody; !errors.Is(err, ErrNotSent) {
		t.Errorf("nobody listens: %v", err)
	}
}

func run(t *testing.T, cfg Config) *Asker {
	t.Helper()
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { a.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return a
}

// TestBounds: what is too much is refused, whether it is many or large.
func TestBounds(t *testing.T) {
	for _, c := range []struct {
		cfg     Config
		size, n int
		refused int
	}{
		{Config{Queue: 2}, 1, 5, 3},
		{Config{Bytes: 10_000}, 4000, 5, 3},
		{Config{}, 1, 5, 0},
	} {
		a := &Asker{cfg: c.cfg.withDefaults(), work: make(chan struct{}, 1), refuse: make(chan struct{}, 1)}
		refused := 0
		for range c.n {
			a.Ask(Request{Msg: &nats.Msg{Data: make([]byte, c.size)}, Done: func(_ *nats.Msg, err error) {
				if errors.Is(err, ErrNotSent) {
					refused++
				}
			}})
		}
		a.answerRefused()
		if refused != c.refused {
			t.Errorf("%+v: %d of %d refused, want %d", c.cfg, refused, c.n, c.refused)
		}
	}
}

// TestCut: when the connection breaks, what is under way is given up at once.
func TestCut(t *testing.T) {
	c := natstest.Start(t, 1)
	heard := make(chan bool, 1)
	other := c.Connect(t)
	if _, err := other.Subscribe("silent", func(*nats.Msg) { heard <- true }); err != nil || other.Flush() != nil {
		t.Fatal(err)
	}
	wire := natstest.NewProxy(t, c)
	a := run(t, Config{Conn: wire.Connect(t, c), Timeout: 10 * patience})
	done := make(chan error, 1)
	a.Ask(Request{Msg: &nats.Msg{Subject: "silent"}, Done: func(_ *nats.Msg, err error) { done <- err }})
	<-heard
	wire.Cut()
	select {
	case err := <-done:
		if !errors.Is(err, ErrNoAnswer) {
			t.Errorf("it may have been carried out: %v", err)
		}
	case <-time.After(patience):
		t.Error("an answer that cannot come is waited for")
	}
}
