package promises

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/publisher"
	"github.com/nats-io/nats.go"
)

// right is what the game server sets when it hears what a client wrote.
const right = 45

// rules say how a game server corrects a write: with package publisher or over plain NATS, when it hears the first write of a state or at
// every event.
var rules = []string{"once", "every", "plain-once", "plain-every"}

// A referee is a game server that gives each client a state for each rule, and corrects what the client writes.
type referee struct {
	w *world

	mu     sync.Mutex
	events map[string]int // changed, by key
}

func (w *world) referee() *referee {
	r := &referee{w: w, events: map[string]int{}}
	plain, err := w.nc.Subscribe("dnp.v1.event.demo", r.plain)
	w.must(err)
	w.Cleanup(func() { _ = plain.Unsubscribe() })
	w.events(w.space, publisher.Filter{Kinds: []publisher.Kind{publisher.KindJoined, publisher.KindChanged}}, r.hear)
	return r
}

// hear is the loop with package publisher.
func (r *referee) hear(ev publisher.Event) {
	if ev.Kind == publisher.KindJoined {
		for _, rule := range rules {
			put := u32(rule+"."+ev.Client, 0)
			put.Access, put.Audience = publisher.Access{All: true}, publisher.Who{Clients: []string{ev.Client}}
			_ = r.w.space.Post(put)
		}
		return
	}
	r.mu.Lock()
	r.events[ev.Key]++
	n := r.events[ev.Key]
	r.mu.Unlock()
	if rule, _, _ := strings.Cut(ev.Key, "."); rule == "every" || rule == "once" && n == 1 {
		_ = r.w.space.Post(publisher.Set{Key: ev.Key, Values: publisher.Values{"n": right}})
	}
}

// plain is the loop over plain NATS. It counts for itself, because it may hear an event before the other loop.
func (r *referee) plain(m *nats.Msg) {
	var ev struct{ Type, Key string }
	if json.Unmarshal(m.Data, &ev) != nil || ev.Type != "changed" || !strings.HasPrefix(ev.Key, "plain-") {
		return
	}
	rule, _, _ := strings.Cut(ev.Key, ".")
	r.mu.Lock()
	r.events["plain "+ev.Key]++
	n := r.events["plain "+ev.Key]
	r.mu.Unlock()
	if rule == "plain-every" || n == 1 {
		_ = r.w.nc.Publish("dnp.v1.publish.demo", fmt.Appendf(nil, `{"op":"set","key":%q,"values":{"n":%d}}`, ev.Key, right))
	}
}

func (r *referee) count(key string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events[key]
}

// A cell is a carrier and a path.
type cell struct {
	carrier string
	cond
}

// cells are what TestWriteOnce tries: all in the long form.
func cells() (list []cell) {
	if *times == 1 {
		return []cell{{"udp", cond{100e6, 30e6, 0.3, 0.1, 500e6}}, {"ws", cond{30e6, 9e6, 0.05, 0, 0}}, {"wt", cond{30e6, 9e6, 0.05, 0.1, 500e6}}}
	}
	for _, carrier := range carriers {
		for _, ms := range []time.Duration{0, 30, 100, 300} {
			for _, loss := range []float64{0, 0.05, 0.3} {
				d := ms * time.Millisecond
				list = append(list, cell{carrier, cond{d, d * 3 / 10, loss, 0.1, 5 * time.Second}})
			}
		}
	}
	return list
}

// TestWriteOnce: a write of a client makes one event, and what the game server sets when it hears of the write is what the client and
// the relay end with, whatever the path does.
func TestWriteOnce(t *testing.T) {
	t.Parallel()
	w := start(t)
	d := w.open("demo")
	r := w.referee()
	for _, c := range cells() {
		t.Run(fmt.Sprint(c.carrier, ",", c.cond), func(t *testing.T) {
			if *times == 1 {
				t.Parallel()
			}
			n := tries(8)
			url := d.by(t, c.carrier, c.cond)
			var sum outcome
			var running sync.WaitGroup
			for range n {
				running.Go(func() {
					for !r.try(t, url, d.config(url), c.cond, &sum) && w.ctx.Err() == nil {
						sum.again()
					}
				})
			}
			running.Wait()
			truth := w.of(t).truth()
			for _, key := range sum.keys {
				if v := truth[key]["n"]; v != fmt.Sprint(right) {
					sum.wrong++
					t.Logf("%s: the relay has %q", key, v)
				}
			}
			t.Logf("%d clients, %d writes: %d wrong, %d events; %d connections ended before", n, len(sum.keys), sum.wrong, sum.events, sum.ended)
			if want := n * len(rules); sum.wrong > 0 || sum.events != want || len(sum.keys) != want {
				t.Errorf("%d writes: %d wrong and %d events, want %d writes, 0 wrong and one event for each", len(sum.keys), sum.wrong, sum.events, want)
			}
		})
	}
}

// An outcome is what clients saw.
type outcome struct {
	mu                   sync.Mutex // clients try at once
	keys                 []string
	wrong, events, ended int
}

func (o *outcome) again() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended++
}

// try has a client write each of its states once, and returns when nothing is left on the path. It reports false if the connection ended, as it
// may where many datagrams in a row get lost.
func (r *referee) try(t *testing.T, url string, cfg client.Config, c cond, o *outcome) bool {
	var mu sync.Mutex
	seen := map[string][]int64{}
	cfg.Change = func(_ *client.Client, s *client.State, _ []int) {
		mu.Lock()
		defer mu.Unlock()
		seen[s.Key()] = append(seen[s.Key()], s.Value("n").Int())
	}
	cl := r.w.connect(t, url, cfg)
	if cl == nil {
		return false
	}
	defer cl.Close()
	if cl.Until(r.w.ctx, func() bool { return len(cl.States()) == len(rules) }) != nil {
		return false
	}
	states := cl.States()
	for i, s := range states {
		if s.Set("n", 10+i) != nil {
			return false
		}
		if i%2 == 0 { // the first waits for the second, so that they go together, and two after them
			continue
		}
		if cl.Until(r.w.ctx, func() bool { return states[i-1].Value("n").Int() == right && s.Value("n").Int() == right }) != nil {
			return false
		}
	}
	select {
	case <-time.After(c.late + 4*c.base + 500*time.Millisecond): // what is on the path, and its repeats
	case <-cl.Done():
		return false
	}
	mu.Lock()
	defer mu.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range states {
		for r.count(s.Key()) == 0 && r.w.ctx.Err() == nil { // the loop is behind that over plain NATS
			time.Sleep(5 * time.Millisecond)
		}
		n := r.count(s.Key())
		o.events += n
		o.keys = append(o.keys, s.Key())
		if list := seen[s.Key()]; len(list) != 1 || list[0] != right || s.Value("n").Int() != right {
			o.wrong++
			t.Logf("%s: the client ends with %v, was told %v; %d events", s.Key(), s.Value("n"), list, n)
		}
	}
	return true
}

// connect is dial for any goroutine and a client that its caller closes.
func (w *world) connect(t *testing.T, url string, cfg client.Config) *client.Client {
	for {
		c, err := client.Dial(w.ctx, url, cfg)
		if err == nil {
			return c
		}
		if w.ctx.Err() != nil {
			t.Error(err)
			return nil
		}
	}
}
