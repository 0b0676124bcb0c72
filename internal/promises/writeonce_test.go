package promises

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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
	gaps   int            // how often the game server was told that it missed events
}

func (w *world) referee() *referee {
	r := &referee{w: w, events: map[string]int{}}
	plain, err := w.nc.Subscribe("dnp.v1.event.demo", r.plain)
	w.must(err)
	w.must(w.nc.Flush())
	w.Cleanup(func() { _ = plain.Unsubscribe() })
	w.events(w.space, publisher.Filter{Kinds: []publisher.Kind{publisher.KindJoined, publisher.KindChanged, publisher.KindMissed}}, r.hear)
	return r
}

func (r *referee) missed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gaps
}

// look is what a game server does that missed events: it reads the states, and corrects what it did not hear of. Over plain NATS it does the same;
// the connections of both go to one server.
func (r *referee) look() {
	r.mu.Lock()
	r.gaps++
	r.mu.Unlock()
	for key, values := range r.w.truth() {
		rule, _, _ := strings.Cut(strings.TrimPrefix(key, "plain-"), ".")
		if (rule == "once" || rule == "every") && values["n"] != "0" && values["n"] != fmt.Sprint(right) {
			_ = r.w.space.Post(publisher.Set{Key: key, Values: publisher.Values{"n": right}})
		}
	}
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
	if ev.Kind == publisher.KindMissed {
		r.look()
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

// writeConds are conds with doubles that come 5 s late, and harder paths, for which the short form has not the time.
func writeConds() []cond {
	list := []cond{{"c0", 0, 0, 0, 0.1, 5e9}, {"c1", 30e6, 9e6, 0, 0.1, 5e9}, {"c2", 100e6, 30e6, 0.05, 0.1, 5e9}, {"c3", 30e6, 9e6, 0.3, 0.1, 5e9}}
	for _, ms := range []time.Duration{0, 30, 100, 300} {
		for _, loss := range []float64{0, 0.05, 0.3} {
			d := ms * time.Millisecond
			c := cond{fmt.Sprintf("%vms-%v", int(ms), loss), d, d * 3 / 10, loss, 0.1, 5 * time.Second}
			if !slices.ContainsFunc(list, func(o cond) bool { o.name = c.name; return o == c }) {
				list = append(list, c)
			}
		}
	}
	return append(list, cond{"short", 30e6, 9e6, 0.05, 0.1, 500e6}, cond{"bad", 100e6, 30e6, 0.3, 0.1, 500e6})
}

// TestWriteOnce: a write of a client makes one event, and what the game server sets when it hears of the write is what the client and
// the relay end with, whatever the path does.
func TestWriteOnce(t *testing.T) {
	matrix{named: []string{"go,udp,bad,1", "go,ws,short,2", "go,wt,short,1"}, conds: writeConds()}.run(t, func(w *world) { w.writeOnce(func() {}) })
}

// TestWriteMissed: the same, while the game server loses its connection to NATS. It may miss events, which it is told, and then reads the states.
func TestWriteMissed(t *testing.T) {
	matrix{named: []string{"go,udp,short,2"}, conds: writeConds(), begin: startCut}.run(t, func(w *world) { w.writeOnce(w.cut) })
}

// writeOnce has clients write, and disturb be called meanwhile.
func (w *world) writeOnce(disturb func()) {
	r := w.referee()
	n := tries(8)
	var sum outcome
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			for !r.try(&sum, i == n/2, disturb) && w.ctx.Err() == nil {
				sum.again()
			}
		})
	}
	running.Wait()
	truth := w.truth()
	for _, key := range sum.keys {
		if v := truth[key]["n"]; v != fmt.Sprint(right) {
			sum.wrong++
			w.Logf("%s: the relay has %q", key, v)
		}
	}
	want := n * len(rules)
	if len(sum.keys) != want {
		w.Errorf("%d writes, want %d", len(sum.keys), want)
	}
	w.tell(want, sum.wrong+sum.doubled+sum.unheard, "%d wrong, %d with more events than one, %d with none; %d connections ended before, the game server missed events %d times", sum.wrong, sum.doubled, sum.unheard, sum.ended, r.missed())
}

// An outcome is what clients saw.
type outcome struct {
	mu                             sync.Mutex // clients try at once
	keys                           []string
	wrong, doubled, unheard, ended int
}

func (o *outcome) again() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended++
}

// try has a client write each of its states once, and returns when nothing is left on the path. It reports false if the connection ended, as it
// may where many datagrams in a row get lost.
func (r *referee) try(o *outcome, disturbs bool, disturb func()) bool {
	w := r.w
	var mu sync.Mutex
	seen := map[string][]int64{}
	cl := w.connect(w.path(), ears{see: func(s state, changed []int) {
		mu.Lock()
		defer mu.Unlock()
		if changed != nil {
			seen[s.Key()] = append(seen[s.Key()], s.Value("n").Int())
		}
	}})
	if cl == nil {
		return false
	}
	defer cl.Close()
	if cl.Until(w.ctx, func() bool { return len(cl.States()) == len(rules) }) != nil {
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
		if disturbs && i == 1 {
			disturb()
		}
		if cl.Until(w.ctx, func() bool { return states[i-1].Value("n").Int() == right && s.Value("n").Int() == right }) != nil {
			return false
		}
	}
	select {
	case <-time.After(w.way.cond.late + 4*w.way.cond.base + 500*time.Millisecond): // what is on the path, and its repeats
	case <-cl.Done():
		return false
	}
	mu.Lock()
	defer mu.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range states {
		for r.count(s.Key()) == 0 && r.missed() == 0 && w.ctx.Err() == nil { // the loop is behind that over plain NATS
			time.Sleep(5 * time.Millisecond)
		}
		n := r.count(s.Key())
		if n > 1 {
			o.doubled++
		}
		if n == 0 && r.missed() == 0 {
			o.unheard++
		}
		o.keys = append(o.keys, s.Key())
		if list := seen[s.Key()]; len(list) != 1 || list[0] != right || s.Value("n").Int() != right {
			o.wrong++
			w.Logf("%s: the client ends with %v, was told %v; %d events", s.Key(), s.Value("n"), list, n)
		}
	}
	return true
}
