package relay

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/lease"
	"github.com/dnprelay/dnprelay/subject"
)

// TestHangs makes one of two workers hang for a while.
func TestHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(Config{Node: "r", Bus: nowhere{}, Epoch: 1, Workers: 2, Missing: func() []string { return []string{"DNP_STORE_0"} }, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		hangs := func(want bool, why string) {
			t.Helper()
			if r.Hangs() != want {
				t.Errorf("Hangs returns %v, want %v: %s", !want, want, why)
			}
			if list := r.Missing(); slices.Contains(list, "workers") != want || !slices.Contains(list, "DNP_STORE_0") {
				t.Errorf("%q are missing, want DNP_STORE_0, and workers: %v", list, want)
			}
		}
		time.Sleep(time.Hour)
		hangs(false, "both workers have turns")
		release := make(chan struct{})
		r.workers[1].commands.Put(func(time.Time) { <-release })
		time.Sleep(hangsAfter / 2)
		hangs(false, "it may be a long turn")
		time.Sleep(hangsAfter)
		hangs(true, "the turn does not end")
		close(release)
		time.Sleep(2 * time.Second)
		hangs(false, "the worker goes on")
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestCover: a relay is ready when each shard has sent a head lately, and stays so.
func TestCover(t *testing.T) {
	c := cover{at: make([]time.Time, 3)}
	now := time.Unix(1e9, 0)
	for _, step := range []struct {
		why   string
		pass  time.Duration
		shard int
		whole bool
	}{
		{"one of three shards", 0, 0, false},
		{"the same shard again", headInterval, 0, false},
		{"a shard that no deployment has", 0, 3, false},
		{"two of three", 0, 1, false},
		{"the heads of the others are old: their holder may be dead", headFresh + 1, 2, false},
		{"one of the others", 0, 0, false},
		{"all of them, within a second", headFresh, 1, true},
		{"it was ready", time.Hour, 1, true},
	} {
		now = now.Add(step.pass)
		if c.note(now, step.shard); c.whole.Load() != step.whole {
			t.Fatalf("%s: whole is %v", step.why, c.whole.Load())
		}
	}
}

// TestStoreLines: the relay logs once that the durable store went silent, and once that it answers
// again, although each shard notices by itself.
func TestStoreLines(t *testing.T) {
	var text strings.Builder
	r, err := New(Config{Node: "r", Bus: nowhere{}, Epoch: 1, Workers: 3, Log: slog.New(slog.NewTextHandler(&text, nil))})
	if err != nil {
		t.Fatal(err)
	}
	for shard := range 8 {
		w := r.worker(shard)
		w.owned = append(w.owned, &ownership{shard: shard, durable: true})
	}
	r.workers[2].owned = nil
	now := time.Unix(1e9, 0)
	second := func(silent func(shard int) bool) {
		for _, w := range r.workers {
			for _, o := range w.owned {
				o.setDurable(!silent(o.shard))
			}
			w.logStore(now)
		}
		now = now.Add(time.Second)
	}
	for kill := range 10 {
		for i := range 20 {
			second(func(shard int) bool { return i < 5 && (shard+i)%2 == 0 })
		}
		for why, n := range map[string]int{"does not answer": kill + 1, "answers again": kill + 1} {
			if got := strings.Count(text.String(), why); got != n {
				t.Fatalf("%q is logged %d times, want %d:\n%s", why, got, n, text.String())
			}
		}
	}
	r.workers[0].owned, r.workers[1].owned = r.workers[0].owned[:1], nil
	second(func(int) bool { return true })
	r.workers[0].owned = nil
	for range 20 {
		second(nil)
	}
	if strings.Count(text.String(), "answers again") != 10 {
		t.Errorf("a relay without shards cannot know that the store answers:\n%s", text.String())
	}
}

// TestStandstill publishes while the process stands still for a second, in which another relay may have taken the shard: the publish waits
// until the durable store says that it is still this relay's, or for 1.5 s.
func TestStandstill(t *testing.T) {
	const kept, taken = "a=9", "a=1"
	for _, c := range []struct {
		why      string
		gap      time.Duration
		answer   func(p *placed) // of the store, after 1 s
		in, then string          // what is served before the answer and after it
	}{
		{"no time to lose the shard", standstill - time.Millisecond, func(*placed) {}, kept, kept},
		{"the shard is its own", standstill, func(p *placed) { p.leases.asked[0](nil) }, taken, kept},
		{"another relay took the shard", time.Minute, func(p *placed) {
			p.leases.asked[0](cluster.ErrNotHeld)
			p.leases.handle(cluster.LeaseEvent{Kind: cluster.ShardLost, Shard: loadedShard, Epoch: 10, Reason: lease.ReasonTaken})
		}, taken, ""},
		{"too much waits to be stored", time.Minute, func(p *placed) { p.leases.asked[0](cluster.ErrQueueFull) }, taken, taken},
		{"the store is silent", time.Minute, func(p *placed) { p.turn(confirmWait-time.Second, 0, 1) }, taken, kept},
	} {
		t.Run(c.why, func(t *testing.T) {
			p := newPlaced(t)
			p.acquire(10, 0)
			l := p.loads("acquired", 1)
			p.brings(l, keyframe(t, 2, 0, "a", 1))
			p.ends(l, nil)
			p.serves("loaded", taken)
			p.leases.silent, p.leases.asked = true, nil

			body := `{"op":"set","key":"a","values":{"n":9}}`
			if err := p.other.Publish(bus.Msg{Subject: subject.Names{}.Publish(loadedSpace, ""), Data: []byte(body)}); err != nil {
				t.Fatal(err)
			}
			wants := p.leases.alive
			p.turn(0) // the message arrives
			p.turn(c.gap, 0, 1)
			p.serves("it goes on", c.in)
			p.turn(time.Second/2, 0, 1)
			p.turn(time.Second/2, 0, 1)
			if p.leases.alive == wants {
				t.Error("the leases believe that the workers stand still")
			}
			c.answer(p)
			p.turn(0, 0, 1)
			if want := strings.Fields(c.then); len(want) > 0 {
				p.serves("after the answer", want...)
			} else {
				p.serves("after the answer")
			}
		})
	}
}
