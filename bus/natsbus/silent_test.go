package natsbus

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/internal/natstest"
)

// serverOf returns the index of the server of a cluster to which b is connected.
func serverOf(t *testing.T, b *Bus) int {
	t.Helper()
	i := slices.Index([]string{"n0", "n1", "n2"}, b.nc.ConnectedServerName())
	if i < 0 {
		t.Fatal("not connected")
	}
	return i
}

// TestSilentServer stops the server of a connection, and another one with it. Both servers keep their
// connections and answer nothing. The connection moves to the third server.
func TestSilentServer(t *testing.T) {
	c := natstest.StartProcesses(t, 3)
	b := connect(t, Config{URL: c.URL()})
	changes := make(chan bool, 16)
	b.OnChange(func(connected bool) { changes <- connected })
	flush(t, b)
	was := serverOf(t, b)
	for _, i := range []int{was, (was + 1) % 3} {
		c.Pause(i)
		defer c.Continue(i)
	}
	if receive(t, changes, "the server stands still") {
		t.Fatal("connected, want not connected first")
	}
	if !receive(t, changes, "another server is there") {
		t.Fatal("disconnected twice")
	}
	if is := serverOf(t, b); is != (was+2)%3 {
		t.Errorf("moved from server %d to %d, which stands still", was, is)
	}
	flush(t, b)
}

// TestServerReadsNothing has a server that reads nothing while the node publishes. What the connection
// cannot write must not hold up the notice that the server stands still.
func TestServerReadsNothing(t *testing.T) {
	c := natstest.Start(t, 1)
	p := natstest.NewProxy(t, c)
	b := connect(t, Config{URL: p.URL()})
	changes := make(chan bool, 16)
	b.OnChange(func(connected bool) { changes <- connected })
	flush(t, b)
	p.SetStuck(true)
	data := make([]byte, 512<<10)
	for { // until the sockets and the queue are full
		if err := b.Publish(bus.Msg{Subject: "x", Data: data}); errors.Is(err, bus.ErrBusy) || errors.Is(err, bus.ErrDisconnected) {
			break
		}
	}
	if receive(t, changes, "the server does not read") {
		t.Fatal("connected, want not connected first")
	}
	p.SetStuck(false)
	if !receive(t, changes, "the server reads again") {
		t.Fatal("disconnected twice")
	}
	flush(t, b)
}

// TestLeavesServer leaves a server that is well, stays at one that was left for another, and moves once a second at
// most.
func TestLeavesServer(t *testing.T) {
	c := natstest.Start(t, 3)
	b := connect(t, Config{URL: c.URL()})
	changes := make(chan bool, 16)
	b.OnChange(func(connected bool) { changes <- connected })
	flush(t, b)
	was := b.Server()
	if !b.Move(was) || receive(t, changes, "the connection leaves its server") || !receive(t, changes, "another server is there") {
		t.Fatal("want a move: not connected first, then connected")
	}
	flush(t, b)
	is := b.Server()
	if is == was {
		t.Errorf("still at server %s", is)
	}
	if b.Move(was) {
		t.Errorf("left %s, want to leave %s only", is, was)
	}
	b.moved.Store(time.Now().UnixNano())
	if b.Move(is) {
		t.Error("two moves within a second")
	}
	if st := b.Stats(); st.Moves != 1 || st.Reconnects != 1 {
		t.Errorf("stats %+v, want one move", st)
	}
}
