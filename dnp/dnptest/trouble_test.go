package dnptest_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

// configFor returns the Config of a listener for this client.
func configFor(b dnptest.Behaviour) dnp.Config { return dnp.Config{Profile: b.Profile} }

func paths() []simnet.Path {
	var all []simnet.Path
	for _, loss := range []float64{0, 0.05, 0.3} {
		for _, jitter := range []time.Duration{0, 50 * time.Millisecond} {
			for _, dup := range []float64{0, 0.05} {
				all = append(all, simnet.Path{Loss: loss, Delay: 10 * time.Millisecond, Jitter: jitter, Duplicate: dup})
			}
		}
	}
	return all
}

// TestTrouble lets an Endpoint and every implementation exchange messages, long
// ones among them, links from both sides and values, over every kind of path.
// Messages arrive once and in order, or the connection ends. At 5 % loss and less it
// must not end.
func TestTrouble(t *testing.T) {
	for _, b := range dnptest.Presets() {
		for i, path := range paths() {
			name := fmt.Sprintf("%s/loss=%v,jitter=%v,dup=%v", b.Name, path.Loss, path.Jitter, path.Duplicate)
			t.Run(name, func(t *testing.T) { trouble(t, *seed+uint64(i), b, path, configFor(b)) })
		}
	}
}

// TestPatience lets both sides wait a minute before they give up, so that all messages
// have to arrive at 30 % loss.
func TestPatience(t *testing.T) {
	for _, b := range dnptest.Presets() {
		for _, jitter := range []time.Duration{0, 50 * time.Millisecond} {
			for i := range uint64(5) {
				t.Run(fmt.Sprintf("%s/jitter=%v/%d", b.Name, jitter, i), func(t *testing.T) {
					b.GiveUp = time.Minute
					cfg := configFor(b)
					cfg.ReliableTimeout = time.Minute
					cfg.Probe = dnp.ProbeNone
					trouble(t, *seed+i, b, simnet.Path{Loss: 0.3, Delay: 10 * time.Millisecond, Jitter: jitter, Duplicate: 0.05}, cfg)
				})
			}
		}
	}
}

func trouble(t *testing.T, seed uint64, b dnptest.Behaviour, path simnet.Path, cfg dnp.Config) {
	w := newWorld(t, seed, path, cfg)
	src := []*dnp.Source{w.server.addSource("a"), w.server.addSource("b"), w.server.addSource("c")}
	p := w.addPlayer(b)
	p.messages(200, 200)
	p.start(15)
	var own *dnptest.Link
	n := uint32(0)
	w.net.Every(20*time.Millisecond, func() bool {
		n++
		change(src[n%3], int(n/3)%3, n)
		w.net.Wake(serverAddr)
		if own == nil && p.Phase() == dnptest.Connected && n > 100 && (p.Queued() == 0 || !b.DropsTail) {
			own, _ = p.Offer(w.net.Now(), newState(t, 5, 5), []byte("mine"), false)
		}
		if own != nil && own.Phase == dnptest.LinkIsUp {
			p.Set(own, int(n%2), binary.LittleEndian.AppendUint32(nil, n))
		}
		w.net.Wake(p.addr)
		return n < 1000 || own == nil
	})
	done := w.net.RunUntil(4*time.Minute, func() bool { return p.ended() || p.done() && n >= 1000 && own != nil })
	w.net.Run(12 * time.Second)
	if p.wrong != "" {
		t.Fatal(p.wrong)
	}
	r := p.remote()
	hello := cfg.Profile == wire.Spec && cfg.Probe != dnp.ProbeNone // three tries, and the first may overtake the accept
	if r == nil && (path.Loss >= 0.3 || hello && path.Loss > 0) && p.Phase() == dnptest.Closed {
		t.Logf("never proven: client %q", p.Reason())
		return
	}
	if r == nil {
		t.Fatalf("the server has no connection with the client: %v %q", p.Phase(), p.Reason())
	}
	if p.ended() {
		if path.Loss < 0.3 && !(hello && path.Loss > 0) { // its first commands have four tries left after the proof: 1 of 20 runs loses one
			t.Errorf("the connection ended: client %v (%s), server %v", p.Phase(), p.Reason(), r)
		}
		t.Logf("ended after %d and %d messages: client %q, server %v", p.want.next, r.want.next, p.Reason(), r.reason)
		return
	}
	if !done {
		t.Fatalf("client has %d of %d messages, server %d of %d", p.want.next, p.want.limit, r.want.next, r.want.limit)
	}
	for i, name := range []string{"a", "b", "c"} {
		if !p.equal(src[i], name) {
			t.Errorf("12 s after the last change %s differs", name)
		}
	}
	if own.Phase != dnptest.LinkIsUp && path.Loss >= 0.3 {
		t.Log("all five LinkUps of the client's own link were lost") // 0.3^5: one in 400
		return
	}
	if own.Phase != dnptest.LinkIsUp || r.own == nil {
		t.Fatalf("the client's own link is not up: %+v", own)
	}
	if path.Loss == 0 && path.Jitter == 0 && string(r.own.State().Value(0)) != string(own.State.Value(0)) {
		t.Error("the server has another value of the client's own state")
	}
	if p.Stats.Exceptions > 0 && b.LongMessage != dnptest.LongSticks || p.Stats.Stale > 0 { // Java raises at a trial
		t.Errorf("the client raised: %+v", p.Stats)
	}
}

// TestWraps sends messages past two wraps of the numbers in both directions.
// There is no loss on the 65,000 messages of a lap, except from 200 before each wrap to
// 200 after it.
//
// The server takes its peer for one that keeps no repeats, and KeepsRepeats is off. TestStale has it on and counts;
// TestLaps has the rule that prevents stale commands.
func TestWraps(t *testing.T) {
	for _, b := range dnptest.Presets() {
		for _, loss := range []float64{0.01, 0.05} {
			if loss < 0.05 && b.Name != "cpp" && b.Name != "spec" {
				continue // saves time; cpp and spec cover this loss
			}
			t.Run(fmt.Sprintf("%s/loss=%v", b.Name, loss), func(t *testing.T) {
				b.KeepsRepeats = false
				w, p := wraps(t, b, loss, 2)
				if p.wrong != "" {
					t.Fatal(p.wrong)
				}
				if p.ended() {
					t.Errorf("the connection ended: %q, %+v", p.Reason(), p.remote())
				}
				if !p.ended() && !p.done() {
					t.Fatalf("client has %d of %d messages, server %d of %d", p.want.next, p.want.limit, p.remote().want.next, p.remote().want.limit)
				}
				t.Logf("%v of play, ended %v %q, client %+v", w.net.Elapsed().Round(time.Second), p.ended(), p.Reason(), p.Stats)
			})
		}
	}
}

func wraps(t *testing.T, b dnptest.Behaviour, loss float64, laps int) (*world, *player) {
	calm := simnet.Path{Delay: time.Millisecond}
	storm := simnet.Path{Loss: loss, Delay: time.Millisecond, Jitter: 10 * time.Millisecond}
	w := newWorld(t, *seed, calm, configFor(b))
	b.ReadsOnTick, b.Tick = false, 5*time.Millisecond
	p := w.addPlayer(b)
	p.messages(laps*65535+2000, laps*65535+2000)
	p.toClient.long, p.toServer.long, p.give.long, p.want.long = false, false, false, false
	p.toClient.skips, p.want.skips = false, false
	w.server.peerForgets = true
	p.start(30)
	stormy := false
	near := func(n int) bool { n %= int(b.Modulus); return n > b.Modulus-200 || n < 200 }
	w.net.Every(20*time.Millisecond, func() bool {
		r := p.remote()
		if now := r != nil && p.want.next > 1000 && (near(p.want.next) || near(r.want.next)); now != stormy {
			stormy = now
			w.net.SetPath(map[bool]simnet.Path{true: storm, false: calm}[now])
		}
		return true
	})
	w.net.RunUntil(2*time.Hour, func() bool { return p.ended() || p.done() })
	return w, p
}

// TestEdgeProof: near the wrap the Endpoint takes the acknowledgement of a later number
// as proof that an earlier one was delivered. Here one number before the wrap does not
// arrive for seconds, while all others do. It must not count as delivered.
func TestEdgeProof(t *testing.T) {
	for _, b := range []dnptest.Behaviour{dnptest.Cpp(), dnptest.SpecText()} {
		for _, back := range []int{0, 5, 9, 10, 11} {
			t.Run(fmt.Sprintf("%s/back=%d", b.Name, back), func(t *testing.T) {
				cfg := configFor(b)
				cfg.Probe = dnp.ProbeNone // so that message n has number n
				w := newWorld(t, *seed, simnet.Path{Delay: time.Millisecond}, cfg)
				b.ReadsOnTick, b.Tick = false, time.Millisecond
				p := w.addPlayer(b)
				p.messages(0, b.Modulus+100)
				p.toClient.long, p.want.long = false, false
				head := wire.ReliableMessage{Seq: wire.Seq(b.Modulus - 1 - back)}.Append(nil)
				var since time.Duration
				w.server.lose = func(d []byte) bool {
					if !bytes.HasPrefix(d, head) {
						return false
					}
					if since == 0 {
						since = w.net.Elapsed()
					}
					return w.net.Elapsed() < since+5*time.Second
				}
				p.start(0)
				w.net.RunUntil(10*time.Minute, func() bool { return p.ended() || p.done() })
				if p.wrong != "" || !p.done() {
					t.Errorf("%d of %d messages, client %v, %s", p.want.next, p.want.limit, p.Phase(), p.wrong)
				}
			})
		}
	}
}

// TestStale leaves KeepsRepeats on. The client may process stale commands at most as
// often as the model counts them.
func TestStale(t *testing.T) {
	_, p := wraps(t, dnptest.Cpp(), 0.01, 2)
	if p.wrong != "" && p.Stats.Stale == 0 {
		t.Errorf("%s, and not because of stale repeats", p.wrong)
	}
	t.Logf("first wrong message: %q; client %+v", p.wrong, p.Stats)
}

// TestPassive links clients that never send anything unprompted, with each probe.
func TestPassive(t *testing.T) {
	for _, b := range dnptest.Presets() {
		for _, probe := range []dnp.Probe{dnp.ProbePing, dnp.ProbeHello, dnp.ProbeNone} {
			if b.Profile == wire.Spec && probe == dnp.ProbePing {
				continue // becomes ProbeHello
			}
			for _, loss := range []float64{0, 0.3} {
				t.Run(fmt.Sprintf("%s/probe=%d,loss=%v", b.Name, probe, loss), func(t *testing.T) { passive(t, b, probe, loss) })
			}
		}
	}
}

func passive(t *testing.T, b dnptest.Behaviour, probe dnp.Probe, loss float64) {
	linked, tries := 0, 20
	if loss == 0 {
		tries = 1
	}
	for try := range tries {
		cfg := configFor(b)
		cfg.Probe = probe
		w := newWorld(t, *seed+uint64(try), simnet.Path{Loss: loss, Delay: 10 * time.Millisecond, Jitter: 5 * time.Millisecond}, cfg)
		src := w.server.addSource("hp")
		p := w.addPlayer(b)
		p.start(0)
		w.net.Schedule(8*time.Second, func() { change(src, 0, 77); w.net.Wake(serverAddr) })
		w.net.Run(16 * time.Second)
		if p.Phase() == dnptest.Connected && p.equal(src, "hp") {
			linked++
			if l := p.LinkNamed("hp"); l.ID < 0x8000 {
				t.Errorf("LinkID %#x is in the range of the clients", l.ID)
			}
		} else if loss == 0 {
			t.Errorf("client %v %q, links %d", p.Phase(), p.Reason(), len(p.Links()))
		}
		if p.Stats.Exceptions > 0 {
			t.Errorf("the client raised: %+v", p.Stats)
		}
	}
	t.Logf("%d of %d linked", linked, tries)
	enough := tries
	switch {
	case loss > 0 && probe == dnp.ProbeHello:
		enough = tries * 2 / 10 // the bound on bytes out per byte in leaves two tries; 7 in 10 is the mean
	case loss > 0:
		enough = tries * 6 / 10 // 9 in 10 is the mean
	}
	if linked < enough {
		t.Errorf("only %d of %d passive clients are linked", linked, tries)
	}
}

// TestSilence: the server gives up a client that stops answering, and a client that
// restarts on the same port gets a new session.
func TestSilence(t *testing.T) {
	for _, b := range dnptest.Presets() {
		t.Run(b.Name, func(t *testing.T) {
			w := newWorld(t, *seed, simnet.Path{Delay: 10 * time.Millisecond}, configFor(b))
			src := w.server.addSource("hp")
			p := w.addPlayer(b)
			p.messages(0, 10)
			p.start(0)
			w.net.Run(5 * time.Second)
			if !p.done() || !p.equal(src, "hp") {
				t.Fatalf("not linked: %v", p.Phase())
			}
			p.Restart(w.net.Now())
			p.want.next = 0
			w.net.Wake(p.addr)
			if !w.net.RunUntil(20*time.Second, func() bool { return p.done() && p.equal(src, "hp") && p.remote().lost == 1 }) {
				t.Fatalf("after a restart: client %v %q, server %+v", p.Phase(), p.Reason(), p.remote())
			}
			p.Silence(true)
			if err := p.remote().conn.Send([]byte("are you there"), 0); err != nil {
				t.Fatal(err)
			}
			w.net.Wake(serverAddr)
			w.net.Run(12 * time.Second)
			if r := p.remote(); !r.closed || r.reason != dnp.CloseTimeout || len(slices.Collect(w.server.e.All)) != 0 {
				t.Errorf("the server keeps a silent client: %+v", r)
			}
		})
	}
}

// TestSameSeed: the same seed repeats a run exactly.
func TestSameSeed(t *testing.T) {
	run := func(seed uint64) uint64 {
		w := newWorld(t, seed, simnet.Path{Loss: 0.2, Delay: 5 * time.Millisecond, Jitter: 30 * time.Millisecond}, dnp.Config{})
		src := w.server.addSource("a")
		for _, b := range []dnptest.Behaviour{dnptest.Cpp(), dnptest.Java(), dnptest.Python(), dnptest.Engine()} {
			p := w.addPlayer(b)
			p.messages(50, 50)
			p.start(5)
		}
		n := uint32(0)
		w.net.Every(30*time.Millisecond, func() bool { n++; change(src, 0, n); w.net.Wake(serverAddr); return true })
		w.net.Run(20 * time.Second)
		return w.net.Hash()
	}
	if a, b := run(*seed), run(*seed); a != b {
		t.Errorf("same seed, traces %x and %x", a, b)
	}
	if run(*seed) == run(*seed+1) {
		t.Error("another seed, same trace")
	}
}
