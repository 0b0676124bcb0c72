//go:build linux

package torture

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/publisher"
)

const (
	space       = "match"
	worldPace   = 20 * time.Millisecond // between changes of what all clients see: no shorter silence can be seen
	answerMost  = 15 * time.Second      // for which the game server repeats one message
	gameRestart = 10 * time.Second      // between two restarts of the consumer
)

// A game is the game server.
type game struct {
	run   *run
	p     *publisher.Publisher
	space *publisher.Space
	log   bool // sessions are in a log, so messages come with a cursor

	mu     sync.Mutex        // consumer and tellers
	heard  map[string]uint64 // by party
	stop   map[string]func() // ends the teller of a client, by its DNP name
	stored []byte            // the cursor, as it is stored
	who    map[string]string // party of each DNP name
	busy   map[string]bool   // tellers that wait for an answer
	all    sync.WaitGroup
}

func newGame(r *run, url string, log bool) (*game, error) {
	p, err := publisher.Connect(publisher.Config{URL: url})
	if err != nil {
		return nil, err
	}
	g := &game{run: r, p: p, log: log, heard: map[string]uint64{}, stop: map[string]func(){}, who: map[string]string{}, busy: map[string]bool{}}
	if g.space, err = p.Space(space); err != nil {
		p.Close()
	}
	return g, err
}

// open makes the state that everybody sees.
func (g *game) open(ctx context.Context) error {
	_, err := g.space.Publish(ctx, publisher.Put{Key: "ball", Values: []publisher.Value{{Name: "x", Type: "uint32", Value: 0}}})
	return err
}

// play plays until ctx ends.
func (g *game) play(ctx context.Context) {
	g.all.Go(func() { g.move(ctx) })
	g.all.Go(func() {
		_ = g.space.Follow(ctx, func(ev publisher.Event) { // ends with ctx
			if ev.Type == "left" {
				g.gone(ev.Client)
			}
		})
	})
	if g.log {
		g.consume(ctx)
	} else {
		_ = g.space.Listen(ctx, func(m *publisher.Message) { g.hear(ctx, m) }) // ends with ctx
	}
	g.all.Wait()
}

// move changes what everybody sees.
func (g *game) move(ctx context.Context) {
	tick := time.NewTicker(worldPace)
	defer tick.Stop()
	for x := uint32(1); ; x++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = g.space.Post(publisher.Set{Key: "ball", Values: publisher.Values{"x": x}}) // fails only when closed
		}
	}
}

// consume takes messages of clients, and starts again with the stored cursor now and
// then.
func (g *game) consume(ctx context.Context) {
	for ctx.Err() == nil {
		var cursor publisher.Cursor
		if g.stored != nil {
			if err := json.Unmarshal(g.stored, &cursor); err != nil {
				panic("torture: a stored cursor: " + err.Error())
			}
		}
		life, cancel := context.WithTimeout(ctx, gameRestart)
		for m, err := range g.space.Messages(life, &cursor) {
			var gap *publisher.GapError
			if errors.As(err, &gap) {
				who, _, _ := parse(m.Data)
				g.run.note.add(Record{Kind: kindGap, Who: who, Note: gap.Error()})
			}
			if m == nil {
				break
			}
			g.hear(ctx, m)
			g.stored, _ = json.Marshal(cursor) // numbers and names always can be
		}
		cancel()
		g.run.note.add(Record{Kind: kindGame})
	}
}

func (g *game) hear(ctx context.Context, m *publisher.Message) {
	who, n, ok := parse(m.Data)
	if !ok || !m.Reliable {
		return
	}
	g.run.note.add(Record{Kind: kindHeard, Who: who, N: n})
	g.mu.Lock()
	defer g.mu.Unlock()
	g.heard[who] = n
	if g.who[m.Client] == "" {
		g.who[m.Client] = who
		life, cancel := context.WithCancel(ctx)
		g.stop[m.Client] = cancel
		g.all.Go(func() { g.tell(life, m.Client, who) })
	}
}

func (g *game) gone(client string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if stop := g.stop[client]; stop != nil {
		stop()
		delete(g.stop, client)
	}
}

// tell sends messages to a client until it is gone.
func (g *game) tell(ctx context.Context, client, who string) {
	for n := uint64(1); ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pace):
		}
		if g.run.quiet.Load() {
			n--
			continue
		}
		g.setBusy(who, true)
		g.run.note.add(Record{Kind: kindTold, Who: who, N: n})
		patience, cancel := context.WithTimeout(ctx, answerMost)
		_, err := g.space.SendOnce(patience, client, n, strconv.AppendUint(nil, n, 10))
		cancel()
		g.setBusy(who, false)
		if err == nil {
			g.run.note.add(Record{Kind: kindAnswered, Who: who, N: n})
		}
	}
}

func (g *game) setBusy(who string, on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if on {
		g.busy[who] = true
	} else {
		delete(g.busy, who)
	}
}

// settled reports whether no message to a client waits for its answer.
func (g *game) settled() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.busy) == 0
}
