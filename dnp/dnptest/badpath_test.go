package dnptest_test

import (
	"flag"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

// A talk is a session on a path with loss in which both sides send reliable messages
// at a steady pace. Clients give a message up that has no acknowledgement for 3 s.
type talk struct {
	behaviour dnptest.Behaviour
	loss      float64 // each way
	pause     time.Duration
}

// play plays the session with this seed until the client gives up, for longest at most.
func (k talk) play(t testing.TB, seed uint64, longest time.Duration) (lasted time.Duration, interrupted bool) {
	w := newWorld(t, seed, simnet.Path{Delay: 20 * time.Millisecond}, configFor(k.behaviour))
	p := w.addPlayer(k.behaviour)
	p.toServer = counter{limit: 1 << 30}
	p.give, p.want = p.toServer, p.toServer // the server sends at the same pace, below
	p.Connect(w.net.Now())
	w.net.Wake(p.addr)
	w.net.Run(2 * time.Second)
	r := p.remote()
	if r == nil {
		t.Fatalf("%s is not connected", k.behaviour.Name)
	}
	w.net.SetPath(simnet.Path{Loss: k.loss, Delay: 15 * time.Millisecond, Jitter: 10 * time.Millisecond, Duplicate: 0.05})
	start := w.net.Elapsed()
	w.net.Every(k.pause, func() bool {
		if p.ended() {
			return false
		}
		if p.Queued() == 0 || !k.behaviour.DropsTail {
			if err := p.Send(w.net.Now(), p.give.message()); err != nil {
				t.Fatal(err)
			}
			w.net.Wake(p.addr)
		}
		if err := r.conn.Send(r.give.message(), 0); err != nil {
			t.Fatal(err)
		}
		w.net.Wake(serverAddr)
		return true
	})
	interrupted = w.net.RunUntil(longest, p.ended)
	if p.wrong != "" {
		t.Fatal(p.wrong)
	}
	return w.net.Elapsed() - start, interrupted
}

// Sessions of TestBadPath and TestManyLinks. With few of them they take seconds.
var talks = flag.Int("talks", 4, "sessions of each kind in TestBadPath, and seeds of TestManyLinks")

// TestBadPath wants sessions to last half as long at least as the loss of commands
// allows: a client sends a message six times before it gives up, so loss⁶ of all messages
// end their session, however well acknowledgements arrive. At 10 % loss that is none.
func TestBadPath(t *testing.T) {
	const pause, longest = 200 * time.Millisecond, 10 * time.Minute
	for _, b := range []dnptest.Behaviour{dnptest.Cpp(), dnptest.Java()} {
		for _, loss := range []float64{0.1, 0.2, 0.3} {
			if loss < 0.3 && *talks < 20 {
				continue
			}
			t.Run(fmt.Sprintf("%s/loss=%v", b.Name, loss), func(t *testing.T) {
				var total time.Duration
				ended := 0
				for s := range *talks {
					d, interrupted := talk{b, loss, pause}.play(t, *seed+uint64(s), longest)
					total += d
					if interrupted {
						ended++
					}
				}
				allowed := pause.Seconds() / math.Pow(loss, 6)
				t.Logf("%d of %d sessions were interrupted, one per %.0f s; the loss of commands allows one per %.0f s", ended, *talks, total.Seconds()/float64(ended), allowed)
				if most := int(2*total.Seconds()/allowed) + 3; ended > most { // three are chance in few sessions
					t.Errorf("%d interruptions in %v, want %d at most", ended, total.Round(time.Second), most)
				}
			})
		}
	}
}

// TestManyLinks wants links to stand soon on a path with loss, with a round trip of 20 ms. Each lost command costs
// a round trip in which the client takes nothing new, so 5 % of loss cost more than 5 % of time.
func TestManyLinks(t *testing.T) {
	for _, b := range []dnptest.Behaviour{dnptest.Cpp(), dnptest.Java()} {
		ratios := 0.0
		for s := range uint64(*talks) {
			clean := manyLinks(t, b, *seed+s, 1000, 0)
			few := manyLinks(t, b, *seed+s, 1000, 0.05)
			lossy := manyLinks(t, b, *seed+s, 300, 0.3)
			ratios += few.Seconds() / clean.Seconds()
			t.Logf("%s: 1,000 links %.2f s, at 5 %% loss %.2f s, 300 at 30 %% %.2f s", b.Name, clean.Seconds(), few.Seconds(), lossy.Seconds())
			if lossy > 6*time.Second {
				t.Errorf("%s, seed %d: 300 links at 30 %% take %v, want 6 s at most", b.Name, *seed+s, lossy)
			}
		}
		mean := ratios / float64(*talks)
		t.Logf("%s: at 5 %% loss %.2f times as long as without, on average", b.Name, mean)
		if mean > 1.5 {
			t.Errorf("%s: %.2f times, want 1.5 on average", b.Name, mean)
		}
	}
}

// manyLinks returns how long it takes until n links stand.
func manyLinks(t *testing.T, b dnptest.Behaviour, seed uint64, n int, loss float64) time.Duration {
	w := newWorld(t, seed, simnet.Path{Delay: 10 * time.Millisecond}, dnp.Config{})
	p := w.addPlayer(b)
	p.Connect(w.net.Now())
	w.net.Wake(p.addr)
	w.net.Run(2 * time.Second)
	w.net.SetPath(simnet.Path{Delay: 10 * time.Millisecond, Loss: loss})
	start := w.net.Elapsed()
	for i := range n {
		if err := p.remote().conn.Link(w.server.addSource(fmt.Sprint(i)), true); err != nil {
			t.Fatal(err)
		}
	}
	w.net.Wake(serverAddr)
	if !w.net.RunUntil(time.Minute, func() bool { return len(p.Links()) == n }) {
		t.Fatalf("%s: %d of %d links stand after a minute", b.Name, len(p.Links()), n)
	}
	return w.net.Elapsed() - start
}

// TestBottleneck sends more values and reliable messages than a path of 1 Mbit/s carries, which has a queue
// of 100 ms, by a budget of as much. The narrow place always has something of use to do, and nothing waits
// there for long.
func TestBottleneck(t *testing.T) {
	const rate, measured = 125_000, 20 * time.Second
	for _, b := range []dnptest.Behaviour{dnptest.Cpp(), dnptest.Java()} {
		for _, size := range []int{0, 1300} { // of messages; larger ones Java does not receive
			t.Run(fmt.Sprintf("%s/size=%d", b.Name, size), func(t *testing.T) {
				w, p := crowdedPath(t, b, rate, size)
				w.net.Run(10 * time.Second)
				if len(p.Links()) != len(w.server.sources) {
					t.Fatalf("%d links stand after 10 s, want %d", len(p.Links()), len(w.server.sources))
				}
				var backlog []time.Duration
				w.net.Every(time.Millisecond, func() bool {
					backlog = append(backlog, w.net.Backlog(serverAddr, p.addr))
					return len(backlog) < int(measured/time.Millisecond)
				})
				before, got, repeats, lost := *w.server.e.Stats(), p.want.next, p.Stats.Repeats, w.net.Stats().Lost
				w.net.Run(measured)
				after := w.server.e.Stats()
				got, repeats, lost = p.want.next-got, p.Stats.Repeats-repeats, w.net.Stats().Lost-lost
				sent := int(after.BytesOut-before.BytesOut) + 28*int(after.DatagramsOut-before.DatagramsOut)
				use := float64(sent-repeats*(size+35)-lost*1228) / rate / measured.Seconds()
				slices.Sort(backlog)
				p50, p99 := backlog[len(backlog)/2], backlog[len(backlog)*99/100]
				t.Logf("%.0f %% of the rate is of use, %d messages, %d repeats, %d datagrams lost; queue p50 %v, p99 %v", 100*use, got, repeats, lost, p50, p99)
				if use < 0.9 || p50 > 30*time.Millisecond || p.ended() || p.wrong != "" {
					t.Errorf("want 90 %%, and a queue of 30 ms; client %q, server %v, %s", p.Reason(), p.remote().reason, p.wrong)
				}
			})
		}
	}
}

// crowdedPath returns a world in which the values of 100 states, changed 200 times a second, and messages of a size are
// three times as much as the path carries, whose rate is the budget.
func crowdedPath(t *testing.T, b dnptest.Behaviour, rate, size int) (*world, *player) {
	cfg := configFor(b)
	cfg.BytesPerSecond = rate
	w := newWorld(t, *seed, simnet.Path{Delay: 10 * time.Millisecond, Rate: rate, Queue: 100 * time.Millisecond}, cfg)
	for i := range 100 {
		w.server.addSource(fmt.Sprint(i))
	}
	p := w.addPlayer(b)
	if size > 0 {
		p.toClient = counter{limit: 1 << 20, more: size}
		p.give, p.want = p.toServer, p.toClient
	}
	p.start(0)
	n := uint32(0)
	w.net.Every(5*time.Millisecond, func() bool {
		for _, src := range w.server.sources {
			n++
			change(src, int(n)%3, n)
		}
		w.net.Wake(serverAddr)
		return true
	})
	return w, p
}

// TestCalmPath wants nothing to be sent twice without loss, whatever the frames of the client do to the round
// trip. It reports what was sent, also where the path changes the order of datagrams, to be compared between versions.
func TestCalmPath(t *testing.T) {
	for _, b := range dnptest.Presets() {
		for _, jitter := range []time.Duration{0, 5 * time.Millisecond} {
			var datagrams, bytes, resends, repeats uint64
			for delay := 10 * time.Millisecond; delay < 26*time.Millisecond; delay += time.Millisecond {
				w, p := calmPath(t, b, simnet.Path{Delay: delay, Jitter: jitter})
				s := w.server.e.Stats()
				datagrams, bytes, resends, repeats = datagrams+s.DatagramsOut, bytes+s.BytesOut, resends+s.Resends, repeats+uint64(p.Stats.Repeats)
			}
			t.Logf("%s, jitter %v: %d datagrams, %d bytes, %d commands sent again, %d arrived twice", b.Name, jitter, datagrams, bytes, resends, repeats)
			if jitter == 0 && resends+repeats > 0 {
				t.Errorf("%s: %d commands sent again, %d arrived twice, want none", b.Name, resends, repeats)
			}
		}
	}
}

// calmPath plays 30 s with 100 states that change 20 times a second, and 300 messages each way.
func calmPath(t *testing.T, b dnptest.Behaviour, path simnet.Path) (*world, *player) {
	w := newWorld(t, *seed, path, configFor(b))
	for i := range 100 {
		w.server.addSource(fmt.Sprint(i))
	}
	p := w.addPlayer(b)
	p.messages(300, 300)
	p.start(2)
	n := uint32(0)
	w.net.Every(50*time.Millisecond, func() bool {
		n++
		for _, src := range w.server.sources {
			change(src, int(n)%3, n)
		}
		w.net.Wake(serverAddr)
		return true
	})
	w.net.Run(30 * time.Second)
	if !p.done() || len(p.Links()) < 100 {
		t.Fatalf("%s: %d links, client %v", b.Name, len(p.Links()), p.Phase())
	}
	return w, p
}
