// Command arena is a small game. Players run for a coin; who reaches it first gets a point, and the coin
// lies elsewhere. The server makes the states, judges and counts (this file, package publisher); the bots
// play (bots.go, package client). Start `bin/relay dev --no-demo`, then this program, and look on at
// http://127.0.0.1:8415, the console, or with `bin/dnpctl watch 127.0.0.1:3413`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os/signal"
	"strconv"
	"sync"
	"syscall"

	"github.com/dnprelay/dnprelay/publisher"
)

func main() {
	url := flag.String("nats-url", "nats://127.0.0.1:4222", "NATS servers")
	edge := flag.String("edge", "udp://127.0.0.1:3413", "edge to which bots connect")
	space := flag.String("space", "demo", "space of the game, which clients of the edge join")
	count := flag.Int("bots", 8, "number of bots; 0 = none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var playing sync.WaitGroup
	for i := range *count {
		playing.Go(func() { (&bot{name: fmt.Sprint("bot ", i)}).play(ctx, *edge) })
	}
	if err := serve(ctx, *url, *space); err != nil && ctx.Err() == nil {
		log.Print(err)
		stop()
	}
	playing.Wait()
}

// side is the length of the arena, and reach how near a player has to come to the coin.
const (
	side  = 100
	reach = 2
)

// A coin is the state for which all run. Only the server writes it.
type coin struct {
	Pos [2]float32 `dnp:"pos,precision=0.1"`
}

// A body is where a player is. The player writes it, at most 30 times a second, and not outside of the arena: the relay
// refuses that.
type body struct {
	Pos [2]float32 `dnp:"pos,precision=0.1,min=0,max=100,rate=30"`
}

// A score is what a player has. Only the server writes it.
type score struct {
	Points uint32 `dnp:"points"`
}

// A player is a client and its states.
type player struct {
	body  *publisher.Bound[body]
	score *publisher.Bound[score]
}

// A game is the server. One loop owns it.
type game struct {
	space   *publisher.Space
	coin    *publisher.Bound[coin]
	players map[string]*player // by client
}

// serve runs the game until ctx ends.
func serve(ctx context.Context, url, name string) error {
	p, err := publisher.Connect(ctx, publisher.Config{URL: url})
	if err != nil {
		return err
	}
	defer p.Close()
	space, err := p.Space(name)
	if err != nil {
		return err
	}
	g := &game{space: space, players: map[string]*player{}}
	if g.coin, err = publisher.Bind(space, publisher.Put{Key: "coin", Describe: true}, coin{Pos: somewhere()}); err != nil {
		return err
	}
	for ev, err := range space.Events(ctx, publisher.Filter{Kinds: []publisher.Kind{
		publisher.KindJoined, publisher.KindLeft, publisher.KindChanged, publisher.KindCommand,
	}}) {
		if err == nil {
			err = g.event(ctx, ev)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (g *game) event(ctx context.Context, ev publisher.Event) error {
	p := g.players[ev.Client]
	switch {
	case ev.Kind == publisher.KindJoined && p == nil:
		return g.join(ev.Client)
	case p == nil:
	case ev.Kind == publisher.KindLeft:
		delete(g.players, ev.Client)
		return g.space.Post(publisher.Remove{Key: p.body.Key()}, publisher.Remove{Key: p.score.Key()})
	case ev.Kind == publisher.KindChanged && ev.Key == p.body.Key():
		return g.moved(ev.Client, p)
	case ev.Kind == publisher.KindCommand && ev.Name == "score":
		answered(ev.Command.Reply(ctx, strconv.AppendUint(nil, uint64(p.score.Get().Points), 10)))
	case ev.Kind == publisher.KindCommand:
		answered(ev.Command.Unknown(ctx))
	}
	return nil
}

// answered notes an answer that is lost, as while NATS is away: the client gets an error, and asks again.
func answered(err error) {
	if err != nil && !errors.Is(err, publisher.ErrLate) {
		log.Print(err)
	}
}

// join makes the states of a player. The client finds its body because it may write it.
func (g *game) join(client string) (err error) {
	p := &player{}
	put := publisher.Put{Key: "body." + client, Describe: true, Access: publisher.Access{Writers: []string{client}}}
	if p.body, err = publisher.Bind(g.space, put, body{Pos: somewhere()}); err != nil {
		return err
	}
	if p.score, err = publisher.Bind(g.space, publisher.Put{Key: "score." + client, Describe: true}, score{}); err != nil {
		return err
	}
	g.players[client] = p
	g.tell(client, "welcome to the arena")
	return nil
}

// moved gives the player a point if it has reached the coin.
func (g *game) moved(client string, p *player) error {
	at, goal := p.body.Get().Pos, g.coin.Get().Pos
	if distance(at, goal) > reach {
		return nil
	}
	if err := g.coin.Set(coin{Pos: somewhere()}); err != nil {
		return err
	}
	g.tell(publisher.Everyone, client+" has the coin")
	return p.score.Update(func(s *score) { s.Points++ })
}

// tell tells what may be lost while NATS is away: the states say all that counts.
func (g *game) tell(to, text string) {
	if err := g.space.Tell(publisher.Outgoing{To: to, Data: []byte(text)}); err != nil {
		log.Print(err)
	}
}

func somewhere() [2]float32 { return [2]float32{side * rand.Float32(), side * rand.Float32()} }

func distance(a, b [2]float32) float64 {
	return math.Hypot(float64(a[0]-b[0]), float64(a[1]-b[1]))
}
