// Package dnprelaytest runs NATS, a relay and an edge in the process of a test, so that a game server and its clients
// can be tested together:
//
//	func TestGame(t *testing.T) {
//		srv := dnprelaytest.Start(t)
//		p, err := publisher.Connect(t.Context(), publisher.Config{URL: srv.NATS})
//		…
//		c, err := client.Dial(t.Context(), srv.Edge, client.Config{})
//		…
//	}
//
// Everything listens on free ports of 127.0.0.1, needs no file and no other program, and ends with the test. Clients
// need no login, and join one space. Sessions are not in a log: Space.Messages of package publisher yields nothing.
package dnprelaytest

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/natsembed"
	"github.com/dnprelay/dnprelay/internal/relay"
	"github.com/dnprelay/dnprelay/subject"
)

// A Config says what to run. The zero value of each field stands for its default.
type Config struct {
	// Space is the space that clients join; default demo.
	Space string

	// Log receives what the relay and the edge log; default: nothing.
	Log *slog.Logger
}

// A Server is what runs.
type Server struct {
	NATS  string // URL for game servers
	Edge  string // URL for clients, udp://…
	Space string

	t     testing.TB
	log   *slog.Logger
	epoch uint64
	relay func() // ends it; nil if there is none
}

// Start runs NATS, a relay and an edge until the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	return Config{}.Start(t)
}

// Start is the function Start with a Config.
func (c Config) Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{Space: cmp.Or(c.Space, "demo"), t: t, log: cmp.Or(c.Log, slog.New(slog.DiscardHandler)), epoch: uint64(time.Now().UnixMilli())}
	srv, err := natsembed.Start(natsembed.Config{Listen: "127.0.0.1:0", Mappings: subject.Names{}.Mappings(shards)})
	s.must("NATS", err)
	t.Cleanup(srv.Shutdown)
	s.NATS = srv.URL()
	e, err := edge.New(edge.Config{
		Node: "edge", Listeners: []edge.Listener{{Addr: netip.MustParseAddrPort("127.0.0.1:0")}}, Workers: 1, OpenSpace: s.Space, Bus: s.bus(), Log: s.log,
	})
	s.must("an edge", err)
	t.Cleanup(s.run("the edge", e.Run))
	s.Edge = "udp://" + e.Addrs()[0].String()
	t.Cleanup(s.StopRelay)
	s.StartRelay()
	return s
}

// shards is the default of --shards.
const shards = 64

// StopRelay ends the relay, which forgets all states, so that a test can see how a game server goes through that. It must
// not be called at once with another method.
func (s *Server) StopRelay() {
	if s.relay != nil {
		s.relay()
		s.relay = nil
	}
}

// StartRelay runs a relay after StopRelay: one without states, in a new epoch.
func (s *Server) StartRelay() {
	s.t.Helper()
	s.StopRelay()
	s.epoch++
	b, err := natsbus.Connect(natsbus.Config{URL: s.NATS})
	s.must("a connection to NATS", err)
	r, err := relay.New(relay.Config{Node: "relay", Bus: b, Epoch: s.epoch, Tick: time.Millisecond, Log: s.log})
	if err != nil {
		b.Close()
	}
	s.must("a relay", err)
	stop := s.run("the relay", r.Run)
	s.relay = func() { stop(); b.Close() }
}

func (s *Server) bus() *natsbus.Bus {
	s.t.Helper()
	b, err := natsbus.Connect(natsbus.Config{URL: s.NATS})
	s.must("a connection to NATS", err)
	s.t.Cleanup(b.Close)
	return b
}

func (s *Server) must(what string, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("dnprelaytest: %s: %v", what, err)
	}
}

// run runs a node and returns the function that ends it.
func (s *Server) run(what string, f func(context.Context) error) func() {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := f(ctx); err != nil {
			s.t.Errorf("dnprelaytest: %s: %v", what, err)
		}
	})
	return func() { stop(); running.Wait() }
}
