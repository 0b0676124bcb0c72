package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/edgetest"
)

// TestBots lets a few bots walk until the edge has seen each of them move twice.
func TestBots(t *testing.T) {
	wrote := make(chan edgetest.Write, 10_000)
	edge := edgetest.Start(t, edgetest.Config{Wrote: wrote})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b := &bots{edge: "udp://" + edge.String(), count: 5, rate: 50, perSecond: 1000}
	var out strings.Builder
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.run(ctx, &out, 10*time.Millisecond)
	}()
	seen := map[string]int{} // values of pos
	for len(seen) < 3*b.count && ctx.Err() == nil {
		select {
		case w := <-wrote:
			if w.State == "bot" && w.Index == 0 {
				seen[string(w.Value)]++
			}
		case <-ctx.Done():
		}
	}
	if len(seen) < 3*b.count || b.connected.Load() != int64(b.count) || b.broken.Load() > 0 {
		t.Errorf("%d positions of %d bots, %d connections ended", len(seen), b.connected.Load(), b.broken.Load())
	}
	cancel()
	<-ended
	if !strings.Contains(out.String(), " of 5 bots, ") {
		t.Errorf("the report is %q", out.String())
	}
}
