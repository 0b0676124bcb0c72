package dnptest_test

import (
	"flag"
	"fmt"
	"math"
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
var (
	talks    = flag.Int("talks", 4, "sessions of each kind in TestBadPath, and seeds of TestManyLinks")
	talkRate = flag.Int("talk-rate", 5, "messages per second each way in TestBadPath")
)

// TestBadPath wants sessions to last half as long at least as the loss of commands
// allows: a client sends a message six times before it gives up, so loss⁶ of all messages
// end their session, however well acknowledgements arrive. At 10 % loss that is none.
func TestBadPath(t *testing.T) {
	const longest = 10 * time.Minute
	pause := time.Second / time.Duration(*talkRate)
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
	most := 1.2
	if *talks < 20 {
		most = 1.3 // chance
	}
	for _, b := range []dnptest.Behaviour{dnptest.Cpp(), dnptest.Java()} {
		ratios, lossys := 0.0, 0.0
		for s := range uint64(*talks) {
			clean := manyLinks(t, b, *seed+s, 1000, 10*time.Millisecond, 0)
			few := manyLinks(t, b, *seed+s, 1000, 10*time.Millisecond, 0.05)
			lossy := manyLinks(t, b, *seed+s, 300, 10*time.Millisecond, 0.3)
			ratios += few.Seconds() / clean.Seconds()
			lossys += lossy.Seconds()
			t.Logf("%s: 1,000 links %.2f s, at 5 %% loss %.2f s, 300 at 30 %% %.2f s", b.Name, clean.Seconds(), few.Seconds(), lossy.Seconds())
			if lossy > 6*time.Second {
				t.Errorf("%s, seed %d: 300 links at 30 %% take %v, want 6 s at most", b.Name, *seed+s, lossy)
			}
		}
		ratio, mean := ratios/float64(*talks), lossys/float64(*talks)
		t.Logf("%s: on average %.2f times as long at 5 %% loss as without, and %.2f s at 30 %%", b.Name, ratio, mean)
		if ratio > most || mean > 4.5 { // 3.8 s for C++, 2.9 s for Java; 6.2 and 4.8 s if the oldest command went once
			t.Errorf("%s: %.2f times and %.2f s, want %.1f times and 4.5 s on average", b.Name, ratio, mean, most)
		}
	}
}

// TestLossOnShortPath wants links to stand as soon where the path is short. An acknowledgement takes a frame of the
// client there, and may be that of either copy of a command.
func TestLossOnShortPath(t *testing.T) {
	for _, b := range []dnptest.Behaviour{dnptest.Cpp(), dnptest.Java()} {
		var sum time.Duration
		for s := range uint64(*talks) {
			d := manyLinks(t, b, *seed+s, 1000, 0, 0.3)
			t.Logf("%s: 1,000 links at 30 %% %.2f s", b.Name, d.Seconds())
			sum += d
		}
		if mean := sum / time.Duration(*talks); mean > 12*time.Second { // 9.1 s for C++, 6.0 s for Java
			t.Errorf("%s: 1,000 links take %v on average, want 12 s at most", b.Name, mean)
		}
	}
}

// manyLinks returns how long it takes until n links stand.
func manyLinks(t *testing.T, b dnptest.Behaviour, seed uint64, n int, delay time.Duration, loss float64) time.Duration {
	w := newWorld(t, seed, simnet.Path{Delay: delay}, dnp.Config{})
	p := w.addPlayer(b)
	p.Connect(w.net.Now())
	w.net.Wake(p.addr)
	w.net.Run(2 * time.Second)
	w.net.SetPath(simnet.Path{Delay: delay, Loss: loss})
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

// TestCalmPath wants nothing to be sent twice without loss, whatever the frames of the client do to the round
// trip. It reports what was sent, also where the path changes the order of datagrams, to be compared between versions.
func TestCalmPath(t *testing.T) {
	for _, b := range dnptest.Presets() {
		for _, jitter := range []time.Duration{0, 5 * time.Millisecond} {
			var datagrams, bytes, resends, repeats, trials uint64
			step := time.Millisecond
			if *talks < 20 {
				step = 4 * time.Millisecond
			}
			for delay := 10 * time.Millisecond; delay < 26*time.Millisecond; delay += step {
				w, p := calmPath(t, b, simnet.Path{Delay: delay, Jitter: jitter})
				s := w.server.e.Stats()
				datagrams, bytes, resends, repeats = datagrams+s.DatagramsOut, bytes+s.BytesOut, resends+s.Resends, repeats+uint64(p.Stats.Repeats)
				if b.LongMessage == dnptest.LongSticks {
					trials++ // is sent as a part and as a question
				}
			}
			t.Logf("%s, jitter %v: %d datagrams, %d bytes, %d commands sent again, %d arrived twice", b.Name, jitter, datagrams, bytes, resends, repeats)
			if jitter == 0 && resends+repeats > trials {
				t.Errorf("%s: %d commands sent again, %d arrived twice, want %d", b.Name, resends, repeats, trials)
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
		t.Fatalf("%s: %d links, client %v %s, server %+v", b.Name, len(p.Links()), p.Phase(), p.Reason(), p.remote())
	}
	return w, p
}
