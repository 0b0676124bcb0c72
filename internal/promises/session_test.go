package promises

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/publisher"
)

// TestClosed: when a client closes, the edge tells game servers so, whatever the path loses or brings in another order; the
// session does not last until a timeout.
func TestClosed(t *testing.T) {
	matrix{named: []string{"go,udp,c1,1"}}.run(t, func(w *world) {
		h := w.events(w.space, publisher.Filter{Kinds: []publisher.Kind{publisher.KindJoined, publisher.KindLeft}}, nil)
		w.publish(u32("k", 0))
		n := tries(8)
		w.each(n, func(int) {
			cl := w.dial(w.path(), ears{})
			_, err := cl.Await(w.ctx, "k")
			w.must(err)
			w.must(cl.Close())
		})
		w.eventually("every client leaves", func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			in := 0
			for _, ev := range h.list {
				if ev.Kind == publisher.KindJoined {
					in++
				} else {
					in--
				}
			}
			return len(h.list) >= 2*n && in == 0
		})
		h.mu.Lock()
		defer h.mu.Unlock()
		broken := 0
		for _, ev := range h.list {
			if ev.Kind == publisher.KindLeft && ev.Reason != "peer" {
				broken++
				w.Logf("%s left by %q, want peer", ev.Client, ev.Reason)
			}
		}
		w.tell(n, broken, "")
	})
}

// TestKicked: a client learns that it was kicked.
func TestKicked(t *testing.T) {
	matrix{named: []string{"go,udp,c3,2"}}.run(t, func(w *world) {
		w.publish(u32("k", 0))
		n := tries(4)
		var broken atomic.Int64
		w.each(n, func(int) {
			cl, name := w.named(w.path(), ears{})
			_, err := cl.Await(w.ctx, "k")
			w.must(err)
			w.must(w.space.Kick(w.ctx, name))
			if !w.kicked(cl) {
				broken.Add(1)
			}
		})
		w.tell(n, int(broken.Load()), "")
	})
}

// TestKickedAtJoined: a kick when game servers hear joined is not too early.
func TestKickedAtJoined(t *testing.T) {
	matrix{named: []string{"go,ws,c1,2"}}.run(t, func(w *world) {
		var refused atomic.Int64
		w.events(w.space, publisher.Filter{Kinds: []publisher.Kind{publisher.KindJoined}}, func(ev publisher.Event) {
			if err := w.space.Kick(w.ctx, ev.Client); err != nil {
				refused.Add(1)
				w.Logf("%s: %v", ev.Client, err)
			}
		})
		n := tries(4)
		var broken atomic.Int64
		w.each(n, func(int) {
			if cl := w.dial(w.path(), ears{}); !w.kicked(cl) {
				broken.Add(1)
			}
		})
		w.tell(n, int(broken.Load()+refused.Load()), "%d kicks refused", refused.Load())
	})
}

// kicked waits until a client knows that the edge has ended its connection.
func (w *world) kicked(cl player) bool {
	begun := time.Now()
	select {
	case <-cl.Done():
		if endedBy(cl) == client.Peer {
			return true
		}
		w.Logf("the client ends %v after the kick: %v, want that the edge ended it", time.Since(begun), cl.Err())
	case <-w.ctx.Done():
		w.Log("a client that was kicked does not know")
	}
	return false
}

// TestFlushed: Flush returns nil only if the edge has acknowledged all, and Close only if nothing is missing.
func TestFlushed(t *testing.T) {
	matrix{named: []string{"go,udp,c1,1"}, goOnly: "other libraries have no Flush"}.run(t, func(w *world) {
		h := w.events(w.space, publisher.Filter{Kinds: []publisher.Kind{publisher.KindMessage}}, nil)
		var broken atomic.Int64
		wrong := func(what string) {
			broken.Add(1)
			w.Log(what)
		}
		n := tries(4)
		w.each(n, func(i int) {
			p := w.doors[i%len(w.doors)].by(w, w.way)
			cl := w.dial(p, ears{}).(goPlayer)
			said := fmt.Sprint("said ", i)
			w.must(cl.Send([]byte(said)))
			w.must(cl.Flush(w.ctx))
			w.eventually("what is flushed arrives", func() bool {
				return h.has(func(ev publisher.Event) bool { return string(ev.Message.Data) == said })
			})
			p.cut.Store(true)
			w.must(cl.Send([]byte("lost")))
			flushed := make(chan error, 1)
			go func() { flushed <- cl.Flush(context.Background()) }()
			if i%2 == 0 { // else the path stays cut until the connection ends
				if err := cl.Close(); err == nil {
					wrong("Close returns nil, but a message is missing")
				}
			}
			if err := <-flushed; err == nil {
				wrong("Flush returns nil, but nothing arrived")
			}
			if cl.Undelivered() == 0 {
				wrong("Undelivered is 0, but nothing arrived")
			}
		})
		if h.has(func(ev publisher.Event) bool { return string(ev.Message.Data) == "lost" }) {
			wrong("a message arrived over a path that is cut")
		}
		w.tell(n, int(broken.Load()), "")
	})
}

// TestUnlinked: a client without the right to see a place further than an interest with unlink allows gets neither the place nor
// what is set with it or later.
func TestUnlinked(t *testing.T) {
	matrix{named: []string{"go,udp,c1,1"}}.run(t, func(w *world) {
		var broken atomic.Int64
		cl, me := w.named(w.path(), ears{see: func(s state, _ []int) {
			if s.Value("n").Int() == 99 {
				broken.Add(1)
				w.Logf("%s: the client is shown the secret", s.Key())
			}
		}})
		w.publish(publisher.Eye{Client: me, Points: [][]float64{{0, 0, 0}}})
		far := [3]float32{5000, 0, 0}
		n := tries(6)
		w.each(n, func(i int) {
			key := fmt.Sprint("k", i)
			put := u32(key, 1, publisher.Value{Name: "pos", Type: "vector3f32", Value: [3]float32{50, 0, 0}})
			put.Interest = &publisher.Distance{At: "pos", Bands: []publisher.Band{{Within: 100}}, Unlink: true}
			w.publish(put)
			_, err := cl.Await(w.ctx, key)
			w.must(err)
			if i%2 == 0 {
				w.publish(publisher.Set{Key: key, Values: publisher.Values{"n": 99, "pos": far}})
			} else {
				w.publish(publisher.Set{Key: key, Values: publisher.Values{"pos": far}})
				w.publish(publisher.Set{Key: key, Values: publisher.Values{"n": 99}})
			}
			w.must(cl.Until(w.ctx, func() bool { return cl.State(key) == nil }))
		})
		w.tell(n, int(broken.Load()), "")
	})
}
