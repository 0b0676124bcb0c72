// Command publisher is a small game server: a door that clients push and that swings
// shut, a greeting for each client that joins, and a count of what each of them said
// that survives the game server. Start `relay dev --no-demo` and this, then
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
	file := flag.String("state", "", "file that keeps the scores and the cursor; empty: nothing is kept")
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

// follow greets who joins, and notes who pushes the door.
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

// swing lets the door fall shut, 20 times a second.
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

// A game is what has to survive this program. The cursor is part of it: both are stored
// in one step, so that no message counts twice or never.
type game struct {
	Cursor publisher.Cursor
	Said   map[string]int // messages of each client
}

// score counts messages of clients, if the edges keep sessions in a log.
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
			log.Print(err) // this one came all the same
		}
		g.Said[m.Client]++
		fmt.Printf("%s said %d things, %q the last\n", m.Client, g.Said[m.Client], m.Data)
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
