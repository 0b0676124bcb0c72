package sessionlog_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/simnet"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/sessionlog/memlog"
)

// A desk is one edge with one client, and a log whose answers a test may hold back.
type desk struct {
	*testing.T
	net   *simnet.Net
	store *memlog.Store
	log   sessionlog.Log // in place of store, if it is set
	ep    *dnp.Endpoint
	s     *sessionlog.Session
	conn  *dnp.Conn
	heard []string
	last  sessionlog.Action // of heard
	out   recorder
	held  []func() // answers of the log that wait; nil if none waits
}

// newDesk returns a desk whose session is open.
func newDesk(t *testing.T) *desk {
	d := &desk{T: t, net: simnet.New(1)}
	d.store = memlog.New(memlog.Config{Schedule: d.net.Schedule, Rand: d.net.Rand()})
	d.open()
	return d
}

// open opens the session.
func (d *desk) open() {
	ep, err := dnp.New(dnp.Config{Listen: true, Logged: true, Probe: dnp.ProbeNone, LivenessInterval: -1, Rand: rand.New(rand.NewPCG(1, 1))})
	if err != nil {
		d.Fatal(err)
	}
	d.ep = ep
	ep.Receive(d.net.Now(), vip, []byte{0, 1, 0, 0, 0}, sink{})
	d.conn, _ = ep.Conn(vip)
	d.s = sessionlog.Open(d.config("a"), "log", d.conn, sessionlog.Info{ID: sessionlog.ID{1}, Addr: vip})
	d.run(100 * time.Millisecond)
}

func (d *desk) config(node string) sessionlog.Config {
	return sessionlog.Config{Node: node, Rand: rand.New(rand.NewPCG(uint64(len(d.heard)), uint64(node[0])))}
}

// run lets time pass.
func (d *desk) run(t time.Duration) {
	end, log := d.net.Elapsed()+t, d.log
	if log == nil {
		log = d.store
	}
	d.net.Every(5*time.Millisecond, func() bool {
		now := d.net.Now()
		for _, ev := range d.ep.Advance(now, &d.out) {
			d.s.Handle(now, &ev)
		}
		for _, a := range d.s.Advance(now) {
			s := d.s
			switch a.Kind {
			case sessionlog.ActionAppend:
				log.Append(a.Write, func(x sessionlog.Answer) { d.answer(s, x) })
			case sessionlog.ActionRead:
				log.Read(a.Log, func(x sessionlog.Answer) { d.answer(s, x) })
			case sessionlog.ActionAdopted:
				d.heard = append(d.heard, fmt.Sprint(a.Kind))
				d.conn = s.Restore(now, d.ep, func(uint64) *dnp.Source { return nil })
			default:
				d.heard, d.last = append(d.heard, fmt.Sprint(a.Kind)), a
			}
		}
		return d.net.Elapsed() < end
	})
	d.net.Run(t)
}

// answer gives a session an answer of the log, unless answers wait.
func (d *desk) answer(s *sessionlog.Session, a sessionlog.Answer) {
	if d.held != nil {
		d.held = append(d.held, func() { s.Answer(d.net.Now(), a) })
		return
	}
	s.Answer(d.net.Now(), a)
}

// receive takes a datagram of the client.
func (d *desk) receive(p []byte) {
	for _, ev := range d.ep.Receive(d.net.Now(), vip, p, &d.out) {
		d.s.Handle(d.net.Now(), &ev)
	}
}

// want checks the actions since the last want, and says why they must be so.
func (d *desk) want(why string, kinds ...string) {
	d.Helper()
	if fmt.Sprint(d.heard) != fmt.Sprint(kinds) {
		d.Fatalf("%s: the session emits %v, want %v", why, d.heard, kinds)
	}
	d.heard = nil
}

// A recorder counts the datagrams that are sent.
type recorder struct {
	sink
	sent int
}

func (r *recorder) Send(netip.AddrPort, []byte) { r.sent++ }

// A sink is a network that loses everything.
type sink struct{}

func (sink) Datagram(size int) []byte    { return make([]byte, 0, size) }
func (sink) Send(netip.AddrPort, []byte) {}

// TestLostLog has a log that loses a write which it had confirmed.
func TestLostLog(t *testing.T) {
	d := newDesk(t)
	d.want("the session is open", "opened")
	_ = d.conn.Send([]byte("x"), 0)
	d.run(time.Second)
	d.store.Wipe("log", 1)
	_ = d.conn.Send([]byte("y"), 0)
	d.run(5 * time.Second)
	d.want("a log that is shorter than before may be the answer of a deposed leader")
	d.run(10 * time.Second)
	d.want("a log that stays shorter has lost writes", "uncertain")
	if d.conn.Established() {
		t.Error("the connection goes on")
	}
}

// TestTooLarge hands a session over whose checkpoint does not fit into one message of the log. The session
// ends, and the log says so, instead of trying the same write for ever.
func TestTooLarge(t *testing.T) {
	d := newDesk(t)
	d.want("the session is open", "opened")
	for n := range byte(17) { // as many as the game may leave, and one
		d.run(10 * time.Millisecond)
		d.receive(append([]byte{4, n, 0}, make([]byte, 64_000)...))
	}
	d.heard = nil
	d.s.HandOver("b")
	d.run(time.Second)
	d.s.Delivered(d.net.Now(), 17)
	d.run(time.Second)
	d.want("a write that is too large is final", "ended")
	if d.last.Reason != dnp.CloseTooLarge.String() {
		t.Errorf("it ends as %q", d.last.Reason)
	}
	d.s = sessionlog.Adopt(d.config("b"), "log")
	d.run(time.Second)
	d.want("no edge can take it over", "gone")
}

// TestHandsQueueOver hands a session over with messages that have no number yet, which come along
// while there is room for them.
func TestHandsQueueOver(t *testing.T) {
	for _, c := range []struct{ message, queued int }{{100_000, 5}, {500_000, 0}} {
		d := newDesk(t)
		for range 15 { // ten of which get a number, and are small
			if err := d.conn.Send([]byte("x"), 0); err != nil {
				t.Fatal(err)
			}
		}
		d.run(100 * time.Millisecond)
		for n := range byte(c.message / 50_000) {
			d.receive(append([]byte{4, n, 0}, make([]byte, 50_000)...))
			d.run(10 * time.Millisecond)
		}
		d.heard = nil
		d.s.HandOver("b")
		d.run(time.Second)
		if d.last.Lost != 5-c.queued {
			t.Errorf("with %d bytes that the game has not consumed the hand-over counts %d lost messages, want %d; %v", c.message, d.last.Lost, 5-c.queued, d.heard)
		}
		d.s = sessionlog.Adopt(d.config("b"), "log")
		d.run(100 * time.Millisecond)
		d.s.Claim()
		d.run(10 * time.Millisecond)
		_, sent := d.conn.NextNumbers()
		queued := int(sent) - 10 // those that go past the window, because the oldest command is sent again
		for range d.conn.QueuedTokens {
			queued++
		}
		if queued != c.queued {
			t.Errorf("with %d bytes that the game has not consumed %d messages without a number come along, want %d; %v", c.message, queued, c.queued, d.heard)
		}
	}
}

// TestOpenTwice has a client that connects again from an address whose session lives, and from one whose
// session has ended.
func TestOpenTwice(t *testing.T) {
	d := newDesk(t)
	d.heard = nil
	first, conn := d.s, d.conn
	other := newDesk(t)
	d.s = sessionlog.Open(d.config("b"), "log", other.conn, sessionlog.Info{ID: sessionlog.ID{2}, Addr: vip})
	d.run(time.Second)
	d.want("a request does not replace a session that lives", "elsewhere")
	d.s = first
	conn.Close(dnp.CloseRestarted)
	d.run(time.Second)
	d.want("its owner can end it", "ended")
	third := newDesk(t)
	d.s = sessionlog.Open(d.config("c"), "log", third.conn, sessionlog.Info{ID: sessionlog.ID{3}, Addr: vip})
	d.run(time.Second)
	d.want("another session may begin after the end", "opened")
	if d.s.Epoch() != 2 {
		t.Errorf("epoch %d, want 2: the first owner is fenced", d.s.Epoch())
	}
}

// TestTwoAttempts has two workers of one edge that adopt the same session. Neither may take the write of the
// other for its own.
func TestTwoAttempts(t *testing.T) {
	d := newDesk(t)
	d.want("the session is open", "opened")
	var successors []*desk
	for i := range 2 {
		h := newDesk(t)
		h.heard, h.store, h.net = nil, d.store, d.net
		h.conn.Abandon()
		h.s = sessionlog.Adopt(sessionlog.Config{Node: "b", Rand: rand.New(rand.NewPCG(uint64(i), 9))}, "log")
		h.run(50 * time.Millisecond)
		h.want("there is a session", "found")
		h.s.Claim()
		successors = append(successors, h)
	}
	first, second := successors[0], successors[1]
	first.held = make([]func(), 0, 1)
	first.run(50 * time.Millisecond)
	second.run(50 * time.Millisecond)
	second.want("the second worker finds the session of the first", "found")
	second.s.Claim()
	second.run(50 * time.Millisecond)
	second.want("the second worker adopts the session of the first", "adopted")
	first.release()
	first.run(50 * time.Millisecond)
	first.want("the first worker owned the session until then", "adopted", "lost")
	if a, b := first.s.Epoch(), second.s.Epoch(); a != 2 || b != 3 {
		t.Errorf("the epochs are %d and %d, want 2 and 3", a, b)
	}
}

// stop stops the edge before it gets the answer to its newest request; if taken, another edge adopts the
// session meanwhile. Then the edge goes on, while the answers to its next requests wait.
func (d *desk) stop(taken bool) {
	d.Helper()
	if len(d.held) == 0 {
		d.Fatal("the log was not asked")
	}
	if taken {
		entries := d.store.Entries("log")
		newest := entries[len(entries)-1]
		last, other := newest.Seq, "other"
		block := sessionlog.Block{Epoch: d.s.Epoch() + 1, Owner: 1, Number: 1, Previous: last, Adopt: &other}
		if k, err := sessionlog.ParseBlock(newest.Data); err != nil {
			d.Fatal(err)
		} else if k.Close != nil { // the client came back from the same port
			block.Open, block.Ckpt = true, &sessionlog.Checkpoint{Info: d.s.Info(), Node: other}
		}
		d.store.Append(sessionlog.Write{Log: "log", Expect: last, Data: block.Append(nil)}, func(a sessionlog.Answer) {
			if a.Verdict != fence.OK {
				d.Errorf("the adoption by the other edge is answered %v", a.Verdict)
			}
		})
		d.net.Run(30 * time.Millisecond)
	}
	d.out.sent = 0
	d.s.Revalidate()
	d.release()
	d.held = make([]func(), 0, 1)
	d.run(50 * time.Millisecond)
	if d.out.sent > 0 {
		d.Errorf("the edge sends %d datagrams before the log shows that it owns the session", d.out.sent)
	}
	d.release()
}

// release passes on the answers that wait.
func (d *desk) release() {
	answers := d.held
	d.held = nil
	for _, f := range answers {
		f()
	}
}

// TestStoppedOwner has an edge that was stopped during a write, or a read. The answer of the log does not say
// which edge owns the session after the stop.
func TestStoppedOwner(t *testing.T) {
	for _, taken := range []bool{true, false} {
		for _, reads := range []bool{false, true} {
			t.Run(fmt.Sprintf("taken %v, reads %v", taken, reads), func(t *testing.T) {
				d := newDesk(t)
				d.want("the session is open", "opened")
				_ = d.conn.Send([]byte("x"), 0)
				d.held = make([]func(), 0, 1)
				d.run(50 * time.Millisecond)
				if reads { // because the answer to the write is lost
					d.held = d.held[:0]
					d.s.Answer(d.net.Now(), sessionlog.Answer{Verdict: fence.Unknown})
					d.run(50 * time.Millisecond)
				}
				d.stop(taken)
				d.run(time.Second)
				d.resumed(taken)
			})
		}
	}
}

// TestStoppedTwice has an edge that was stopped, and again while the log takes the write that shows who owns the
// session. The answer does not say which edge owned it after the second stop.
func TestStoppedTwice(t *testing.T) {
	for _, taken := range []bool{true, false} {
		t.Run(fmt.Sprintf("taken %v", taken), func(t *testing.T) {
			d := newDesk(t)
			d.want("the session is open", "opened")
			_ = d.conn.Send([]byte("x"), 0)
			d.run(50 * time.Millisecond)
			d.s.Revalidate()
			d.held = make([]func(), 0, 1)
			d.run(50 * time.Millisecond)
			d.stop(taken)
			d.run(time.Second)
			d.resumed(taken)
		})
	}
}

// TestStoppedWithoutReads has an edge that was stopped while JetStream has no leader: the log takes writes, and
// answers no read.
func TestStoppedWithoutReads(t *testing.T) {
	d := newDesk(t)
	d.want("the session is open", "opened")
	d.store.Leaderless = true
	_ = d.conn.Send([]byte("x"), 0)
	d.run(50 * time.Millisecond)
	d.out.sent = 0
	d.s.Revalidate()
	d.run(time.Second)
	d.resumed(false)
}

// TestStoppedEnd has an edge that was stopped while it wrote the end of its session. After the stop the client
// may be back, at another edge.
func TestStoppedEnd(t *testing.T) {
	for _, taken := range []bool{true, false} {
		t.Run(fmt.Sprintf("taken %v", taken), func(t *testing.T) {
			d := newDesk(t)
			d.want("the session is open", "opened")
			d.conn.Close(dnp.CloseKicked)
			d.held = make([]func(), 0, 1)
			d.run(50 * time.Millisecond)
			d.stop(taken)
			d.run(time.Second)
			if taken {
				d.resumed(taken)
				return
			}
			d.want("the log shows that the end is the last write", "ended")
			if d.out.sent == 0 {
				d.Error("the client is not told of the end")
			}
		})
	}
}

// TestStoppedSuccessor has an edge that was stopped before it got the answer that it owns the session.
func TestStoppedSuccessor(t *testing.T) {
	for _, taken := range []bool{true, false} {
		t.Run(fmt.Sprintf("taken %v", taken), func(t *testing.T) {
			d := newDesk(t)
			d.want("the session is open", "opened")
			_ = d.conn.Send([]byte("x"), 0) // the successor must send it again
			d.run(50 * time.Millisecond)
			successor := newDesk(t)
			successor.heard = nil
			successor.store, successor.net = d.store, d.net
			successor.conn.Abandon()
			successor.s = sessionlog.Adopt(successor.config("b"), "log")
			successor.run(50 * time.Millisecond)
			successor.want("there is a session", "found")
			successor.s.Claim()
			successor.held = make([]func(), 0, 1)
			successor.run(50 * time.Millisecond)
			successor.stop(taken)
			successor.run(time.Second)
			if len(successor.heard) == 0 || successor.heard[0] != "adopted" {
				t.Fatalf("the successor emits %v, want adopted first: its write was stored", successor.heard)
			}
			successor.heard = successor.heard[1:]
			successor.resumed(taken)
		})
	}
}

// resumed checks what the edge did after it went on.
func (d *desk) resumed(taken bool) {
	d.Helper()
	if !taken {
		d.want("the edge still owns the session")
		if d.out.sent == 0 {
			d.Error("the edge sends nothing to its client")
		}
		return
	}
	d.want("the log shows that another edge owns the session", "lost")
	if d.out.sent > 0 {
		d.Errorf("the edge sent %d datagrams to the client of another edge", d.out.sent)
	}
	if d.conn != nil && d.conn.Established() {
		d.Error("the connection goes on")
	}
}

// TestUncertainNumbers checks that an edge which cannot adopt a session because of its last write reports
// who the session is and which numbers the log knows.
func TestUncertainNumbers(t *testing.T) {
	gap := sessionlog.Block{Changes: dnp.Changes{Sent: []dnp.SentCommand{{Number: 1000, Kind: dnp.SentMessage, Data: []byte("x")}}}, Acks: true}
	for _, c := range []struct {
		name  string
		last  func(previous uint64) []byte
		claim bool // the edge finds out only after it owns the session
	}{
		{"damaged", func(uint64) []byte { return []byte("junk") }, false},
		{"numbers that do not follow", func(previous uint64) []byte {
			gap.Epoch, gap.Owner, gap.Number, gap.Previous = 1, 1, 1, previous
			return gap.Append(nil)
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t)
			d.want("the session is open", "opened")
			for i := range 3 {
				command := binary.LittleEndian.AppendUint16([]byte{4}, uint16(i))
				for _, ev := range d.ep.Receive(d.net.Now(), vip, append(command, "said"...), &d.out) {
					d.s.Handle(d.net.Now(), &ev)
				}
			}
			for range 2 {
				if err := d.conn.Send([]byte("told"), 0); err != nil {
					t.Fatal(err)
				}
			}
			d.run(time.Second)
			received, sent := d.conn.NextNumbers()
			if received != 3 || sent != 2 {
				t.Fatalf("the next numbers are %d and %d, want 3 and 2", received, sent)
			}
			entries := d.store.Entries("log")
			tail := entries[len(entries)-1].Seq
			d.store.Append(sessionlog.Write{Log: "log", Expect: tail, Data: c.last(tail)}, func(sessionlog.Answer) {})
			d.net.Run(50 * time.Millisecond)

			successor := newDesk(t)
			successor.heard, successor.store, successor.net = nil, d.store, d.net
			successor.conn.Abandon()
			successor.s = sessionlog.Adopt(successor.config("b"), "log")
			successor.run(50 * time.Millisecond)
			if c.claim {
				successor.want("there is a session", "found")
				successor.s.Claim()
				successor.run(50 * time.Millisecond)
				successor.want("the edge adopts the session and cannot go on", "adopted", "uncertain")
			} else {
				successor.want("the log cannot be read to its end", "uncertain")
			}
			if a := successor.last; a.Received != received || a.Sent != sent {
				t.Errorf("the action has the numbers %d and %d, the log %d and %d", a.Received, a.Sent, received, sent)
			}
			if successor.last.Info.ID != d.s.Info().ID || successor.last.Info.Addr != vip {
				t.Errorf("the action names the session %+v", successor.last.Info)
			}
		})
	}
}

// TestOfferOfGoneState adopts a session with an offer in flight whose state is gone. The number of the offer
// must not stay a hole, at which the client would stop for ever.
func TestOfferOfGoneState(t *testing.T) {
	for _, long := range []bool{false, true} {
		d := newDesk(t)
		d.want("the session is open", "opened")
		if long { // the client shows that it knows command 10, so the offer's bytes are not kept
			for _, ev := range d.ep.Receive(d.net.Now(), vip, []byte{10, 0, 0, 0}, &d.out) {
				d.s.Handle(d.net.Now(), &ev)
			}
			d.run(50 * time.Millisecond)
			d.heard = nil
		}
		layout, err := netstate.NewLayout([]netstate.Value{{Type: 5}})
		if err != nil {
			t.Fatal(err)
		}
		state := d.ep.NewSource(dnp.SourceConfig{State: netstate.NewState(layout), Message: []byte("m"), Ref: 1})
		if err := d.conn.Link(state, true); err != nil {
			t.Fatal(err)
		}
		d.run(50 * time.Millisecond)
		if err := d.conn.Send([]byte("behind it"), 0); err != nil {
			t.Fatal(err)
		}
		d.run(50 * time.Millisecond)
		_, sent := d.conn.NextNumbers()
		if sent != 2 || d.conn.SpeaksLong() != long {
			t.Fatalf("the next number is %d, want 2; the client knows command 10: %v", sent, d.conn.SpeaksLong())
		}

		successor := newDesk(t)
		successor.heard, successor.store, successor.net = nil, d.store, d.net
		successor.conn.Abandon()
		successor.s = sessionlog.Adopt(successor.config("b"), "log")
		successor.run(50 * time.Millisecond)
		successor.s.Claim()
		successor.run(50 * time.Millisecond)
		successor.want("the other edge owns the session", "found", "adopted")
		if _, n := successor.conn.NextNumbers(); n != sent {
			t.Errorf("the next number of the successor is %d, want %d", n, sent)
		}
	}
}
