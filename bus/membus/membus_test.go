package membus

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

func newHub(seed uint64) (*Hub, *simnet.Net) {
	net := simnet.New(seed)
	h := New(Config{
		Schedule: net.Schedule, Rand: rand.New(rand.NewPCG(seed, 0)),
		Delay: time.Millisecond, Jitter: 5 * time.Millisecond,
	})
	return h, net
}

// settle runs everything that is scheduled.
func settle(net *simnet.Net) {
	for net.Step() {
	}
}

func collect(t *testing.T, b *Bus, pattern string) *[]string {
	var got []string
	_, err := b.Subscribe(pattern, func(m bus.Msg) { got = append(got, string(m.Data)) })
	if err != nil {
		t.Fatal(err)
	}
	return &got
}

func send(t *testing.T, b *Bus, subject, data string) {
	t.Helper()
	if err := b.Publish(bus.Msg{Subject: subject, Data: []byte(data)}); err != nil {
		t.Fatal(err)
	}
}

func TestLossAndDuplicates(t *testing.T) {
	run := func() ([]string, Stats) {
		h, net := newHub(7)
		h.Loss, h.Duplicate = 0.3, 0.1
		got := collect(t, h.Node("b"), "x")
		for i := range 10_000 {
			send(t, h.Node("a"), "x", fmt.Sprintf("%05d", i))
		}
		settle(net)
		return *got, h.Stats
	}
	got, stats := run()
	for i := 1; i < len(got); i++ {
		if got[i] < got[i-1] {
			t.Fatalf("%s arrived after %s: jitter must not change the order", got[i], got[i-1])
		}
	}
	if stats.Lost < 3000 || stats.Lost > 3600 || stats.Duplicated < 900 || stats.Duplicated > 1100 || stats.Delivered != uint64(len(got)) {
		t.Errorf("%d delivered, stats %+v; want about 30 %% lost and 10 %% doubled", len(got), stats)
	}
	if again, _ := run(); !reflect.DeepEqual(got, again) {
		t.Error("the same seed caused a different run")
	}
}

func TestCut(t *testing.T) {
	h, net := newHub(1)
	got := collect(t, h.Node("b"), "x")
	other := collect(t, h.Node("c"), "x")
	send(t, h.Node("a"), "x", "in transit at the cut")
	h.Cut("b", "a", true)
	send(t, h.Node("a"), "x", "during the cut")
	settle(net)
	if len(*got) != 0 || len(*other) != 2 || !h.Node("b").Connected() {
		t.Errorf("b got %q, c got %q; want only b cut off, and still connected", *got, *other)
	}
	var err error
	h.Node("a").Request(bus.Msg{Subject: "only-b"}, time.Second, func(_ bus.Msg, e error) { err = e })
	collect(t, h.Node("b"), "only-b")
	settle(net)
	if !errors.Is(err, bus.ErrNoResponders) {
		t.Errorf("request across the cut: %v", err)
	}
	h.Cut("a", "b", false)
	send(t, h.Node("a"), "x", "after")
	settle(net)
	if !reflect.DeepEqual(*got, []string{"after"}) {
		t.Errorf("after the cut b got %q", *got)
	}
}

func TestDisconnect(t *testing.T) {
	h, net := newHub(1)
	a, b := h.Node("a"), h.Node("b")
	got := collect(t, b, "x")
	var changes []bool
	b.OnChange(func(connected bool) { changes = append(changes, connected) })
	send(t, a, "x", "on the way")
	b.SetConnected(false)
	b.SetConnected(false)
	if err := b.Publish(bus.Msg{Subject: "x"}); !errors.Is(err, bus.ErrDisconnected) {
		t.Errorf("publish without a connection: %v", err)
	}
	send(t, a, "x", "meanwhile")
	b.SetConnected(true)
	send(t, a, "x", "after")
	settle(net)
	if !reflect.DeepEqual(*got, []string{"after"}) || !reflect.DeepEqual(changes, []bool{false, true}) || h.Stats.Lost != 1 {
		t.Errorf("got %q, changes %v, stats %+v", *got, changes, h.Stats)
	}
}

func TestClose(t *testing.T) {
	h, net := newHub(1)
	a, b := h.Node("a"), h.Node("b")
	got := collect(t, a, "x")
	var errs []error
	for range 3 {
		a.Request(bus.Msg{Subject: "x"}, time.Hour, func(_ bus.Msg, err error) { errs = append(errs, err) })
	}
	send(t, b, "x", "on the way")
	a.Close()
	settle(net)
	if len(errs) != 3 || !errors.Is(errs[0], bus.ErrClosed) || len(*got) != 0 {
		t.Errorf("requests ended with %v, and %q arrived", errs, *got)
	}
	if err := a.Publish(bus.Msg{Subject: "x"}); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("publish: %v", err)
	}
	if len(h.subs) != 0 || h.Node("a") == a {
		t.Error("a closed node must leave nothing behind")
	}
}
