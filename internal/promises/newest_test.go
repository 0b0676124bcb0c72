package promises

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/publisher"
)

// TestNewest: a counter that only rises never steps back at a client, in whatever order the path brings its datagrams, and ends with the last value.
func TestNewest(t *testing.T) {
	matrix{named: []string{"go,udp,c2,2", "go,wt,c2,1"}}.run(t, func(w *world) {
		w.publish(u32("k", 0))
		var seen, back atomic.Int64
		var watchers []player
		for i := range w.way.edges {
			var last int64 // of the goroutine of the client
			cl := w.dial(w.path(), ears{see: func(s state, _ []int) {
				v := s.Value("n").Int()
				if v < last {
					back.Add(1)
					w.Logf("client %d: %d after %d", i, v, last)
				}
				last = v
				seen.Add(1)
			}})
			s, err := cl.Await(w.ctx, "k")
			w.must(err)
			var refused *client.CommandError // by which the client knows that the edge has answered its hello
			if _, err := s.Command(w.ctx, "none", nil); !errors.As(err, &refused) {
				w.Fatalf("a command without a game server that answers: %v", err)
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
		w.tell(n, int(back.Load()), "%d values shown to %d clients", seen.Load(), len(watchers))
	})
}
