package main

import (
	"context"
	"log"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/client"
)

// A bot is a player that runs straight to the coin.
type bot struct {
	name   string
	points atomic.Int64 // as the server says
	told   atomic.Int64 // messages
}

// stride is how far a bot runs in each step, ten times a second.
const stride = 4

// play plays until ctx ends, and connects again when the connection does.
func (b *bot) play(ctx context.Context, edge string) {
	for ctx.Err() == nil {
		if err := b.round(ctx, edge); err != nil && ctx.Err() == nil {
			log.Printf("%s: %v", b.name, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// round plays on one connection.
func (b *bot) round(ctx context.Context, edge string) error {
	c, err := client.Dial(ctx, edge, client.Config{Message: func(*client.Client, client.Message) { b.told.Add(1) }})
	if err != nil {
		return err
	}
	defer c.Close()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for step := 1; ; step++ {
		select {
		case <-ctx.Done():
			return nil
		case <-c.Done():
			return c.Err()
		case <-tick.C:
		}
		me, goal := own(c), c.State("coin")
		if me == nil || goal == nil {
			continue
		}
		if err := me.Set("pos", towards(position(me), position(goal))); err != nil {
			continue // the state ended: the server or the relay starts anew
		}
		if step%10 == 0 {
			b.ask(ctx, me)
		}
	}
}

// own returns the state of the client's body: the one that it may write.
func own(c *client.Client) *client.State {
	for _, s := range c.States() {
		if strings.HasPrefix(s.Key(), "body.") && !s.ReadOnly() {
			return s
		}
	}
	return nil
}

// ask asks the server for the points of the bot.
func (b *bot) ask(ctx context.Context, me *client.State) {
	answer, err := me.Command(ctx, "score", nil)
	if err != nil {
		return // no server takes commands now; it asks again later
	}
	points := int64(0)
	for _, digit := range answer {
		points = 10*points + int64(digit-'0')
	}
	b.points.Store(points)
}

func position(s *client.State) [2]float64 {
	pos := s.Value("pos")
	return [2]float64{pos.Component(0), pos.Component(1)}
}

// towards returns the position after one step.
func towards(at, goal [2]float64) [2]float64 {
	x, y := goal[0]-at[0], goal[1]-at[1]
	if far := math.Hypot(x, y); far > stride {
		x, y = x*stride/far, y*stride/far
	}
	return [2]float64{at[0] + x, at[1] + y}
}
