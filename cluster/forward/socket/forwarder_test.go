package socket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster/forward"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience ends a test that would wait for ever.
const patience = 30 * time.Second

var (
	key     = []byte("0123456789abcdef")
	someone = forward.Client{Addr: netip.MustParseAddrPort("192.0.2.1:5000"), Listener: 3413}
)

// A side is a forwarder that runs, and what it handed over.
type side struct {
	*Forwarder
	name string
	got  chan string
	stop context.CancelFunc
}

// open opens a forwarder that serves all clients, if serves is set.
func open(tb testing.TB, name string, serves bool, handle func(time.Time, []forward.Delivery)) *side {
	tb.Helper()
	s := &side{name: name, got: make(chan string, 1000)}
	if handle == nil {
		handle = func(_ time.Time, list []forward.Delivery) {
			for _, d := range list {
				s.got <- fmt.Sprintf("%d %s %s", d.Kind, d.Via, d.Data)
			}
		}
	}
	var err error
	s.Forwarder, err = Open(Config{
		Router: forward.Config{Node: name, Serves: func(forward.Client) (uint64, bool) { return 1, serves }},
		Listen: netip.MustParseAddrPort("127.0.0.1:0"), Handle: handle, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	var wait sync.WaitGroup
	wait.Go(func() {
		if err := s.Run(ctx); err != nil {
			tb.Errorf("%s ended with %v", name, err)
		}
	})
	tb.Cleanup(func() { cancel(); wait.Wait() })
	return s
}

// meet lets forwarders know each other, and waits until they hear each other.
func meet(tb testing.TB, sides ...*side) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var list []forward.Peer
	for _, s := range sides {
		list = append(list, forward.Peer{Name: s.name, ID: s.ID(), Addr: s.Addr()})
	}
	for _, s := range sides {
		if err := s.SetKeys(ctx, [][]byte{key}); err != nil {
			tb.Fatal(err)
		}
		s.SetPeers(ctx, list)
	}
	for _, s := range sides {
		for _, o := range sides {
			for s != o && s.Liveness(o.name) != forward.Alive && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
		}
	}
	if ctx.Err() != nil {
		tb.Fatal("they do not hear each other")
	}
}

func (s *side) want(t *testing.T, why, want string) {
	t.Helper()
	select {
	case got := <-s.got:
		if got != want {
			t.Errorf("%s: got %q, want %q", why, got, want)
		}
	case <-time.After(patience):
		t.Errorf("%s: nothing came, want %q", why, want)
	}
}

func TestForwarder(t *testing.T) {
	a, b := open(t, "a", false, nil), open(t, "b", true, nil)
	if a.Forward("b", someone, 0, []byte("x")) || a.Return("b", someone, 1, []byte("x")) {
		t.Error("a node that is not known is reached")
	}
	meet(t, a, b)
	for i := range 100 {
		if !a.Forward("b", someone, 0, fmt.Append(nil, i)) {
			t.Fatal("a node that is there is not reached")
		}
	}
	for i := range 100 {
		b.want(t, "in order", fmt.Sprintf("%d a %d", forward.ToOwner, i))
	}
	b.Return("a", someone, 1, []byte("answer"))
	a.want(t, "the answer", fmt.Sprintf("%d b answer", forward.ToClient))
	b.Forward("a", someone, 0, []byte("lost?"))
	a.want(t, "no edge serves the client", fmt.Sprintf("%d b lost?", forward.Orphan))
	large := bytes.Repeat([]byte("x"), 60_000)
	a.Forward("b", someone, 0, large)
	b.want(t, "a large one", fmt.Sprintf("%d a %s", forward.ToOwner, large))
	if err := a.SetKeys(t.Context(), [][]byte{[]byte("short")}); err == nil {
		t.Error("bad keys are taken")
	}
	a.Forward("b", someone, 0, []byte("x"))
	b.want(t, "the old keys stay in use", fmt.Sprintf("%d a x", forward.ToOwner))
	if n := len(a.Metrics()); n != 7 {
		t.Errorf("%d metrics", n)
	}
}

// TestChanged: an edge that ends is suspected, by all that ask and all that are told.
func TestChanged(t *testing.T) {
	changes := make(chan forward.Change, 100)
	a := open(t, "a", false, nil)
	a.cfg.Changed = func(c forward.Change) { changes <- c } // no change has been reported yet
	b := open(t, "b", true, nil)
	meet(t, a, b)
	b.stop()
	for end := time.After(patience); ; {
		select {
		case c := <-changes:
			if c == (forward.Change{Node: "b", Is: forward.Suspect}) {
				if a.Liveness("b") != forward.Suspect || a.Forward("b", someone, 0, []byte("x")) {
					t.Error("Liveness does not say so")
				}
				return
			}
		case <-end:
			t.Fatal("not suspected")
		}
	}
}

func TestPortInUse(t *testing.T) {
	a := open(t, "a", false, nil)
	_, err := Open(Config{Router: forward.Config{Node: "b", Serves: a.cfg.Router.Serves}, Listen: a.Addr(), Handle: func(time.Time, []forward.Delivery) {}})
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("got %v", err)
	}
	for _, c := range []Config{{}, {Handle: func(time.Time, []forward.Delivery) {}}} {
		if _, err := Open(c); err == nil {
			t.Errorf("%+v passes", c)
		}
	}
}

// TestQueueBound: what does not fit is dropped and counted, and what fits is as it was.
func TestQueueBound(t *testing.T) {
	q := queue{filling: new(batch)}
	for i := range batchOps + 5 {
		q.put(op{data: []byte{byte(i)}})
	}
	full := q.take(new(batch))
	if len(full.ops) != batchOps || q.lost.Load() != 5 {
		t.Errorf("%d wait, %d are lost", len(full.ops), q.lost.Load())
	}
	for i, o := range full.ops {
		if len(o.data) != 1 || o.data[0] != byte(i) {
			t.Fatalf("datagram %d is %x", i, o.data)
		}
	}
	large := make([]byte, 65_000)
	for range 2 * batchBytes / len(large) {
		q.put(op{data: large})
	}
	if got := q.take(full); len(got.bytes) > batchBytes || q.lost.Load() <= 5 {
		t.Errorf("%d bytes wait, %d are lost", len(got.bytes), q.lost.Load())
	}
}
