package promises

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/publisher"
)

// TestNewest: a counter that only rises never steps back at a client, in whatever order the path brings its datagrams, and ends with the last value.
func TestNewest(t *testing.T) {
	t.Parallel()
	eachCond(t, []int{2}, func(w *world, c cond, p *path) {
		d := w.open("demo")
		w.publish(u32("k", 0))
		var seen, back atomic.Int64
		var watchers []*client.Client
		for _, url := range []string{p.url, d.by(w, "wt", c)} {
			var last int64 // of the goroutine of the client
			see := func(_ *client.Client, s *client.State) {
				v := s.Value("n").Int()
				if v < last {
					back.Add(1)
					w.Logf("%s: %d after %d", url[:strings.Index(url, ":")], v, last)
				}
				last = v
				seen.Add(1)
			}
			cfg := d.config(url)
			cfg.Link, cfg.Change = see, func(cl *client.Client, s *client.State, _ []int) { see(cl, s) }
			cl := w.dial(url, cfg)
			_, err := cl.Await(w.ctx, "k")
			w.must(err)
			var refused *client.CommandError // by which the client knows that the edge has answered its hello
			if _, err := cl.Command(w.ctx, "none", "none", nil); !errors.As(err, &refused) {
				w.Fatalf("a command about no state: %v", err)
			}
			watchers = append(watchers, cl)
		}
		tick := time.NewTicker(3 * time.Millisecond)
		defer tick.Stop()
		n := tries(170)
		for v := 1; v <= n; v++ {
			w.must(w.space.Post(publisher.Set{Key: "k", Values: publisher.Values{"n": v}}))
			<-tick.C
		}
		for _, cl := range watchers {
			w.must(cl.Until(w.ctx, func() bool { return cl.State("k").Value("n").Int() == int64(n) }))
		}
		w.Logf("%d values, %d shown to two clients, %d of them older than the one before", n, seen.Load(), back.Load())
		if back.Load() > 0 {
			w.Errorf("a client is shown an older value %d times, want never", back.Load())
		}
	})
}
