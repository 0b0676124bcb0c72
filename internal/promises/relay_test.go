package promises

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/publisher"
)

// TestWritesStay: a relay that has stored its states is killed and clients write before the next one serves. What they wrote stays, although the game
// server, which publishes all the time, tells that relay everything that it said before.
func TestWritesStay(t *testing.T) {
	matrix{named: []string{"go,udp,c0,2"}, begin: startStored}.run(t, writesStay)
}

func writesStay(w *world) {
	const states = 20
	var ops []publisher.Op
	for j := range states {
		put := u32(fmt.Sprint("k", j), 1, publisher.Value{Name: "theirs", Type: publisher.Uint32, Value: 0})
		put.Access = publisher.Access{All: true}
		ops = append(ops, put)
	}
	w.publish(ops...)
	w.untilStored(states) // otherwise the next relay has them only when the game server says them again, and refuses what clients write before
	h := w.events(w.space, publisher.Filter{Kinds: []publisher.Kind{publisher.KindChanged, publisher.KindMissed, publisher.KindRefused}}, nil)
	c := w.dial(w.path(), ears{})
	write := func(j int, name string, v int) {
		s, err := c.Await(w.ctx, fmt.Sprint("k", j))
		w.must(err)
		w.must(s.Set(name, v))
	}
	heard := func(j int, name string, v int) bool {
		return h.has(func(ev publisher.Event) bool { return ev.Key == fmt.Sprint("k", j) && ev.Values[name] == uint32(v) })
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	defer func() { close(stop); <-stopped }()
	go func() { // the game loop
		defer close(stopped)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for v := 0; ; v++ {
			_ = w.space.Post(u32("clock", v))
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	undone, lost := 0, 0
	n := tries(1)
	for i := 1; i <= n; i++ {
		for j := range states {
			write(j, "theirs", 1000*i+j)
		}
		w.eventually("the game server hears of the writes", func() bool { return heard(states-1, "theirs", 1000*i+states-1) })
		w.publish(publisher.Set{Key: "k0", Values: publisher.Values{"n": i}}) // so that the store has a state to write
		w.kill()
		for j := range states {
			write(j, "n", 1000*i+j)
		}
		w.serve()
		for j := range states {
			if !within(patience/2, func() bool { return heard(j, "n", 1000*i+j) }) {
				var other []publisher.Event
				h.count(func(ev publisher.Event) bool {
					if ev.Kind != publisher.KindChanged {
						other = append(other, ev)
					}
					return false
				})
				w.Fatalf("round %d: the game server did not hear of the write to k%d; the relay has %v, the game server heard %+v", i, j, w.truth()[fmt.Sprint("k", j)], other)
			}
		}
		w.must(w.space.Flush(w.ctx))
		truth := w.truth()
		for j := range states {
			v := truth[fmt.Sprint("k", j)]
			if v["n"] != fmt.Sprint(1000*i+j) {
				undone++
			}
			if v["theirs"] != fmt.Sprint(1000*i+j) {
				lost++
			}
		}
	}
	w.tell(2*n*states, undone+lost, "%d writes undone, %d accepted before lost, of those that game servers heard of", undone, lost)
}

// TestOthersSetsStay: what one game server set in a state of another is there after the relay lost everything, whoever tells it first.
func TestOthersSetsStay(t *testing.T) {
	t.Parallel()
	w := start(t)
	_, other := w.game()
	w.publish(u32("k", 1, publisher.Value{Name: "other", Type: publisher.Uint32, Value: 0}), u32("mine", 1))
	n, lost := tries(3), 0
	for i := 1; i <= n; i++ {
		w.publish(publisher.Set{Key: "k", Values: publisher.Values{"n": i}})
		_, err := other.Publish(w.ctx, publisher.Set{Key: "k", Values: publisher.Values{"other": i}}, publisher.Audience{Key: "mine", Who: publisher.Who{Clients: []string{fmt.Sprint("c", i)}}})
		w.must(err)
		w.kill()
		w.serve()
		w.publish(publisher.Set{Key: "k", Values: publisher.Values{"n": 100 + i}})
		w.must(w.space.Flush(w.ctx))
		w.must(other.Flush(w.ctx))
		if !soon(func() bool { v := w.truth()["k"]; return v["n"] == fmt.Sprint(100+i) && v["other"] == fmt.Sprint(i) }) {
			lost++
			t.Logf("try %d: %v", i, w.truth())
		}
		if !soon(func() bool { return w.audience("mine") == fmt.Sprintf(`{"groups":[],"clients":["c%d"]}`, i) }) {
			lost++
			t.Logf("try %d: audience %s", i, w.audience("mine"))
		}
	}
	w.tell(2*n, lost, "")
}

// TestForeignAudience: a game server lets all clients see a state that a client made. They see it after the relay was killed, and after it lost everything.
func TestForeignAudience(t *testing.T) {
	for name, begin := range map[string]func(*testing.T) *world{"stored": startStored, "volatile": start} {
		t.Run(name, func(t *testing.T) {
			matrix{named: []string{"go,udp,c0,2"}, begin: begin}.run(t, foreignAudience)
		})
	}
}

func foreignAudience(w *world) {
	owner, me := w.named(w.path(), ears{})
	other := w.dial(w.path(), ears{})
	n, lost := tries(1), 0
	for i := range n {
		message := fmt.Sprint("own", i)
		own, err := owner.Offer(message, client.Field{Type: "uint32", Value: i})
		w.must(err)
		key := ""
		w.eventually("the relay has the state", func() bool {
			key = w.ownKey(me)
			return key != ""
		})
		w.publish(publisher.Audience{Key: key})
		w.kill()
		w.serve()
		if !soon(func() bool { return w.audience(key) == `{"all":true}` }) {
			lost++
		}
		w.eventually("the relay has the state again", func() bool { return w.truth()[key] != nil })
		if lost == 0 {
			_, err = other.Await(w.ctx, message)
			w.must(err)
		}
		owner.Withdraw(own)
		w.eventually("the state ends", func() bool { return w.ownKey(me) == "" })
	}
	w.tell(n, lost, "")
}

// ownKey returns the key of a state of a client, which has at most one; empty if it has none.
func (w *world) ownKey(client string) string {
	for key := range w.truth() {
		if strings.HasPrefix(key, "client."+client+".") {
			return key
		}
	}
	return ""
}

// TestStateIsLast: what Space.State returns is what the relay has, also where writes of clients cross what the game server sets.
func TestStateIsLast(t *testing.T) {
	matrix{named: []string{"go,ws,c0,1"}}.run(t, stateIsLast)
}

func stateIsLast(w *world) {
	const states = 10
	for j := range states {
		put := u32(fmt.Sprint("k", j), 0)
		put.Access = publisher.Access{All: true}
		w.publish(put)
	}
	h := w.events(w.space, publisher.Filter{Kinds: []publisher.Kind{publisher.KindChanged}}, nil)
	c := w.dial(w.path(), ears{})
	all := make([]state, states)
	for j := range all {
		var err error
		all[j], err = c.Await(w.ctx, fmt.Sprint("k", j))
		w.must(err)
	}
	n, wrong := tries(20), 0
	for i := 1; i <= n; i++ {
		for j, s := range all {
			w.must(s.Set("n", 1000*i+j))
		}
		for j := range all { // while the writes arrive
			w.publish(publisher.Set{Key: fmt.Sprint("k", j), Values: publisher.Values{"n": i}})
		}
		w.must(all[0].Set("n", 1000*i+500))
		w.eventually("the last write is applied", func() bool {
			return h.has(func(ev publisher.Event) bool { return ev.Values["n"] == uint32(1000*i+500) })
		})
		agree := func() bool {
			truth := w.truth()
			for j := range states {
				st, _ := w.space.State(fmt.Sprint("k", j))
				if fmt.Sprint(st.Value("n")) != truth[st.Key]["n"] {
					return false
				}
			}
			return true
		}
		if !soon(agree) {
			wrong++
			for j := range states {
				w.publish(publisher.Set{Key: fmt.Sprint("k", j), Values: publisher.Values{"n": i}})
			}
		}
	}
	w.tell(n, wrong, "rounds in which the copy of a state is not what the relay has")
}

// soon is eventually for what may never be.
func soon(f func() bool) bool { return within(10*time.Second, f) }

// within waits until f reports true, and returns false when the time is over.
func within(most time.Duration, f func() bool) bool {
	for end := time.Now().Add(most); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
