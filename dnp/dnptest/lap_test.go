package dnptest_test

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

var allLaps = flag.Bool("laps", false, "play every lap scenario with every library (a minute)")

const lapSize = 65535

// A lapRun sends numbered messages to one client over some laps, and counts by their content what the
// client makes of them.
type lapRun struct {
	testing.TB
	net    *simnet.Net
	addr   netip.AddrPort // of the Endpoint
	e      *dnp.Endpoint
	conn   *dnp.Conn
	client *dnptest.Client
	plan   lapPlan
	buf    []byte

	give, sent, limit uint64 // content: to be queued next, to be sent for the first time next, the end
	queued            uint64
	looking           bool // for a moment in which nothing is under way

	want                       uint64 // content that the client has to get next
	stale, lost, doubled       int
	closes, moves, connections int
}

// A lapPlan is what happens in a lapRun.
type lapPlan struct {
	name    string
	short   string                 // the libraries that the short form of the test plays it with
	loss    func(n uint64) float64 // while message n is the next of the client
	dup     float64
	acks    int // so many first acknowledgements of the client get lost
	jitter  time.Duration
	pause   time.Duration // between two messages; 0 keeps messages waiting all the time
	move    uint64        // take the session over each time that so many messages were sent; 0 for never
	forgets bool          // the rule is off
	closes  int           // at least
	never   bool          // no close is needed
	dials   bool          // the Endpoint is the client of a server on a library
}

func before(n, from, to uint64) bool { return from <= n%lapSize && n%lapSize < to }

// lapPlans lose datagrams in each lap, or only in the first.
func lapPlans() []lapPlan {
	window := func(from, to uint64, share float64) func(uint64) float64 {
		return func(n uint64) float64 {
			if before(n, from, to) {
				return share
			}
			return 0
		}
	}
	first := func(from, to uint64, share float64) func(uint64) float64 {
		return func(n uint64) float64 {
			if from <= n && n < to {
				return share
			}
			return 0
		}
	}
	bursts := func(n uint64) float64 {
		if n%5000 < 40 {
			return 0.4
		}
		return 0
	}
	return []lapPlan{
		{name: "early, taken over", short: "cpp java python", loss: window(0, 1500, 0.05), move: 20_000, closes: 2},
		{name: "bursts, paced", short: "java", loss: bursts, pause: 6 * time.Millisecond, closes: 2},
		{name: "only probes", short: "cpp", loss: first(0, 0, 0), acks: 2, never: true},
		{name: "clean", loss: first(0, 0, 0), never: true},
		{name: "early", loss: first(0, 3000, 0.05), closes: 1},
		{name: "middle", loss: window(30_000, 31_000, 0.05), closes: 2},
		{name: "late", loss: window(63_000, 65_000, 0.05), closes: 2},
		{name: "bursts", loss: bursts, closes: 2},
		{name: "always", loss: first(0, 1<<62, 0.01), closes: 3},
		{name: "always, taken over, paced", loss: first(0, 1<<62, 0.01), move: 7000, pause: 3 * time.Millisecond, closes: 3},
		{name: "doubled", loss: first(0, 0, 0), dup: 0.001, jitter: time.Millisecond, closes: 3},
	}
}

func newLapRun(t testing.TB, seed uint64, b dnptest.Behaviour, plan lapPlan, laps float64) *lapRun {
	t.Helper()
	r := &lapRun{TB: t, net: simnet.New(seed), addr: serverAddr, plan: plan, limit: uint64(laps * lapSize)}
	b.ReadsOnTick, b.Tick = false, 5*time.Millisecond
	r.e = r.endpoint()
	r.setPath(0)
	if plan.dials {
		r.addr = netip.MustParseAddrPort("10.0.1.1:4000")
		r.listen(b)
		r.dial()
	} else {
		r.connect(b)
	}
	r.net.Attach(r.addr, r)
	return r
}

func (r *lapRun) endpoint() *dnp.Endpoint {
	e, err := dnp.New(dnp.Config{Listen: !r.plan.dials, Rand: rand.New(rand.NewPCG(1, uint64(r.net.Elapsed())))})
	if err != nil {
		r.Fatal(err)
	}
	return e
}

// connect makes an object for a new connection, as a program of the Python library must.
func (r *lapRun) connect(b dnptest.Behaviour) {
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 1, 1}), uint16(4000+r.connections))
	r.connections++
	r.client = dnptest.NewClient(dnptest.Config{
		Behaviour: b, Server: serverAddr,
		Send: func(d []byte) {
			if d[0] == byte(wire.CommandReliableAck) && r.plan.acks > 0 {
				r.plan.acks--
				return
			}
			r.net.Send(addr, serverAddr, d)
		},
		App: dnptest.App{
			Message: r.message,
			Closed:  func(string) { r.net.Schedule(time.Millisecond, func() { r.connect(b) }) },
		},
	})
	r.net.Attach(addr, r.client)
	r.client.Connect(r.net.Now())
	r.net.Wake(addr)
}

// listen makes a server on a library.
func (r *lapRun) listen(b dnptest.Behaviour) {
	r.client = dnptest.NewClient(dnptest.Config{
		Behaviour: b, Listen: true,
		Send: func(d []byte) { r.net.Send(serverAddr, r.addr, d) },
		App:  dnptest.App{Message: r.message},
	})
	r.net.Attach(serverAddr, r.client)
}

// dial connects the Endpoint to it.
func (r *lapRun) dial() {
	if _, err := r.e.Connect(r.net.Now(), serverAddr); err != nil {
		r.Fatal(err)
	}
	r.net.Wake(r.addr)
}

func (r *lapRun) message(m dnptest.Message) {
	switch n := binary.LittleEndian.Uint64(m.Data); {
	case n == r.want:
		r.want++
	case n > r.want:
		r.lost += int(n - r.want)
		r.want = n + 1
	case r.want-n > lapSize/2:
		r.stale++
	default:
		r.doubled++
	}
	if r.want%100 == 0 {
		r.setPath(r.plan.loss(r.want))
	}
}

func (r *lapRun) setPath(loss float64) {
	r.net.SetPath(simnet.Path{Loss: loss, Delay: time.Millisecond, Jitter: r.plan.jitter, Duplicate: r.plan.dup})
}

func (r *lapRun) Datagram(int) []byte {
	if r.buf == nil {
		r.buf = make([]byte, 0, 2048)
	}
	return r.buf
}

func (r *lapRun) Receive(now time.Time, from netip.AddrPort, p []byte) {
	r.handle(r.e.Receive(now, from, p, sender{r}))
}

func (r *lapRun) Advance(now time.Time) { r.handle(r.e.Advance(now, sender{r})) }

func (r *lapRun) NextTimeout() (time.Time, bool) { return r.e.NextTimeout() }

// A sender sends what the Endpoint does. ConnectionClose is not lost, because libraries do not notice that.
type sender struct{ *lapRun }

func (s sender) Send(to netip.AddrPort, p []byte) {
	if p[0] == byte(wire.CommandConnectionClose) {
		s.setPath(0)
		defer s.setPath(s.plan.loss(s.want))
	}
	s.net.Send(s.addr, to, p)
}

func (r *lapRun) handle(events []dnp.Event) {
	for i := range events {
		switch ev := &events[i]; ev.Kind {
		case dnp.EventConnected:
			r.conn, r.looking, r.queued = ev.Conn, false, 0
			r.give = r.sent // what was not sent is sent to the new connection
			if r.plan.forgets {
				dnp.PeerForgets(r.conn)
			}
			r.feed()
		case dnp.EventClosed:
			if ev.Conn != r.conn {
				continue
			}
			if ev.Reason != dnp.CloseRecycle {
				r.Fatalf("%v: the connection ended: %v; client has %d of %d sent, %+v", r.net.Elapsed(), ev.Reason, r.want, r.sent, r.client.Stats)
			}
			r.conn = nil
			r.closes++
			if r.plan.dials {
				r.net.Schedule(time.Millisecond, r.dial)
			}
		case dnp.EventSent:
			r.sent, r.queued = ev.Token, r.queued-1
			r.feed()
			if r.plan.move > 0 && r.sent%r.plan.move == 0 {
				r.net.Schedule(0, r.move)
			}
		case dnp.EventLap:
			if !dnp.LapNear(ev.Conn) {
				r.Errorf("%v: the event is too early", r.net.Elapsed())
			}
			r.looking = true
		}
	}
}

// feed queues messages.
func (r *lapRun) feed() {
	for r.plan.pause == 0 && r.conn != nil && r.give < r.limit && r.queued < 20 {
		r.send()
	}
}

func (r *lapRun) send() {
	if err := r.conn.Send(binary.LittleEndian.AppendUint64(nil, r.give), r.give+1); err != nil {
		return // it is closing
	}
	r.give++
	r.queued++
}

// move continues the session elsewhere.
func (r *lapRun) move() {
	if r.conn == nil {
		return
	}
	snapshot, addr := r.conn.AppendSnapshot(nil), r.conn.Addr()
	e := r.endpoint()
	conn, err := e.Restore(r.net.Now(), addr, snapshot, func(uint64) *dnp.Source { return nil })
	if err != nil {
		r.Fatal(err)
	}
	r.e, r.conn, r.looking = e, conn, dnp.LapNear(conn)
	r.moves++
	r.net.Wake(r.addr)
}

// tick does what an owner does from time to time: it sends a message, and closes the connection of a client that
// may be stale soon in a moment in which nothing is under way.
func (r *lapRun) tick() bool {
	if r.conn != nil && r.looking {
		if _, idle := r.e.Traffic(r.conn); idle {
			r.conn.Close(dnp.CloseRecycle)
			r.looking = false
		}
	}
	if r.plan.pause > 0 && r.conn != nil && r.give < r.limit && r.queued < 100 {
		r.send()
	}
	r.net.Wake(r.addr)
	return true
}

func (r *lapRun) run() {
	pause := r.plan.pause
	if pause == 0 {
		pause = 100 * time.Millisecond
	}
	r.net.Every(pause, r.tick)
	r.net.RunUntil(3*time.Hour, func() bool { return r.want == r.limit })
	r.lost += int(r.limit - r.want)
}

// TestLaps: over three laps of numbers no message comes a lap late instead of the true one, and none gets lost,
// wherever datagrams get lost, and whichever node has the session. Without repeats the connection stays.
func TestLaps(t *testing.T) {
	for _, b := range []dnptest.Behaviour{dnptest.Cpp(), dnptest.Java(), dnptest.Python(), dnptest.Engine()} {
		for i, plan := range lapPlans() {
			if !*allLaps && !strings.Contains(plan.short, b.Name) {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s", b.Name, plan.name), func(t *testing.T) {
				r := newLapRun(t, *seed+uint64(i), b, plan, 3.1)
				r.run()
				r.report(t)
				if r.stale+r.lost+r.doubled > 0 {
					t.Errorf("%d stale, %d lost, %d doubled messages; want none", r.stale, r.lost, r.doubled)
				}
				if r.closes < plan.closes || plan.never && r.closes > 0 {
					t.Errorf("%d connections were closed, want at least %d, and none without repeats", r.closes, plan.closes)
				}
				if plan.move > 0 && r.moves == 0 {
					t.Error("the session was not taken over")
				}
				if plan.acks > 0 && r.client.Stats.Stale != 3 {
					t.Errorf("the client took %d no-ops of a lap before, want one in each lap", r.client.Stats.Stale)
				}
			})
		}
	}
}

func (r *lapRun) report(t *testing.T) {
	t.Logf("%v of play: %d messages, %d closes, %d takeovers, %d stale, %d lost, %d doubled", r.net.Elapsed().Round(time.Second),
		r.want, r.closes, r.moves, r.stale, r.lost, r.doubled)
}

// TestLapsOfClient: a client of this project keeps the rule towards a server on a library.
func TestLapsOfClient(t *testing.T) {
	behaviours := []dnptest.Behaviour{dnptest.Cpp(), dnptest.Java()}
	if !*allLaps {
		behaviours = behaviours[:1]
	}
	for _, b := range behaviours {
		for _, forgets := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/forgets=%v", b.Name, forgets), func(t *testing.T) {
				plan := lapPlans()[0]
				plan.move, plan.dials, plan.forgets = 0, true, forgets
				r := newLapRun(t, *seed, b, plan, 2.1)
				r.run()
				r.report(t)
				if wrong := r.stale + r.lost + r.doubled; (wrong > 0) != forgets {
					t.Errorf("%d messages are wrong with the rule %v", wrong, !forgets)
				}
			})
		}
	}
}

// TestLapsWithoutRule shows what happens to the libraries if a server knows nothing of what they keep.
func TestLapsWithoutRule(t *testing.T) {
	behaviours := []dnptest.Behaviour{dnptest.Cpp(), dnptest.Java(), dnptest.Python()}
	if !*allLaps {
		behaviours = behaviours[:1]
	}
	for _, b := range behaviours {
		t.Run(b.Name, func(t *testing.T) {
			plan := lapPlans()[0]
			plan.move, plan.forgets = 0, true
			r := newLapRun(t, *seed, b, plan, 2.1)
			r.run()
			r.report(t)
			if r.stale == 0 || r.stale != r.lost {
				t.Errorf("%d stale messages instead of %d true ones; the model has lost the fault of the library", r.stale, r.lost)
			}
		})
	}
}
