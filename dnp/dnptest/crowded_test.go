package dnptest_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

// TestBottleneck sends more values and reliable messages than a path of 1 Mbit/s carries, which has a queue
// of 100 ms, by a budget of as much. The narrow place always has something of use to do, and nothing waits
// there for long.
func TestBottleneck(t *testing.T) {
	const measured = 20 * time.Second
	for _, b := range []dnptest.Behaviour{dnptest.Cpp(), dnptest.Java()} {
		for _, size := range []int{0, 1300} { // of messages; larger ones Java does not receive
			t.Run(fmt.Sprintf("%s/size=%d", b.Name, size), func(t *testing.T) {
				w, p := crowdedPath(t, b, narrow, 100, narrow.Rate, size)
				c := w.measureCrowd(p, 10*time.Second, measured)
				if t.Log(c); c.use < 0.9 || c.p50 > 30*time.Millisecond {
					t.Error("want 90 %, and a queue of 30 ms")
				}
			})
		}
	}
}

// narrow is a path of 1 Mbit/s with a queue of 100 ms.
var narrow = simnet.Path{Delay: 10 * time.Millisecond, Rate: 125_000, Queue: 100 * time.Millisecond}

// TestOverrated sends more than the narrow path carries, by a budget that is several times as much. The rate
// yields, so that the session lives, most of what is sent arrives, and the path is used all the same.
func TestOverrated(t *testing.T) {
	for _, b := range []dnptest.Behaviour{dnptest.Cpp(), dnptest.Java()} {
		for _, times := range []int{2, 4, 8} {
			for _, size := range []int{0, 1300} {
				if *talks < 20 && times != 8 {
					continue
				}
				t.Run(fmt.Sprintf("%s/budget=%d/size=%d", b.Name, times, size), func(t *testing.T) {
					w, p := crowdedPath(t, b, narrow, 300, times*narrow.Rate, size)
					c := w.measureCrowd(p, 20*time.Second, 20*time.Second)
					if t.Log(c); c.use < 0.85 || c.p50 > 40*time.Millisecond || c.lost > 160 {
						t.Error("want 85 %, a queue of 40 ms, and 8 datagrams lost in a second at most")
					}
				})
			}
		}
	}
}

// TestRateYields narrows the path of a client that sends nothing, while it is sent values by a budget of four times
// what the path will carry. Within 20 seconds the rate has yielded.
func TestRateYields(t *testing.T) {
	slow := dnptest.Cpp()
	slow.Name, slow.Tick = "10 frames", 100*time.Millisecond
	lossy, far := narrow, narrow
	lossy.Loss, lossy.Jitter, lossy.Duplicate = 0.3, 10*time.Millisecond, 0.05
	far.Delay = 100 * time.Millisecond
	for _, tt := range []struct {
		name string
		why  string
		path simnet.Path
		use  float64 // least share of the rate
		lost int     // most datagrams
	}{
		{"narrow", "a narrow path is used, and loses little", narrow, 0.8, 100},
		{"lossy", "a third is lost whatever the rate is, and the rest is used", lossy, 0.1, 600},
		{"far", "the longer way looks like a queue at first", far, 0.2, 100},
	} {
		for _, b := range []dnptest.Behaviour{dnptest.Cpp(), dnptest.Java(), slow} {
			if *talks < 20 && b.Name == "java" {
				continue
			}
			t.Run(tt.name+"/"+b.Name, func(t *testing.T) {
				w, p := crowdedPath(t, b, simnet.Path{Delay: 10 * time.Millisecond}, 100, 4*narrow.Rate, 0)
				w.net.Run(20 * time.Second)
				w.net.SetPath(tt.path)
				w.net.Run(20 * time.Second)
				c := w.measureCrowd(p, 0, 10*time.Second)
				if t.Log(c); c.use < tt.use || c.lost > tt.lost || c.p50 > 80*time.Millisecond {
					t.Errorf("%s: want %.0f %%, and %d lost", tt.why, 100*tt.use, tt.lost)
				}
			})
		}
	}
}

// TestRateStays loses datagrams whatever the rate is, and wants the budget to be used all the same.
func TestRateStays(t *testing.T) {
	for _, frame := range []time.Duration{16 * time.Millisecond, 33 * time.Millisecond} {
		for _, size := range []int{0, 1300} {
			b := dnptest.Cpp()
			b.Tick = frame
			w, p := crowdedPath(t, b, simnet.Path{Delay: 20 * time.Millisecond}, 200, 2*narrow.Rate, size)
			w.net.Run(10 * time.Second)
			w.net.SetPath(simnet.Path{Loss: 0.3, Delay: 15 * time.Millisecond, Jitter: 10 * time.Millisecond, Duplicate: 0.05})
			c := w.measureCrowd(p, 0, 10*time.Second)
			t.Logf("frames of %v, messages of %d bytes: %.0f %% of the budget is used", frame, size, 100*c.sent/2)
			if c.sent < 1 {
				t.Error("want half of it")
			}
		}
	}
}

// A crowd is how a narrow path was used.
type crowd struct {
	sent                    float64 // share of the rate that was sent
	use                     float64 // and that the client had use of
	messages, repeats, lost int
	p50, p99                time.Duration // of the queue
}

func (c crowd) String() string {
	return fmt.Sprintf("%.0f %% of the rate is of use, %d messages, %d repeats, %d datagrams lost; queue p50 %v, p99 %v", 100*c.use, c.messages, c.repeats, c.lost, c.p50, c.p99)
}

// measureCrowd measures a path after some time.
func (w *world) measureCrowd(p *player, after, measured time.Duration) (c crowd) {
	w.net.Run(after)
	if len(p.Links()) != len(w.server.sources) {
		w.Fatalf("%d links stand after %v, want %d; client %q", len(p.Links()), after, len(w.server.sources), p.Reason())
	}
	var backlog []time.Duration
	w.net.Every(time.Millisecond, func() bool {
		backlog = append(backlog, w.net.Backlog(serverAddr, p.addr))
		return len(backlog) < int(measured/time.Millisecond)
	})
	stats := w.server.e.Stats()
	before, got, repeats, lost := *stats, p.want.next, p.Stats.Repeats, w.net.Stats().Lost
	w.net.Run(measured)
	if p.ended() || p.wrong != "" {
		w.Fatalf("client %q, server %v, %s", p.Reason(), p.remote().reason, p.wrong)
	}
	c.messages, c.repeats, c.lost = p.want.next-got, p.Stats.Repeats-repeats, w.net.Stats().Lost-lost
	sent := int(stats.BytesOut-before.BytesOut) + 28*int(stats.DatagramsOut-before.DatagramsOut)
	c.sent = float64(sent) / float64(narrow.Rate) / measured.Seconds()
	c.use = float64(sent-c.repeats*(p.want.more+35)-c.lost*1228) / float64(narrow.Rate) / measured.Seconds()
	slices.Sort(backlog)
	c.p50, c.p99 = backlog[len(backlog)/2], backlog[len(backlog)*99/100]
	return c
}

// crowdedPath returns a world in which the values of 100 states, changed 200 times a second, and messages of a size are
// three times as much as the narrow path carries.
func crowdedPath(t *testing.T, b dnptest.Behaviour, path simnet.Path, states, budget, size int) (*world, *player) {
	cfg := configFor(b)
	cfg.BytesPerSecond = budget
	w := newWorld(t, *seed, path, cfg)
	for i := range states {
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
