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

// TestSilentServer stops the NATS server of a game server, which then answers nothing and keeps its
// connections. The game server hears its clients over another server.
func TestSilentServer(t *testing.T) {
	c := natstest.StartProcesses(t, 3)
	p, err := Connect(Config{URL: c.URL()})
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
	go func() { listened <- space.Listen(ctx, func(m *Message) { heard <- string(m.Data) }) }()
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
