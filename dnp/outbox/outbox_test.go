package outbox

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

var (
	seed  = flag.Uint64("seed", 0, "first seed of TestAuthority; 0 for 1")
	seeds = flag.Int("seeds", 300, "seeds of TestAuthority")
)

var start = time.Unix(1000, 0)

func at(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }

func all(string) bool { return true }

// sendAll sends what was not sent.
func sendAll(o *Outbox[string], now time.Time) (number uint32) {
	number = o.Next()
	o.Sent(now, o.Unsent(nil, all))
	return number
}

// due returns what is sent again, as "number: keys".
func due(o *Outbox[string], now time.Time) (list []string) {
	for {
		number, keys := o.Due(now, nil)
		if number == 0 {
			return list
		}
		list = append(list, fmt.Sprint(number, ": ", keys))
	}
}

func (o *Outbox[K]) ack(now time.Time, number uint32, order wire.Order) string {
	text := ""
	for _, e := range o.Acknowledge(now, number, order, func(K) (wire.RefusalCode, bool) { return 0, false }, nil) {
		text += fmt.Sprintf("%v=%q ", e.Key, e.Value)
		e.Tell()
	}
	return text
}

func want[T any](t *testing.T, why string, got, want T) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("%s: got %s, want %s", why, g, w)
	}
}

func TestRepeats(t *testing.T) {
	var o Outbox[string]
	o.Set("a", nil)
	o.Set("b", nil)
	want(t, "nothing is due before it is sent", o.NextTimeout(), time.Time{})
	sendAll(&o, at(0))
	want(t, "how long an acknowledgement takes is not known", o.NextTimeout(), at(300))
	want(t, "before its time", due(&o, at(299)), nil)
	want(t, "both values with the number that they had", due(&o, at(300)), []string{"1: [a b]"})
	want(t, "the pause doubles", o.NextTimeout(), at(900))
	o.Set("b", nil)
	sendAll(&o, at(400))
	want(t, "a value that was set again has another number", due(&o, at(900)), []string{"1: [a]", "2: [b]"})
	want(t, "the acknowledgement of a number that b does not have any more", o.ack(at(950), 1, 1), `a="" `)
	for ms := 1000; ms < 20_000; ms += 10 {
		if len(due(&o, at(ms))) > 0 && o.NextTimeout().Sub(at(ms)) > 2*time.Second {
			t.Fatalf("after %d ms the next repeat is %v later, want 2 s at most, without end", ms, o.NextTimeout().Sub(at(ms)))
		}
	}
	o.ack(at(20_000), 2, 2)
	want(t, "after the acknowledgement", o.NextTimeout(), time.Time{})
	want(t, "after the acknowledgement", o.Len(), 0)
}

func TestRepeatLearns(t *testing.T) {
	var o Outbox[string]
	for i := range 50 {
		o.Set("a", nil)
		o.ack(at(1000*i+100), sendAll(&o, at(1000*i)), 1)
	}
	o.Set("a", nil)
	sendAll(&o, at(100_000))
	if d := o.NextTimeout().Sub(at(100_000)); d < 140*time.Millisecond || d > 200*time.Millisecond {
		t.Errorf("acknowledgements take 100 ms: the first repeat comes after %v", d)
	}
	o.Reliable = true
	o.Set("b", nil)
	sendAll(&o, at(100_000))
	due(&o, at(101_000))
	want(t, "a carrier that loses nothing", due(&o, at(101_999)), []string{"51: [a]"})
	want(t, "a carrier that loses nothing", due(&o, at(102_000)), []string{"52: [b]"})
	o.Resume(at(102_100))
	want(t, "the connection was lost", due(&o, at(102_100)), []string{"51: [a]", "52: [b]"})
}

// TestFormerEdge: an edge from which another one took the session over may still acknowledge a write, behind values of the new
// edge that are older than the write.
func TestFormerEdge(t *testing.T) {
	var o Outbox[string]
	o.Set("a", nil)
	number := sendAll(&o, at(0))
	want(t, "the new edge does not have the write yet", o.Receive("a", wire.NewOrder(4, 1), []byte("old")), false)
	want(t, "the former edge says that it has ended", o.ack(at(10), number, wire.NewOrder(3, 7)), "")
	want(t, "the write is repeated", due(&o, at(300)), []string{"1: [a]"})
	want(t, "the new edge says so, too", o.ack(at(310), number, wire.NewOrder(4, 2)), `a="" `)
}

// TestCrossing checks what is shown of values that the edge sends while a write is on its way.
func TestCrossing(t *testing.T) {
	var o Outbox[string]
	want(t, "without a write", o.Receive("a", 5, []byte("x")), true)
	o.Set("a", nil)
	want(t, "a value that crosses a write which was not sent", o.Receive("a", 6, []byte("old")), false)
	sendAll(&o, at(0))
	want(t, "the write replaced that value", o.ack(at(50), 1, 7), `a="" `)
	want(t, "the value of the datagram with the acknowledgement", o.Receive("a", 7, []byte("y")), true)

	o.Set("a", nil)
	sendAll(&o, at(100))
	o.Receive("a", 9, []byte("newer"))
	want(t, "a later datagram overtook that of the acknowledgement", o.ack(at(150), 2, 8), `a="newer" `)

	o.Set("a", nil)
	sendAll(&o, at(200))
	o.Receive("a", 10, []byte("crossed"))
	o.Set("a", nil)
	sendAll(&o, at(210))
	want(t, "the acknowledgement of the write before", o.ack(at(250), 3, 11), "")
	want(t, "so the value with it is older than the last write", o.Receive("a", 11, []byte("of 3")), false)
	want(t, "and the last write stands", o.ack(at(260), 4, 12), `a="" `)
	want(t, "a copy of the acknowledgement", o.ack(at(261), 4, 12), "")
	want(t, "an acknowledgement of nothing", o.ack(at(261), 999, 12), "")
}

func TestResults(t *testing.T) {
	var o Outbox[string]
	results := map[string]Result{}
	tell := func(k string) func(Result) { return func(r Result) { results[k] = r } }
	o.Set("a", tell("first"))
	o.Set("a", tell("second"))
	o.Set("b", tell("refused"))
	o.Receive("b", 3, []byte("truth"))
	o.Set("c", tell("lost"))
	sendAll(&o, at(0))
	for _, e := range o.Acknowledge(at(1), 1, 4, func(k string) (wire.RefusalCode, bool) { return wire.RefusedRate, k == "b" }, nil) {
		if e.Tell(); e.Key == "b" {
			want(t, "a refused write leaves what the edge sent before, because it was not applied", string(e.Value), "truth")
		}
	}
	o.Set("c", tell("lost"))
	o.Drop(func(k string) bool { return k == "c" })
	want(t, "the results", results, map[string]Result{"first": {}, "second": {}, "refused": {Refused: true, Code: wire.RefusedRate}, "lost": {Lost: true}})
	o.Set("d", tell("plain"))
	o.Sent(at(5), o.Unsent(nil, all))
	o.Forget([]string{"d"})
	want(t, "without acknowledgements the result is not known", results["plain"], Result{Lost: true})
	want(t, "nothing is left", o.Len(), 0)
	want(t, "nothing is due", o.NextTimeout(), time.Time{})
}

// A world has a client, a network that loses, doubles, delays and reorders datagrams both ways, and an edge that is a dumb
// twin: it has the truth, which a game server changes, too.
type world struct {
	*rand.Rand
	now   time.Time
	queue []event // datagrams under way and what the edge has to do, in no order
	loss  float64
	slow  bool // some datagrams take 5 s

	o      Outbox[int]
	shown  []int
	orders []wire.Order

	set, got  []int // what the client set last, and what of it the edge applied last
	truth     []int
	applied   []uint32       // newest number, by value
	times     map[[2]int]int // how often a number was applied, by value and number
	order     wire.Order
	corrected []bool // the game server changed the value behind the client's last write
}

type event struct {
	at time.Time
	do func()
}

func (w *world) later(f func()) {
	for copies := 1; copies > 0; copies-- {
		if w.Float64() < w.loss {
			continue
		}
		if w.IntN(10) == 0 {
			copies++
		}
		d := time.Duration(w.IntN(200)) * time.Millisecond
		if w.slow && w.IntN(50) == 0 {
			d += 5 * time.Second
		}
		w.queue = append(w.queue, event{w.now.Add(d), f})
	}
}

// send sends a datagram of the client.
func (w *world) send(number uint32, keys []int) {
	values := map[int]int{}
	for _, k := range keys {
		values[k] = w.shown[k]
	}
	w.later(func() { w.hear(number, values) })
}

// hear is what edge and relay do with a write: they apply a number once, and answer some time later.
func (w *world) hear(number uint32, values map[int]int) {
	for k, v := range values {
		if w.applied[k] < number {
			w.applied[k], w.truth[k], w.got[k] = number, v, v
			w.times[[2]int{k, int(number)}]++
			if w.IntN(4) == 0 {
				w.truth[k], w.corrected[k] = -1-w.IntN(1000), true // the game server corrects what the client wrote
			} else {
				w.corrected[k] = false
			}
		}
	}
	w.queue = append(w.queue, event{w.now.Add(time.Duration(w.IntN(50)) * time.Millisecond), func() {
		var differ []int // values that the client does not have
		for k := range w.truth {
			if v, ok := values[k]; ok && v != w.truth[k] {
				differ = append(differ, k)
			}
		}
		w.tell(differ, number)
	}})
}

// tell sends values as they are now, with an acknowledgement unless number is 0.
func (w *world) tell(keys []int, number uint32) {
	w.order++
	order, values := w.order, map[int]int{}
	for _, k := range keys {
		values[k] = w.truth[k]
	}
	w.later(func() {
		if number != 0 {
			for _, e := range w.o.Acknowledge(w.now, number, order, func(int) (wire.RefusalCode, bool) { return 0, false }, nil) {
				w.orders[e.Key] = max(w.orders[e.Key], order)
				if e.Value != nil {
					fmt.Sscan(string(e.Value), &w.shown[e.Key])
				}
			}
		}
		for k, v := range values {
			if order < w.orders[k] {
				continue
			}
			if w.orders[k] = order; w.o.Receive(k, order, []byte(fmt.Sprint(v))) {
				w.shown[k] = v
			}
		}
	})
}

func (w *world) run(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(time.Millisecond) {
		for i := 0; i < len(w.queue); i++ {
			if e := w.queue[i]; !e.at.After(w.now) {
				w.queue = slices.Delete(w.queue, i, i+1)
				i--
				e.do()
			}
		}
		for {
			number, keys := w.o.Due(w.now, nil)
			if number == 0 {
				break
			}
			w.send(number, keys)
		}
		if w.now.UnixMilli()%30 == 0 {
			for keys := w.o.Unsent(nil, func(int) bool { return true }); len(keys) > 0; {
				n := 1 + w.IntN(len(keys))
				w.send(w.o.Next(), keys[:n])
				w.o.Sent(w.now, keys[:n])
				keys = keys[n:]
			}
		}
		w.o.NextTimeout()
	}
}

// TestAuthority plays clients, networks and game servers: in the end the client shows what the edge has, a number was applied
// once, and what the game server set last stands.
func TestAuthority(t *testing.T) {
	first := max(*seed, 1)
	for s := first; s < first+uint64(*seeds); s++ {
		r := rand.New(rand.NewPCG(s, 1))
		const n = 4
		w := &world{Rand: r, now: start, set: make([]int, n), got: make([]int, n), shown: make([]int, n), orders: make([]wire.Order, n), truth: make([]int, n), applied: make([]uint32, n),
			times: map[[2]int]int{}, corrected: make([]bool, n), loss: []float64{0, 0.05, 0.3}[r.IntN(3)], slow: r.IntN(2) == 0}
		for step := range 40 {
			k := r.IntN(n)
			switch r.IntN(3) {
			case 0:
				w.shown[k] = 1000*step + k + 1
				w.set[k] = w.shown[k]
				w.o.Set(k, nil)
			case 1:
				w.truth[k], w.corrected[k] = -1000*step-k-1, true // the game server
				w.tell([]int{k}, 0)
			case 2:
				w.tell([]int{k}, 0) // an edge repeats values
			}
			w.run(time.Duration(r.IntN(150)) * time.Millisecond)
		}
		w.run(20 * time.Second)
		if w.loss > 0 { // the edge repeats its values until they have arrived
			w.loss = 0
			w.run(5 * time.Second)
			w.tell([]int{0, 1, 2, 3}, 0)
			w.run(time.Second)
		}
		if w.o.Len() != 0 || !slices.Equal(w.shown, w.truth) {
			t.Fatalf("-seed=%d -seeds=1: %d writes have not ended; the client shows %v, the edge has %v", s, w.o.Len(), w.shown, w.truth)
		}
		if !slices.Equal(w.set, w.got) {
			t.Fatalf("-seed=%d -seeds=1: the client set %v last, the edge got %v last", s, w.set, w.got)
		}
		for k, times := range w.times {
			if times > 1 {
				t.Fatalf("-seed=%d -seeds=1: number %d was applied %d times to value %d", s, k[1], times, k[0])
			}
		}
		for k, c := range w.corrected {
			if c && w.truth[k] > 0 {
				t.Fatalf("-seed=%d -seeds=1: value %d is %d, although the game server changed it last", s, k, w.truth[k])
			}
		}
	}
}

// FuzzOutbox finds calls that break an Outbox.
func FuzzOutbox(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7})
	f.Fuzz(func(t *testing.T, ops []byte) {
		var o Outbox[byte]
		now, ended := start, 0
		for i := 0; i+1 < len(ops); i += 2 {
			x := ops[i+1]
			switch now = now.Add(time.Duration(x) * time.Millisecond); ops[i] % 8 {
			case 0, 1:
				o.Set(x%8, func(Result) { ended++ })
			case 2:
				o.Sent(now, o.Unsent(nil, func(k byte) bool { return k != x }))
			case 3:
				o.Due(now, nil)
			case 4:
				o.Receive(x%8, wire.Order(x), []byte{x})
			case 5:
				for _, e := range o.Acknowledge(now, uint32(x%16), wire.Order(x), func(byte) (wire.RefusalCode, bool) { return 0, x > 200 }, nil) {
					e.Tell()
				}
			case 6:
				o.Drop(func(k byte) bool { return k == x%8 })
			case 7:
				o.Resume(now)
				o.NextTimeout()
			}
		}
		before := ended
		waiting := o.Len()
		o.Drop(func(byte) bool { return true })
		if o.Len() != 0 || ended-before < waiting {
			t.Fatalf("%d writes are left; %d of %d were told their end", o.Len(), ended-before, waiting)
		}
	})
}
