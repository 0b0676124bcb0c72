package dnptest_test

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

// closePaths are 1 ms, 30 ± 10 ms, 100 ± 15 ms with 5 % loss and duplicates, and 30 ± 10 ms with 20 % loss.
var closePaths = []struct {
	name string
	simnet.Path
}{
	{"c0", simnet.Path{Delay: time.Millisecond}},
	{"c1", simnet.Path{Delay: 20 * time.Millisecond, Jitter: 20 * time.Millisecond}},
	{"c2", simnet.Path{Delay: 85 * time.Millisecond, Jitter: 30 * time.Millisecond, Loss: 0.05, Duplicate: 0.05}},
	{"c3", simnet.Path{Delay: 20 * time.Millisecond, Jitter: 20 * time.Millisecond, Loss: 0.2, Duplicate: 0.1}},
}

// closers is how many clients of each kind end in each of these tests.
const closers = 20

// endings runs a client on a path until it has been connected for some time, ends it, and returns how long the server
// takes to end the session, and why. The server changes a state and sends messages meanwhile.
func endings(t *testing.T, seed uint64, path simnet.Path, start func(w *world) (end func())) (time.Duration, dnp.CloseReason) {
	t.Helper()
	w := newWorld(t, seed, path, dnp.Config{})
	src := w.server.addSource("s")
	n := uint32(0)
	w.net.Every(20*time.Millisecond, func() bool {
		n++
		change(src, 0, n)
		w.net.Wake(serverAddr)
		return true
	})
	end := start(w)
	var r *remote
	if !w.net.RunUntil(20*time.Second, func() bool {
		for _, r = range w.server.remotes {
			return r.ups > 0
		}
		return false
	}) {
		return 0, dnp.ClosePeer // a client gives up where the path loses its first datagrams
	}
	w.net.Run(time.Duration(rand.New(rand.NewPCG(seed, 7)).IntN(1000)) * time.Millisecond)
	end()
	since := w.net.Elapsed()
	w.net.RunUntil(time.Minute, func() bool { return r.closed })
	return w.net.Elapsed() - since, r.reason
}

// TestLibraryCloses: a library sends its ConnectionClose once. Without loss the session ends two to three seconds
// later, whatever the path brings behind the Close.
func TestLibraryCloses(t *testing.T) {
	t.Parallel()
	for _, path := range closePaths[:2] {
		for _, b := range []dnptest.Behaviour{dnptest.Cpp(), dnptest.Java(), dnptest.Python(), dnptest.Engine()} {
			late, longest := 0, time.Duration(0)
			for i := range uint64(closers) {
				d, reason := endings(t, *seed+i, path.Path, func(w *world) func() {
					p := w.addPlayer(b)
					p.messages(500, 500)
					p.start(3)
					return func() { p.Close(w.net.Now()) }
				})
				longest = max(longest, d)
				if d > 3500*time.Millisecond || reason != dnp.ClosePeer {
					late++
				}
			}
			t.Logf("%s %s: %d of %d late, the longest took %v", path.name, b.Name, late, closers, longest)
			if late > 0 {
				t.Errorf("%s %s: %d of %d sessions end late; the longest took %v", path.name, b.Name, late, closers, longest)
			}
		}
	}
}

// A leaver is a client of ours.
type leaver struct {
	*server
	addr netip.AddrPort
	over bool
}

func (l *leaver) Send(to netip.AddrPort, p []byte) { l.w.net.Send(l.addr, to, p) }

func (l *leaver) Receive(now time.Time, from netip.AddrPort, p []byte) {
	l.answer(now, l.e.Receive(now, from, p, l))
}

func (l *leaver) Advance(now time.Time) { l.answer(now, l.e.Advance(now, l)) }

// answer accepts states and says something about each value.
func (l *leaver) answer(now time.Time, events []dnp.Event) {
	for i := range events {
		switch ev := &events[i]; ev.Kind {
		case dnp.EventLinkOffered:
			l.acceptOwn(&remote{}, ev)
		case dnp.EventUpdate:
			_ = ev.Conn.SendUnreliable([]byte("x")) // it may have ended
		case dnp.EventClosed:
			l.over = true
		}
	}
}

// TestLeaves: the session of a client of ours ends when that closes, not by a timeout, and the client waits for no more
// than a second.
func TestLeaves(t *testing.T) {
	t.Parallel()
	for _, path := range closePaths {
		late, longest, lingers := 0, time.Duration(0), time.Duration(0)
		for i := range uint64(2 * closers) {
			d, reason := endings(t, *seed+i, path.Path, func(w *world) func() {
				l := &leaver{addr: netip.MustParseAddrPort("10.0.1.0:4000")}
				e, err := dnp.New(dnp.Config{Rand: rand.New(rand.NewPCG(*seed, 3))})
				if err != nil {
					t.Fatal(err)
				}
				l.server = &server{w: w, e: e}
				w.players = append(w.players, &player{w: w, addr: l.addr})
				w.net.Attach(l.addr, l)
				c, err := e.Connect(w.net.Now(), serverAddr)
				if err != nil {
					t.Fatal(err)
				}
				w.net.Wake(l.addr)
				return func() {
					c.Close(dnp.CloseLocal)
					w.net.Wake(l.addr)
					begun := w.net.Elapsed()
					w.net.RunUntil(5*time.Second, func() bool { return l.over && !e.Leaving() })
					lingers = max(lingers, w.net.Elapsed()-begun)
					w.net.Detach(l.addr)
				}
			})
			longest = max(longest, d)
			if reason != dnp.ClosePeer {
				late++
			}
		}
		t.Logf("%s: %d of %d by another reason; the longest took %v, the client waited for %v at most", path.name, late, 2*closers, longest, lingers)
		if late > 0 || lingers > 1100*time.Millisecond {
			t.Errorf("%s: %d of %d sessions end by a timeout; the client waits for %v at most", path.name, late, 2*closers, lingers)
		}
	}
}

// TestKicks: a client that a server ends knows soon, although the server sends ConnectionClose without acknowledgement.
func TestKicks(t *testing.T) {
	t.Parallel()
	for _, path := range closePaths {
		late, longest := 0, time.Duration(0)
		for i := range uint64(2 * closers) {
			w := newWorld(t, *seed+i, path.Path, dnp.Config{})
			w.server.addSource("s")
			p := w.addPlayer(dnptest.Presets()[i%4])
			p.messages(0, 0)
			p.start(0)
			if !w.net.RunUntil(20*time.Second, func() bool { r := p.remote(); return r != nil && r.ups > 0 }) {
				continue // libraries give up where the path loses some of the first datagrams
			}
			p.remote().conn.Close(dnp.CloseKicked)
			w.net.Wake(serverAddr)
			since := w.net.Elapsed()
			if !w.net.RunUntil(2*time.Second, func() bool { return p.Phase() == dnptest.Closed }) {
				late++
			}
			longest = max(longest, w.net.Elapsed()-since)
		}
		t.Logf("%s: %d of %d late, the longest took %v", path.name, late, 2*closers, longest)
		if late > 0 {
			t.Errorf("%s: %d of %d clients do not know within 2 s that they were kicked", path.name, late, 2*closers)
		}
	}
}
