package systest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/publisher"
)

// TestCommandsOutliveEdges has a client send commands while its edge is killed and the next one is drained: real
// processes, NATS with streams, Redis, the Go client and package publisher. Each command is executed once, and has
// its answer. TestTakeover shows the same of all faults, in virtual time.
func TestCommandsOutliveEdges(t *testing.T) {
	t.Parallel()
	r := newRescueEdges(t, startRedis(t))
	p, err := publisher.Connect(t.Context(), publisher.Config{Conn: r.nc})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	space, err := p.Space("s")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	gate := publisher.Put{Key: "gate", Access: publisher.Access{All: true}, Values: []publisher.Value{{Name: "open", Type: "uint8", Value: 0}}}
	if _, err := space.Publish(ctx, gate, publisher.Put{Key: "wall", Values: gate.Values}); err != nil {
		t.Fatal(err)
	}
	executed := map[string]int{}
	var serving sync.WaitGroup
	serve, stop := context.WithCancel(ctx)
	serving.Go(func() {
		var cursor publisher.Cursor
		for m, err := range space.Messages(serve, &cursor) {
			if err != nil {
				if serve.Err() == nil {
					t.Errorf("the game server misses messages: %v", err)
				}
				return
			}
			if m.Command == nil {
				t.Errorf("the game server gets the message %q, want commands", m.Data)
				continue
			}
			executed[string(m.Data)]++
			if err := m.Command.Reply(serve, append([]byte("done "), m.Data...)); err != nil && serve.Err() == nil {
				t.Errorf("the answer to %q: %v", m.Data, err)
			}
		}
	})
	c, err := client.Dial(ctx, "udp://"+r.balancer.addr().String(), client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	state, err := c.Await(ctx, "gate")
	if err != nil {
		t.Fatal(err)
	}
	wall, err := c.Await(ctx, "wall")
	if err != nil {
		t.Fatal(err)
	}
	const commands = 40
	var running sync.WaitGroup
	ask := func(from string, trouble func()) {
		for i := range commands {
			if i == commands/2 {
				trouble()
			}
			running.Go(func() {
				body := fmt.Sprint(from, i)
				if answer, err := state.Command(ctx, "use", []byte(body)); err != nil || string(answer) != "done "+body {
					t.Errorf("command %s has the answer %q, %v", body, answer, err)
				}
			})
		}
		var refused *client.CommandError
		if _, err := wall.Command(ctx, "use", []byte("no")); !errors.As(err, &refused) || refused.Code != "not_authorised" {
			t.Errorf("a command about a state that the client may not write: %v", err)
		}
		running.Wait()
	}
	start := time.Now()
	ask("first ", func() { r.edges[0].kill(); r.route(1) })
	t.Logf("commands over a kill: %v", time.Since(start).Round(time.Millisecond))
	ask("second ", func() {})
	t.Logf("and as many again: %v", time.Since(start).Round(time.Millisecond))
	stop()
	serving.Wait()
	if len(executed) != 2*commands {
		t.Errorf("%d commands were executed, want %d", len(executed), 2*commands)
	}
	for body, n := range executed {
		if n != 1 || strings.HasPrefix(body, "no") {
			t.Errorf("%q was executed %d times", body, n)
		}
	}
}
