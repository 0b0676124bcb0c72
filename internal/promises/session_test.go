package promises

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/publisher"
)

// TestClosed: when a client closes, the edge tells game servers so, whatever the path loses or brings in another order; the
// session does not last until a timeout.
func TestClosed(t *testing.T) {
	t.Parallel()
	eachCond(t, []int{1}, func(w *world, _ cond, p *path) {
		h := w.events(w.space, publisher.Filter{Kinds: []publisher.Kind{publisher.KindJoined, publisher.KindLeft}}, nil)
		w.publish(u32("k", 0))
		for range tries(8) {
			cl := w.dial(p.url, client.Config{})
			_, err := cl.Await(w.ctx, "k")
			w.must(err)
			w.must(cl.Close())
		}
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
			return len(h.list) >= 2*tries(8) && in == 0
		})
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, ev := range h.list {
			if ev.Kind == publisher.KindLeft && ev.Reason != "peer" {
				w.Errorf("%s left by %q, want peer", ev.Client, ev.Reason)
			}
		}
	})
}

// TestKicked: a client learns that it was kicked.
func TestKicked(t *testing.T) {
	t.Parallel()
	eachCond(t, []int{3}, func(w *world, _ cond, p *path) {
		names := make(chan string, 1)
		w.events(w.space, publisher.Filter{Kinds: []publisher.Kind{publisher.KindJoined}}, func(ev publisher.Event) { names <- ev.Client })
		w.publish(u32("k", 0))
		for range tries(4) {
			cl := w.dial(p.url, client.Config{})
			_, err := cl.Await(w.ctx, "k")
			w.must(err)
			w.must(w.space.Kick(w.ctx, <-names))
			begun := time.Now()
			select {
			case <-cl.Done():
				if end, ok := errors.AsType[*client.EndError](cl.Err()); !ok || end.Reason != client.Peer {
					w.Errorf("the client ends %v after the kick: %v, want that the edge ended it", time.Since(begun), cl.Err())
				}
			case <-w.ctx.Done():
				w.Fatal("a client that was kicked does not know")
			}
		}
	})
}

// TestFlushed: Flush returns nil only if the edge has acknowledged all, and Close only if nothing is missing.
func TestFlushed(t *testing.T) {
	t.Parallel()
	w := start(t)
	h := w.events(w.space, publisher.Filter{Kinds: []publisher.Kind{publisher.KindMessage}}, nil)
	var running sync.WaitGroup
	for i := range tries(4) {
		p := proxy(t, w.edge, conds[1])
		cl := w.dial(p.url, client.Config{})
		said := fmt.Sprint("said ", i)
		w.must(cl.Send([]byte(said)))
		w.must(cl.Flush(w.ctx))
		w.eventually("what is flushed arrives", func() bool {
			return h.has(func(ev publisher.Event) bool { return string(ev.Message.Data) == said })
		})
		running.Go(func() {
			p.cut.Store(true)
			if err := cl.Send([]byte("lost")); err != nil {
				w.Error(err)
			}
			flushed := make(chan error, 1)
			go func() { flushed <- cl.Flush(context.Background()) }()
			if i%2 == 0 { // else the path stays cut until the connection ends
				if err := cl.Close(); err == nil {
					w.Error("Close returns nil, but a message is missing")
				}
			}
			if err := <-flushed; err == nil {
				w.Error("Flush returns nil, but nothing arrived")
			}
			if cl.Undelivered() == 0 {
				w.Error("Undelivered is 0, but nothing arrived")
			}
		})
	}
	running.Wait()
	if h.has(func(ev publisher.Event) bool { return string(ev.Message.Data) == "lost" }) {
		w.Error("a message arrived over a path that is cut")
	}
}

// TestUnlinked: a client without the right to see a place further than an interest with unlink allows gets neither the place nor
// what is set with it or later.
func TestUnlinked(t *testing.T) {
	t.Parallel()
	eachCond(t, []int{1}, func(w *world, _ cond, p *path) {
		names := make(chan string, 1)
		w.events(w.space, publisher.Filter{Kinds: []publisher.Kind{publisher.KindJoined}}, func(ev publisher.Event) { names <- ev.Client })
		see := func(_ *client.Client, s *client.State) {
			if s.Value("n").Int() == 99 {
				w.Errorf("%s: the client is shown the secret", s.Key())
			}
		}
		cl := w.dial(p.url, client.Config{Link: see, Change: func(cl *client.Client, s *client.State, _ []int) { see(cl, s) }})
		me := <-names
		w.publish(publisher.Eye{Client: me, Points: [][]float64{{0, 0, 0}}})
		far := [3]float32{5000, 0, 0}
		for i := range tries(6) {
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
		}
	})
}
