package main

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnprelaytest"
	"github.com/dnprelay/dnprelay/internal/natstest"
)

func TestMain(m *testing.M) { natstest.VerifyNoLeaks(m) }

// TestArena has bots play until they know of points, and has the relay forget everything in between.
func TestArena(t *testing.T) {
	srv := dnprelaytest.Config{Space: "arena"}.Start(t)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var running sync.WaitGroup
	running.Go(func() {
		if err := serve(ctx, srv.NATS, srv.Space); ctx.Err() == nil {
			t.Errorf("the server ends: %v", err)
		}
	})
	bots := []*bot{{name: "a"}, {name: "b"}, {name: "c"}}
	for _, b := range bots {
		running.Go(func() { b.play(ctx, srv.Edge) })
	}
	until := func(points int64) {
		for total := int64(0); total < points; {
			select {
			case <-ctx.Done():
				t.Fatalf("the bots have %d points, want %d", total, points)
			case <-time.After(20 * time.Millisecond):
			}
			total = 0
			for _, b := range bots {
				total += b.points.Load()
			}
		}
	}
	until(3)
	srv.StopRelay()
	srv.StartRelay()
	until(6)
	for _, b := range bots {
		if b.told.Load() == 0 {
			t.Errorf("bot %s was told nothing", b.name)
		}
	}
	stop()
	running.Wait()
}
