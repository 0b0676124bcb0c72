package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/dnprelaytest"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/sessionlog/natsfrom"
	"github.com/nats-io/nats.go"
)

func TestMain(m *testing.M) { natstest.VerifyNoLeaks(m) }

// patience is how long a test waits for what has to come. No result depends on the speed of the machine.
const patience = 2 * time.Minute

// play runs the game server until the function that it returns is called.
func play(t *testing.T, srv *dnprelaytest.Server, file string) (end func()) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := run(ctx, srv.NATS, srv.Space, file); err != nil {
			t.Errorf("the game server ends: %v", err)
		}
	})
	end = func() { stop(); running.Wait() }
	t.Cleanup(end)
	return end
}

// TestDoor has a client push the door, which swings shut, also with a relay that has forgotten it.
func TestDoor(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	srv := dnprelaytest.Start(t)
	play(t, srv, "")
	told := make(chan string, 8)
	c, err := client.Dial(ctx, srv.Edge, client.Config{Message: func(_ *client.Client, m client.Message) { told <- string(m.Data) }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var door *client.State
	for _, when := range []string{"first", "after the relay forgot everything"} {
		former := door
		if err := c.Until(ctx, func() bool { door = c.State("door"); return door != nil && door != former }); err != nil {
			t.Fatalf("%s: there is no door: %v", when, err)
		}
		if err := door.SetAt(0, float32(90)); err != nil {
			t.Fatal(err)
		}
		moved := func() bool { a := door.At(0).Float(); return a > 0 && a < 90 }
		if err := c.Until(ctx, moved); err != nil {
			t.Fatalf("%s: the door does not move, it is at %v: %v", when, door.At(0), err)
		}
		if err := c.Until(ctx, func() bool { return door.At(0).Float() == 0 }); err != nil {
			t.Fatalf("%s: the door does not shut, it is at %v: %v", when, door.At(0), err)
		}
		if when == "first" {
			srv.StopRelay()
			srv.StartRelay()
		}
	}
	select {
	case text := <-told:
		if len(text) < 10 || text[:9] != "welcome, " {
			t.Errorf("the client is told %q, not welcome", text)
		}
	case <-ctx.Done():
		t.Error("the client is not welcomed")
	}
}

// TestScore counts messages of a client across a restart of the game server, each once.
func TestScore(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	srv := dnprelaytest.Start(t)
	say := edge(t, srv.NATS)
	file := filepath.Join(t.TempDir(), "state")
	end := play(t, srv, file)
	for n := range 3 {
		say(n)
	}
	awaitSaid(ctx, t, file, 3)
	end()
	say(3) // while no game server is there
	play(t, srv, file)
	say(4)
	awaitSaid(ctx, t, file, 5)
}

// edge returns a function that stores message n of a client, as edges with a log do.
func edge(t *testing.T, url string) (say func(n int)) {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	p, err := natsfrom.Open(t.Context(), natsfrom.Config{Conn: nc})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { p.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	stored := make(chan uint64, 1)
	session := p.Begin("demo", "ann", "s1", func(n uint64) { stored <- n })
	t.Cleanup(session.End)
	return func(n int) {
		session.Deliver(sessionlog.Message{Number: uint64(n), Previous: uint64(n), Data: fmt.Append(nil, "hello ", n)})
		select {
		case <-stored:
		case <-time.After(patience):
			t.Fatalf("message %d is not stored", n)
		}
	}
}

// awaitSaid waits until the file of the game server has that many messages of ann.
func awaitSaid(ctx context.Context, t *testing.T, file string, want int) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var g game
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &g)
		}
		if err == nil && g.Said["ann"] == want {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the file has %d messages of ann, want %d: %v", g.Said["ann"], want, err)
		}
	}
}
