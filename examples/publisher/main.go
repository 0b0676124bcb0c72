// Command publisher is a small game server: it has a door that clients push and that swings
// shut, greets each client that joins, and counts the messages of each client, even across
// its own restarts. Start `relay dev --no-demo` and this program, then
// `dnpctl watch 127.0.0.1:3413` and `dnpctl set 127.0.0.1:3413 door 0=90`.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/publisher"
)

func main() {
	url := flag.String("nats-url", "nats://127.0.0.1:4222", "NATS servers")
	space := flag.String("space", "demo", "space of the game")
	file := flag.String("state", "", "file for the counts and the cursor; empty = do not store them")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *url, *space, *file); err != nil {
		log.Fatal(err)
	}
}

// A door is a state: its exported fields are the values. Clients may write them, within bounds.
type door struct {
	Angle float32 `dnp:"angle,precision=0.1,min=0,max=90"`
}

func run(ctx context.Context, url, name, file string) error {
	p, err := publisher.Connect(ctx, publisher.Config{URL: url})
	if err != nil {
		return err
	}
	defer p.Close()
	space, err := p.Space(name)
	if err != nil {
		return err
	}
	d, err := publisher.Bind(space, publisher.Put{Key: "door", Farewell: "the door is gone", Access: publisher.Access{All: true}}, door{})
	if err != nil {
		return err
	}
	if err := space.Flush(ctx); err != nil {
		return err
	}
	var running sync.WaitGroup
	running.Go(func() { greet(ctx, space) })
	running.Go(func() { swing(ctx, d) })
	err = score(ctx, space, file)
	running.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// greet welcomes clients that join, and tells of pushes of the door.
func greet(ctx context.Context, space *publisher.Space) {
	for ev, err := range space.Events(ctx, publisher.Filter{}) {
		if err != nil {
			return // ctx ended
		}
		switch ev.Kind {
		case publisher.KindJoined:
			fmt.Println(ev.Client, "joined")
			if err := space.Tell(publisher.Outgoing{To: ev.Client, Data: []byte("welcome, " + ev.Client)}); err != nil {
				log.Print(err)
			}
		case publisher.KindChanged:
			fmt.Println(ev.Client, "pushed the", ev.Key, "to", ev.Values["angle"])
		case publisher.KindLeft:
			fmt.Println(ev.Client, "left:", ev.Reason)
		}
	}
}

// swing moves the door towards shut, 20 times a second. Where a client pushed it to is in the door already.
func swing(ctx context.Context, d *publisher.Bound[door]) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := d.Update(func(d *door) {
			if d.Angle *= 0.9; d.Angle < 1 {
				d.Angle = 0
			}
		}); err != nil {
			log.Print(err)
		}
	}
}

// A game is the state that survives this program. The cursor is part of it: save stores both
// in one step, so that every message counts once.
type game struct {
	Cursor publisher.Cursor
	Said   map[string]int // messages of each client
}

// score counts the messages of clients. It needs edges that keep sessions in a log.
func score(ctx context.Context, space *publisher.Space, file string) error {
	g := game{Said: map[string]int{}}
	if text, err := os.ReadFile(file); err == nil {
		if err := json.Unmarshal(text, &g); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	for m, err := range space.Messages(ctx, &g.Cursor) {
		if err != nil && m == nil {
			return err
		}
		if err != nil {
			log.Print(err) // messages before this one are lost
		}
		g.Said[m.Client]++
		fmt.Printf("%s sent %d messages, %q the last\n", m.Client, g.Said[m.Client], m.Data)
		if err := g.save(file); err != nil {
			return err
		}
	}
	return nil
}

// save replaces the file in one step.
func (g *game) save(file string) error {
	if file == "" {
		return nil
	}
	text, err := json.Marshal(g)
	if err == nil {
		err = os.WriteFile(file+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	return err
}
