//go:build linux

package play

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/publisher"
	"github.com/dnprelay/dnprelay/testbed/history"
	"github.com/dnprelay/dnprelay/testbed/rig"
	"github.com/nats-io/nats.go"
)

// BusyPrefix begins the keys of states that change at the pace of the game server.
const BusyPrefix = "busy"

const (
	answerMost  = 15 * time.Second // for which the game server repeats one message
	gameRestart = 10 * time.Second // between two restarts of the consumer
)

// A GameConfig says how a game server plays.
type GameConfig struct {
	URL       string // of NATS
	Options   []nats.Option
	Space     string
	WorldPace time.Duration            // between changes of the state that all clients see
	Pace      func(party string) *Pace // of messages to it
	Log       bool                     // sessions are in a log: messages come with a cursor, which survives restarts
	Note      func(history.Record)
}

// A Game is a game server. It counts in a state, sends each client that has spoken a
// number reliably, and records the messages that arrive from clients.
type Game struct {
	cfg   GameConfig
	p     *publisher.Publisher
	space *publisher.Space

	stored []byte       // the cursor, as a game server stores it
	busy   atomic.Int64 // tellers that wait for an answer
	all    sync.WaitGroup

	mu   sync.Mutex        // of stop: the consumer and the follower of events use it
	stop map[string]func() // ends the teller of a client, by DNP name, of all that have spoken
}

// NewGame connects a game server and makes the state that all clients see.
func NewGame(ctx context.Context, cfg GameConfig) (*Game, error) {
	p, err := publisher.Connect(ctx, publisher.Config{URL: cfg.URL, Options: cfg.Options})
	if err != nil {
		return nil, err
	}
	g := &Game{cfg: cfg, p: p, stop: map[string]func(){}}
	if g.space, err = p.Space(cfg.Space); err == nil {
		_, err = g.space.Publish(ctx, publisher.Put{Key: BusyPrefix, Values: []publisher.Value{{Name: "n", Type: publisher.Uint32, Value: 0}}})
	}
	if err != nil {
		p.Close()
	}
	return g, err
}

// Run plays until ctx ends.
func (g *Game) Run(ctx context.Context) {
	g.all.Go(func() { g.moveWorld(ctx) })
	g.all.Go(func() {
		for ev := range g.space.Events(ctx, publisher.Filter{Kinds: []publisher.Kind{publisher.KindLeft}}) { // ends with ctx, and an empty event
			g.clientLeft(ev.Client)
		}
	})
	if g.cfg.Log {
		g.consume(ctx)
	} else {
		for ev, err := range g.space.Events(ctx, publisher.Filter{Kinds: []publisher.Kind{publisher.KindMessage}}) { // ends with ctx
			if err == nil {
				g.hear(ctx, ev.Message)
			}
		}
	}
	g.all.Wait()
	g.p.Close()
}

// moveWorld changes the state that all clients see.
func (g *Game) moveWorld(ctx context.Context) {
	n := uint32(0)
	rig.Every(ctx, g.cfg.WorldPace, func() {
		n++
		_ = g.space.Post(publisher.Set{Key: BusyPrefix, Values: publisher.Values{"n": n}}) // fails only when closed
	})
}

// consume receives messages of clients. It restarts with the stored cursor each
// gameRestart.
func (g *Game) consume(ctx context.Context) {
	for ctx.Err() == nil {
		var cursor publisher.Cursor
		if g.stored != nil {
			if err := json.Unmarshal(g.stored, &cursor); err != nil {
				panic("play: a stored cursor: " + err.Error())
			}
		}
		life, cancel := context.WithTimeout(ctx, gameRestart)
		for m, err := range g.space.Messages(life, &cursor) {
			var gap *publisher.GapError
			if errors.As(err, &gap) {
				party, _, _ := parse(m.Data)
				g.cfg.Note(history.Record{Kind: history.Gap, Who: party, Note: gap.Error()})
			}
			if m == nil {
				break
			}
			g.hear(ctx, m)
			g.stored, _ = json.Marshal(cursor) // a cursor has only numbers and names
		}
		cancel()
		g.cfg.Note(history.Record{Kind: history.Restart})
	}
}

func (g *Game) hear(ctx context.Context, m *publisher.Message) {
	party, n, ok := parse(m.Data)
	if !ok || !m.Reliable {
		return
	}
	g.cfg.Note(history.Record{Kind: history.Heard, Who: party, N: n})
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stop[m.Client] == nil {
		life, cancel := context.WithCancel(ctx)
		g.stop[m.Client] = cancel
		g.all.Go(func() { g.tell(life, m.Client, party) })
	}
}

func (g *Game) clientLeft(client string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if stop := g.stop[client]; stop != nil {
		stop()
	}
}

// tell sends messages to a client until it leaves.
func (g *Game) tell(ctx context.Context, client, party string) {
	last, pace := time.Now(), g.cfg.Pace(party)
	for n := uint64(1); ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pace.wait() - time.Since(last)):
		}
		last = time.Now()
		if pace.Load() == 0 {
			n--
			continue
		}
		g.busy.Add(1)
		g.cfg.Note(history.Record{Kind: history.Told, Who: party, N: n})
		patience, cancel := context.WithTimeout(ctx, answerMost)
		number, err := g.space.Send(patience, publisher.Outgoing{To: client, Token: n, Data: strconv.AppendUint(nil, n, 10)})
		cancel()
		g.busy.Add(-1)
		if err == nil {
			g.cfg.Note(history.Record{Kind: history.Answered, Who: party, N: n, Note: fmt.Sprintf("number %d", number)})
		}
	}
}

// Settled reports whether no message to a client waits for its answer.
func (g *Game) Settled() bool { return g.busy.Load() == 0 }

// HeardParties returns how many parties have spoken.
func (g *Game) HeardParties() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.stop)
}
