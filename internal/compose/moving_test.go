package compose

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/internal/natstest"
)

// TestWatchRelays has two servers without a route between them. A relay moves from one to the other, and the
// connections of an edge to the first follow it.
func TestWatchRelays(t *testing.T) {
	cut, well := natstest.Start(t, 1).URL(), natstest.Start(t, 1).URL()
	connect := func(url string) *natsbus.Bus {
		b, err := natsbus.Connect(natsbus.Config{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		return b
	}
	n := &node{name: "e1", log: slog.New(slog.DiscardHandler)}
	for range 2 {
		n.add(connect(cut + "," + well))
	}
	first := n.bus.Conn().ConnectedUrl()
	for n.buses[1].Conn().ConnectedUrl() != first { // both begin at a random server
		n.buses[1].Close()
		n.buses[1] = connect(cut + "," + well)
	}
	if first == well {
		cut, well = well, cut
	}
	var moved atomic.Bool
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer func() { cancel(); running.Wait() }()
	running.Go(func() { _ = n.watchRelays(ctx, func() bool { return true }) })
	before, after := connect(cut), connect(well)
	running.Go(func() { // the relay
		for ctx.Err() == nil {
			relay := before
			if moved.Load() {
				relay = after
			}
			_ = relay.Publish(bus.Msg{Subject: n.subjects.Relay("r1"), Data: []byte(`{"ready":true}`)})
			_ = n.bus.Publish(bus.Msg{Subject: n.subjects.Relay("e1")}) // what a node says itself does not count
			time.Sleep(50 * time.Millisecond)
		}
	})
	received := n.bus.Stats().Received
	for end := time.Now().Add(time.Minute); n.bus.Stats().Received < received+10; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the edge does not hear the relay")
		}
	}
	moved.Store(true)
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if n.buses[0].Conn().ConnectedUrl() == well && n.buses[1].Conn().ConnectedUrl() == well {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the connections are at %s and %s, want %s, where the relay is", n.buses[0].Conn().ConnectedUrl(), n.buses[1].Conn().ConnectedUrl(), well)
		}
	}
}

// TestRelaySilence follows what a node hears of other relays.
func TestRelaySilence(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	s := relaySilence{start}
	for _, x := range []struct {
		at, heard         float64 // seconds; heard is 0 for never
		connected, others bool
		useless           bool
		why               string
	}{
		{10, 0, true, true, false, "the server may not allow this node to hear relays"},
		{20, 19.9, true, true, false, "a relay was heard"},
		{22, 19.9, true, true, false, "it was heard two seconds before"},
		{22.9, 19.9, true, true, true, "it was heard three seconds before"},
		{23.4, 19.9, true, true, false, "the next server gets as much time"},
		{25.9, 19.9, true, true, true, "the next server is useless as well"},
		{26.4, 26, true, true, false, "a relay was heard over the third"},
		{28.9, 26, false, true, false, "the connection is lost"},
		{29.4, 26, true, true, false, "it was made again, and relays have not announced themselves yet"},
		{31.8, 26, true, true, false, "for almost three seconds"},
		{31.9, 26, true, true, true, "for three seconds"},
		{36, 26, true, false, false, "gossip knows no other relay"},
		{37, 26, true, true, false, "gossip knows one since a second"},
	} {
		at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
		var heard time.Time
		if x.heard != 0 {
			heard = at(x.heard)
		}
		if got := s.useless(at(x.at), heard, x.connected, x.others); got != x.useless {
			t.Errorf("second %v: useless = %v, want %v: %s", x.at, got, x.useless, x.why)
		}
	}
}
