package publisher

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
)

// TestAbsent lets edges not name a session for a while. The stream reports that it left when they have not
// named it for ten seconds in which they could have.
func TestAbsent(t *testing.T) {
	var got []string
	w := &follower{sessions: map[string]*presence{}, f: func(ev Event) { got = append(got, string(ev.Kind)+" "+ev.Session+" "+ev.Reason) }}
	start := time.Unix(1_000_000, 0)
	both, one := []Client{{Client: "a", Session: "s1", Edge: "e"}, {Client: "b", Session: "s2", Edge: "e"}}, []Client{{Client: "a", Session: "s1", Edge: "e"}}
	for _, x := range []struct {
		at          float64 // seconds
		reconnected bool
		list        []Client
		stale       bool // the stream asks again
		want        []string
		why         string
	}{
		{0, false, both, false, []string{"joined s1 ", "joined s2 "}, "the edges name two sessions"},
		{60, true, nil, true, nil, "after a minute without NATS the edges have not found another server yet"},
		{62, false, both, false, nil, "they play on"},
		{70, false, one, true, nil, "one is absent from now on"},
		{79, false, one, true, nil, "for nine seconds"},
		{79.5, true, one, true, nil, "NATS was away, so that the ten seconds begin again"},
		{89, false, one, true, nil, "for another nine and a half"},
		{89.5, false, one, false, []string{"left s2 missed"}, "for ten seconds in which the edge could have named it"},
		{90, false, both, false, []string{"joined s2 "}, "it came back after all"},
	} {
		got = nil
		if x.reconnected {
			w.reconnected()
		}
		w.answered(start.Add(time.Duration(x.at*float64(time.Second))), x.list)
		if !slices.Equal(got, x.want) || w.stale != x.stale {
			t.Errorf("second %v: events %q, want %q; asks again: %v, want %v: %s", x.at, got, x.want, w.stale, x.stale, x.why)
		}
	}
}

// TestSilentServer stops the NATS server of a game server, which then answers nothing and keeps its
// connections. The game server hears its clients over another server.
func TestSilentServer(t *testing.T) {
	c := natstest.StartProcesses(t, 3)
	p, err := Connect(t.Context(), Config{URL: c.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	space, err := p.Space("demo")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	heard := make(chan string, 1000)
	listened := make(chan error, 1)
	go func() {
		for ev, err := range space.Events(ctx, Filter{Kinds: []Kind{KindMessage}}) {
			if err != nil {
				listened <- err
				return
			}
			heard <- string(ev.Message.Data)
		}
	}()
	servers := []string{"n0", "n1", "n2"}
	was := slices.Index(servers, p.nc.ConnectedServerName())
	other := c.Connect(t, nats.PingInterval(100*time.Millisecond), nats.Timeout(time.Second))
	say := func(text string) { // until it is heard
		for {
			_ = other.PublishMsg(&nats.Msg{Subject: subject.Names{}.From("demo", "a"), Header: nats.Header{subject.HeaderSession: {"s"}}, Data: []byte(text)})
			select {
			case got := <-heard:
				if got == text {
					return
				}
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				t.Fatalf("the game server does not hear %q; its server is %q", text, p.nc.ConnectedServerName())
			}
		}
	}
	say("before")
	c.Pause(was)
	defer c.Continue(was)
	say("after")
	if is := slices.Index(servers, p.nc.ConnectedServerName()); is == was {
		t.Errorf("the game server is connected to server %d, which stands still", is)
	}
	cancel()
	<-listened
}
