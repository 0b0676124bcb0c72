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
	"strconv"
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

func run(ctx context.Context, url, name, file string) error {
	p, err := publisher.Connect(publisher.Config{URL: url})
	if err != nil {
		return err
	}
	defer p.Close()
	space, err := p.Space(name)
	if err != nil {
		return err
	}
	if _, err := space.Publish(ctx, publisher.Put{
		Key: "door", Farewell: "the door is gone", Access: publisher.Access{All: true},
		Values: []publisher.Value{{Name: "angle", Type: "float32", Value: 0, Precision: 0.1}},
	}); err != nil {
		return err
	}
	pushed := make(chan float64, 100)
	var running sync.WaitGroup
	running.Go(func() { _ = space.Follow(ctx, follow(space, pushed)) }) // ends with ctx
	running.Go(func() { swing(ctx, space, pushed) })
	err = score(ctx, space, file)
	running.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// follow greets clients that join, and passes on pushes of the door.
func follow(space *publisher.Space, pushed chan<- float64) func(publisher.Event) {
	return func(ev publisher.Event) {
		fmt.Println(ev.Type, ev.Client, ev.Key)
		switch ev.Type {
		case "joined":
			if err := space.Tell(ev.Client, []byte("welcome, "+ev.Client)); err != nil {
				log.Print(err)
			}
		case "changed":
			if angle, err := strconv.ParseFloat(string(ev.Values["angle"]), 64); err == nil && ev.Key == "door" {
				pushed <- angle
			}
		}
	}
}

// swing moves the door towards shut, 20 times a second.
func swing(ctx context.Context, space *publisher.Space, pushed <-chan float64) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	angle := 0.0
	for {
		select {
		case <-ctx.Done():
			return
		case angle = <-pushed:
		case <-tick.C:
			if angle == 0 {
				continue
			}
			if angle *= 0.9; angle < 1 {
				angle = 0
			}
			if err := space.Post(publisher.Set{Key: "door", Values: publisher.Values{"angle": angle}}); err != nil {
				log.Print(err)
			}
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
