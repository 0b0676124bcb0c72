package sessionlog_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/internal/simnet"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/sessionlog/memlog"
)

// A desk is one edge with one client, and a log whose answers a test may choose.
type desk struct {
	*testing.T
	net   *simnet.Net
	store *memlog.Store
	ep    *dnp.Endpoint
	s     *sessionlog.Session
	conn  *dnp.Conn
	heard []string
	last  sessionlog.Action // that was heard
	out   recorder
	held  []func() // answers of the log, which wait if it is not nil
}

// newDesk returns a desk whose session is open.
func newDesk(t *testing.T) *desk {
	d := &desk{T: t, net: simnet.New(1)}
	d.store = memlog.New(memlog.Config{Schedule: d.net.Schedule, Rand: d.net.Rand()})
	ep, err := dnp.New(dnp.Config{Listen: true, Logged: true, Probe: dnp.ProbeNone, Rand: rand.New(rand.NewPCG(1, 1))})
	if err != nil {
		t.Fatal(err)
	}
	d.ep = ep
	ep.Receive(d.net.Now(), vip, []byte{0, 1, 0, 0, 0}, sink{})
	d.conn, _ = ep.Conn(vip)
	d.s = sessionlog.Open(d.config("a"), "log", d.conn, sessionlog.Info{ID: sessionlog.ID{1}, Addr: vip})
	d.run(100 * time.Millisecond)
	return d
}

func (d *desk) config(node string) sessionlog.Config {
	return sessionlog.Config{Node: node, Rand: rand.New(rand.NewPCG(uint64(len(d.heard)), uint64(node[0])))}
}

// run lets time pass.
func (d *desk) run(t time.Duration) {
	end := d.net.Elapsed() + t
	d.net.Every(5*time.Millisecond, func() bool {
		now := d.net.Now()
		for _, ev := range d.ep.Advance(now, &d.out) {
			d.s.Handle(now, &ev)
		}
		for _, a := range d.s.Advance(now) {
			s := d.s
			switch a.Kind {
			case sessionlog.ActionAppend:
				d.store.Append([]sessionlog.Write{a.Write}, func(_ int, x sessionlog.Answer) { d.answer(s, x) })
			case sessionlog.ActionRead:
				d.store.Read(a.Log, func(x sessionlog.Answer) { d.answer(s, x) })
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

// want says what must have happened since the last want, and why.
func (d *desk) want(why string, kinds ...string) {
	d.Helper()
	if fmt.Sprint(d.heard) != fmt.Sprint(kinds) {
		d.Fatalf("%s: heard %v, want %v", why, d.heard, kinds)
	}
	d.heard = nil
}

// A recorder counts what is sent.
type recorder struct {
	sink
	sent int
}

func (r *recorder) Send(netip.AddrPort, []byte) { r.sent++ }

// A sink is a network that loses everything.
type sink struct{}

func (sink) Datagram(size int) []byte    { return make([]byte, 0, size) }
func (sink) Send(netip.AddrPort, []byte) {}

// TestLostLog is a log that loses what it had confirmed.
func TestLostLog(t *testing.T) {
	d := newDesk(t)
	d.want("the session is open", "opened")
	_ = d.conn.Send([]byte("x"), 0)
	d.run(time.Second)
	d.store.Wipe("log", 1)
	_ = d.conn.Send([]byte("y"), 0)
	d.run(5 * time.Second)
	d.want("a log that is shorter than it was may be an old leader's")
	d.run(10 * time.Second)
	d.want("one that stays so has lost writes, and nothing is guessed", "uncertain")
	if d.conn.Established() {
		t.Error("the connection goes on")
	}
}

// TestOpenTwice is a client that starts again at an address whose session lives, and
// at one whose session ended.
func TestOpenTwice(t *testing.T) {
	d := newDesk(t)
	d.heard = nil
	first, conn := d.s, d.conn
	other := newDesk(t)
	d.s = sessionlog.Open(d.config("b"), "log", other.conn, sessionlog.Info{ID: sessionlog.ID{2}, Addr: vip})
	d.run(time.Second)
	d.want("a session that lives is not replaced, whoever seems to connect", "elsewhere")
	d.s = first
	conn.Close(dnp.CloseRestarted)
	d.run(time.Second)
	d.want("its owner can end it", "ended")
	third := newDesk(t)
	d.s = sessionlog.Open(d.config("c"), "log", third.conn, sessionlog.Info{ID: sessionlog.ID{3}, Addr: vip})
	d.run(time.Second)
	d.want("then another may begin", "opened")
	if d.s.Epoch() != 2 {
		t.Errorf("epoch %d, want 2: the first owner is fenced", d.s.Epoch())
	}
}

// TestTwoAttempts is two workers of an edge that take the same session over. The write of
// one is not the other's.
func TestTwoAttempts(t *testing.T) {
	d := newDesk(t)
	d.want("the session is open", "opened")
	var heirs []*desk
	for i := range 2 {
		h := newDesk(t)
		h.heard, h.store, h.net = nil, d.store, d.net
		h.conn.Abandon()
		h.s = sessionlog.Adopt(sessionlog.Config{Node: "b", Rand: rand.New(rand.NewPCG(uint64(i), 9))}, "log")
		h.run(50 * time.Millisecond)
		h.want("there is a session", "found")
		h.s.Claim()
		heirs = append(heirs, h)
	}
	first, second := heirs[0], heirs[1]
	first.held = make([]func(), 0, 1)
	first.run(50 * time.Millisecond)
	second.run(50 * time.Millisecond)
	second.want("it adopts what the first one has", "adopted")
	first.release()
	first.run(50 * time.Millisecond)
	first.want("it was its own until then", "adopted", "lost")
	if a, b := first.s.Epoch(), second.s.Epoch(); a != 2 || b != 3 {
		t.Errorf("the epochs are %d and %d, want 2 and 3", a, b)
	}
}
