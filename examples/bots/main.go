// Command bots is a load test: a thousand clients connect to an edge, walk around in
// states of their own, push the lamp of the demo now and then, and count what they see. Start
//
//	bin/relay dev --sessions-per-address 0 --address-rate 0
//
// which does without the bounds of an edge for a single address, and this program.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/client"
)

func main() {
	var b bots
	flag.StringVar(&b.edge, "edge", "udp://127.0.0.1:3413", "edge to connect to")
	flag.IntVar(&b.count, "bots", 1000, "number of bots")
	flag.Float64Var(&b.rate, "rate", 10, "steps of each bot per second")
	flag.IntVar(&b.perSecond, "join", 100, "bots that connect per second")
	duration := flag.Duration("for", 0, "how long to run; 0 = until interrupted")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *duration > 0 {
		ctx, stop = context.WithTimeout(ctx, *duration)
		defer stop()
	}
	if b.count < 1 || b.rate <= 0 || b.perSecond < 1 {
		log.Fatal("want at least one bot, and rates above 0")
	}
	b.run(ctx, os.Stdout, time.Second)
}

// bots are all clients of a run, and what they count.
type bots struct {
	edge      string
	count     int
	rate      float64 // steps per second
	perSecond int     // bots that connect

	connected                        atomic.Int64
	steps, changes, messages, broken atomic.Int64
}

// run plays until ctx ends, and prints a line now and then.
func (b *bots) run(ctx context.Context, out io.Writer, every time.Duration) {
	var playing sync.WaitGroup
	playing.Go(func() { b.report(ctx, out, every) })
	join := time.NewTicker(time.Second / time.Duration(b.perSecond))
	defer join.Stop()
	for i := 0; i < b.count && ctx.Err() == nil; i++ {
		playing.Go(func() { b.bot(ctx, i) })
		select {
		case <-ctx.Done():
		case <-join.C:
		}
	}
	playing.Wait()
}

// bot plays one bot, which connects again when its connection ends.
func (b *bots) bot(ctx context.Context, number int) {
	for ctx.Err() == nil {
		if err := b.play(ctx, rand.New(rand.NewPCG(uint64(number), 0))); err != nil && ctx.Err() == nil {
			if b.broken.Add(1) == 1 {
				log.Printf("bot %d: %v; further ones are only counted", number, err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second + rand.N(time.Second)):
		}
	}
}

// play is the life of a bot: it walks in a circle until its connection ends.
func (b *bots) play(ctx context.Context, r *rand.Rand) error {
	c, err := client.Dial(ctx, b.edge, client.Config{
		Change:  func(_ *client.Client, _ *client.State, changed []int) { b.changes.Add(int64(len(changed))) },
		Message: func(*client.Client, client.Message) { b.messages.Add(1) },
	})
	if err != nil {
		return err
	}
	defer c.Close()
	b.connected.Add(1)
	defer b.connected.Add(-1)
	me, err := c.Offer("bot",
		client.Field{Name: "pos", Type: "vector3f32"},
		client.Field{Name: "steps", Type: "uint32"})
	if err != nil {
		return err
	}
	radius, angle := 1+9*r.Float64(), 2*math.Pi*r.Float64()
	tick := time.NewTicker(time.Duration(float64(time.Second) / b.rate))
	defer tick.Stop()
	for step := 1; ; step++ {
		select {
		case <-ctx.Done():
			return nil
		case <-c.Done():
			return c.Err()
		case <-tick.C:
		}
		angle += 0.1
		if err := me.Set("pos", [3]float64{radius * math.Cos(angle), 0, radius * math.Sin(angle)}); err != nil {
			return err
		}
		if err := me.Set("steps", step); err != nil {
			return err
		}
		b.steps.Add(1)
		if lamp := c.State("lamp"); lamp != nil && r.IntN(1000) == 0 {
			if err := lamp.SetAt(0, r.IntN(256)); err != nil {
				return err
			}
		}
	}
}

// report prints what happened since the last line.
func (b *bots) report(ctx context.Context, out io.Writer, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var steps, changes int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s, c := b.steps.Load(), b.changes.Load()
		fmt.Fprintf(out, "%d of %d bots, %.0f steps/s, %.0f changes/s, %d messages, %d connections ended\n",
			b.connected.Load(), b.count, float64(s-steps)/every.Seconds(), float64(c-changes)/every.Seconds(), b.messages.Load(), b.broken.Load())
		steps, changes = s, c
	}
}
