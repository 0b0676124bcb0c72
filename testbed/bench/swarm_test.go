//go:build linux

package bench

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/udp"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// TestSwarm links 300 clients to two states of a server that is not an edge, so that
// what the swarm counts can be counted beside it. A swarm with a pace counts the same.
func TestSwarm(t *testing.T) {
	t.Run("without a pace", func(t *testing.T) { testSwarm(t, func(*Swarm) error { return nil }) })
	t.Run("with a pace", func(t *testing.T) { testSwarm(t, func(w *Swarm) error { return w.Pace(time.Millisecond) }) })
}

func testSwarm(t *testing.T, pace func(*Swarm) error) {
	const clients, ticks = 300, 5
	c := Case{States: 2, Hz: 20, Clients: clients}
	s := newServer(t, newScript(&c))
	w, err := newSwarm(s.script, &Stack{Edges: []netip.AddrPort{s.socket.LocalAddr()}})
	if err != nil {
		t.Fatal(err)
	}
	if err := pace(w); err != nil {
		t.Fatal(err)
	}
	w.Start()
	defer w.Stop()
	w.Connect(clients)
	s.until("all links are up", func() bool { return w.linked.Load() == 2*clients && s.up == 2*clients })

	line := timeline{start: time.Now(), first: 1, period: time.Nanosecond} // every tick is due
	w.begin(line)
	win := &Window{}
	w.count(win)
	for n := uint32(1); n <= ticks; n++ {
		s.set(n)
		s.until("updates arrived", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return win.Updates == uint64(n)*2*clients
		})
	}
	w.sample()
	w.count(nil)
	if win.datagrams < clients*ticks || len(win.record) != int(win.datagrams) || win.bytes == 0 || win.Latency.Count() != win.Updates {
		t.Errorf("%d datagrams of %d bytes, %d recorded, %d latencies", win.datagrams, win.bytes, len(win.record), win.Latency.Count())
	}
	if win.staleness.Count() != 2*clients || w.carrier.overflows() != 0 {
		t.Errorf("%d links sampled, want %d; %d datagrams lost", win.staleness.Count(), 2*clients, w.carrier.overflows())
	}
	if len(s.addresses) != clients {
		t.Errorf("clients came from %d addresses, want %d", len(s.addresses), clients)
	}
}

// TestPace checks that a swarm with a pace knows when datagrams arrived, however late it reads them, and has read them before it
// asks what clients show. The goroutine of the swarm does not run.
func TestPace(t *testing.T) {
	c := Case{States: 1, Hz: 20, Clients: 1}
	s := newServer(t, newScript(&c))
	w, err := newSwarm(s.script, &Stack{Edges: []netip.AddrPort{s.socket.LocalAddr()}})
	if err == nil {
		err = w.Pace(time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer w.carrier.Close()
	seen := &arrivals{}
	w.Watch = seen
	to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 1, 0, 0}), w.socket().port)
	exact := func() bool {
		before, had := time.Now(), len(seen.at)
		s.socket.Writer().Send(to, append(s.socket.Writer().Datagram(3), byte(wire.CommandReliableAck), 0, 0))
		if err := s.socket.Writer().Flush(); err != nil {
			t.Fatal(err)
		}
		sent, shown := time.Now(), 0
		s.until("the swarm has read what was sent before it looks at the clients", func() bool {
			w.DoNow(func([]Client) { shown = len(seen.at) })
			return shown == had+1
		})
		at := seen.at[had]
		return !at.Before(before) && !at.After(sent)
	}
	// The kernel begins to note times a while after it was told to, and the wall clock may be set meanwhile.
	s.until("the time of arrival lies between the calls before and after the datagram was sent", exact)
}

// Arrivals notes when datagrams arrived.
type arrivals struct{ at []time.Time }

func (a *arrivals) Received(now time.Time, _ int, _ []byte)     { a.at = append(a.at, now) }
func (a *arrivals) Linked(_ time.Time, _ int, _ wire.LinkState) {}
func (a *arrivals) Updated(_ time.Time, _ int, _ []byte)        {}

// A server is an Endpoint with the states of a script.
type server struct {
	t         *testing.T
	script    *script
	socket    *udp.Socket
	endpoint  *dnp.Endpoint
	sources   []*dnp.Source
	addresses map[netip.Addr]bool
	up        int
	batch     []udp.Datagram
}

func newServer(t *testing.T, s *script) *server {
	socket, err := udp.Open(udp.Config{Addr: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	endpoint, err := dnp.New(dnp.Config{Listen: true, Refresh: []time.Duration{}, Rand: rand.New(rand.NewPCG(*seed, 0))})
	if err != nil {
		t.Fatal(err)
	}
	srv := &server{t: t, script: s, socket: socket, endpoint: endpoint, addresses: map[netip.Addr]bool{}, batch: make([]udp.Datagram, 64)}
	for range s.c.States {
		layout, err := netstate.NewLayout([]netstate.Value{{Type: s.types[0]}, {Type: s.types[1]}})
		if err != nil {
			t.Fatal(err)
		}
		srv.sources = append(srv.sources, endpoint.NewSource(dnp.SourceConfig{State: netstate.NewState(layout), Message: []byte("state")}))
	}
	return srv
}

// set gives all states the values of tick n.
func (s *server) set(n uint32) {
	for _, src := range s.sources {
		for v := range s.script.types {
			src.State().Set(v, encoded(s.t, s.script, v, n))
			src.Changed(v)
		}
	}
}

// until turns the server until something is so. It fails after ten seconds.
func (s *server) until(what string, so func() bool) {
	s.t.Helper()
	for end := time.Now().Add(10 * time.Second); !so(); {
		if time.Now().After(end) {
			s.t.Fatalf("not so after 10 s: %s", what)
		}
		s.socket.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
		n, _ := s.socket.ReadBatch(s.batch)
		for _, d := range s.batch[:n] {
			s.handle(s.endpoint.Receive(time.Now(), d.From, d.Data, s.socket.Writer()))
		}
		s.handle(s.endpoint.Advance(time.Now(), s.socket.Writer()))
		s.endpoint.Flush(time.Now(), s.socket.Writer())
		if err := s.socket.Writer().Flush(); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *server) handle(events []dnp.Event) {
	for _, e := range events {
		switch e.Kind {
		case dnp.EventConnected:
			s.addresses[e.Conn.Addr().Addr()] = true
			for _, src := range s.sources {
				if err := e.Conn.Link(src, true); err != nil {
					s.t.Error(err)
				}
			}
		case dnp.EventLinkUp:
			s.up++
		}
	}
}
