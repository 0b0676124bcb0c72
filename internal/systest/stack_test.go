package systest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/bus/natsconn"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/compose"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/natsembed"
	"github.com/dnprelay/dnprelay/internal/relay"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
)

// patience is how long a step on a real machine may take. It does not bound speed: it only ends
// a test that would wait forever. Other tests run at the same time, so it is long.
const patience = 2 * time.Minute

// A stack is a relay and an edge with real loops, sockets and NATS.
type stack struct {
	*testing.T
	ctx      context.Context
	nats     *natsembed.Server
	port     string // of NATS
	edge     *edge.Edge
	edgeBus  *natsbus.Bus
	game     *natsbus.Bus
	subjects subject.Names
}

// newStack starts everything. When the test ends, everything ends in the order of a drain.
// TestMain wants no goroutine to be left after all tests.
func newStack(t *testing.T, listeners ...edge.Listener) *stack {
	t.Helper()
	return newStackWith(t, func(*relay.Config, *edge.Config) {}, listeners...)
}

// newStackWith is newStack with changed configurations.
func newStackWith(t *testing.T, change func(*relay.Config, *edge.Config), listeners ...edge.Listener) *stack {
	t.Helper()
	edgeCfg := edge.Config{
		Node: "e", Listeners: listeners, Workers: 2, Flush: time.Millisecond, OpenSpace: "s", Log: slog.New(slog.DiscardHandler),
	}
	s := newEdgelessWith(t, func(r *relay.Config) { change(r, &edgeCfg) })
	s.edgeBus = s.bus("edge")
	edgeCfg.Bus = s.edgeBus
	var err error
	if s.edge, err = edge.New(edgeCfg); err != nil {
		t.Fatal(err)
	}
	s.run("edge", s.edge.Run)
	s.Cleanup(func() {
		if s.Failed() {
			stats, err := s.edge.Stats(s.ctx)
			s.Logf("the edge counted %+v %+v %v", stats.Counts, stats.Protocol, err)
		}
	})
	return s
}

// newEdgeless is newStack without an edge.
func newEdgeless(t *testing.T) *stack {
	t.Helper()
	return newEdgelessWith(t, func(*relay.Config) {})
}

// newEdgelessWith is newEdgeless with a changed configuration of the relay.
func newEdgelessWith(t *testing.T, change func(*relay.Config)) *stack {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	s := &stack{T: t, ctx: ctx}
	t.Cleanup(cancel)
	s.startNATS("127.0.0.1:0")
	s.port = strings.TrimPrefix(s.nats.URL(), "nats://")
	t.Cleanup(func() { s.nats.Shutdown() })

	log := slog.New(slog.DiscardHandler)
	relayCfg := relay.Config{Node: "r", Bus: s.bus("relay"), Epoch: 1, Tick: time.Millisecond, Log: log}
	change(&relayCfg)
	r, err := relay.New(relayCfg)
	if err != nil {
		t.Fatal(err)
	}
	s.run("relay", r.Run)
	s.game = s.bus("game")
	return s
}

func (s *stack) startNATS(listen string) {
	s.Helper()
	var err error
	if s.nats, err = natsembed.Start(natsembed.Config{Listen: listen, Mappings: s.subjects.Mappings(64)}); err != nil {
		s.Fatal(err)
	}
}

// patient keeps a connection to a server that has no time to answer, as on a machine with more work than time: what is published plainly
// while a connection is made anew gets lost.
var patient = []nats.Option{nats.MaxPingsOutstanding(int(patience / natsconn.PingInterval)), nats.FlusherTimeout(patience)}

func (s *stack) bus(name string) *natsbus.Bus {
	s.Helper()
	b, err := natsbus.Connect(natsbus.Config{URL: s.nats.URL(), Name: name, Options: patient})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(b.Close)
	s.Cleanup(func() {
		if s.Failed() {
			s.Logf("the connection of %s: %+v", name, b.Stats())
		}
	})
	return b
}

// run runs a node until the test ends.
func (s *stack) run(name string, f func(context.Context) error) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	s.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			s.Errorf("%s: %v", name, err)
		}
	})
}

// client connects a client to the listener with this index.
func (s *stack) client(listener int, b dnptest.Behaviour) *dnptest.Peer {
	s.Helper()
	return runClient(s.T, s.edge.Addrs()[listener], b, dnptest.App{})
}

// runClient connects a client to a server. It runs until the test ends.
func runClient(t testing.TB, server netip.AddrPort, b dnptest.Behaviour, app dnptest.App) *dnptest.Peer {
	t.Helper()
	p, err := dnptest.RunUDP(t.Context(), dnptest.Config{Behaviour: b, Server: server, App: app}, netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func (s *stack) until(p *dnptest.Peer, why string, ok func(c *dnptest.Client) bool) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	if err := p.Until(ctx, ok); err != nil {
		state := "it answers no question"
		_ = p.Do(func(_ time.Time, c *dnptest.Client) {
			state = fmt.Sprintf("%v %q, %d waiting to be sent, %d messages received", c.Phase(), c.Reason(), c.Queued(), len(c.Messages))
		})
		s.Fatalf("%s: %v: the client is %s", why, err, state)
	}
}

func (s *stack) sees(p *dnptest.Peer, message string, value []byte) {
	s.Helper()
	s.until(p, fmt.Sprintf("sees %s = % x", message, value), func(c *dnptest.Client) bool { return string(c.Value(message, 0)) == string(value) })
}

// writes has a client write value i of a state.
func (s *stack) writes(p *dnptest.Peer, message string, i int, value []byte) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	if err := p.Write(ctx, message, i, value); err != nil {
		s.Fatalf("value %d of %s is not written: %v", i, message, err)
	}
}

// publish publishes until the relay applies it.
func (s *stack) publish(body string) {
	s.Helper()
	for end := time.Now().Add(patience); ; {
		answer := make(chan string, 1)
		s.game.Request(bus.Msg{Subject: s.subjects.Publish("s", ""), Data: []byte(body)}, patience/10, func(m bus.Msg, err error) {
			answer <- fmt.Sprint(string(m.Data), err)
		})
		a := <-answer
		if strings.HasPrefix(a, `{"epoch"`) && !strings.Contains(a, "error") {
			return
		}
		if time.Now().After(end) {
			s.Fatalf("publish %s: %s", body, a)
		}
	}
}

func local(profile wire.Profile) edge.Listener {
	return edge.Listener{Addr: netip.MustParseAddrPort("127.0.0.1:0"), Profile: profile}
}

// TestStackTwoListeners shows one state to clients of both dialects, and carries a write from
// one to the other.
func TestStackTwoListeners(t *testing.T) {
	t.Parallel()
	s := newStack(t, local(wire.Denetwork), local(wire.Spec))
	cpp, spec := s.client(0, dnptest.Cpp()), s.client(1, dnptest.SpecText())
	s.publish(lampPut)
	s.sees(cpp, "L", u16(1))
	s.sees(spec, "L", u16(1))
	s.until(cpp, "the link is up", func(c *dnptest.Client) bool { return c.LinkNamed("L").Phase == dnptest.LinkIsUp })
	s.writes(cpp, "L", 0, u16(7))
	s.sees(spec, "L", u16(7))
}

// TestStackDrain ends the edge. Clients and game servers are told.
func TestStackDrain(t *testing.T) {
	t.Parallel()
	s := newStack(t, local(wire.Denetwork))
	log := slog.New(slog.DiscardHandler)
	b := s.bus("second")
	e, err := edge.New(edge.Config{Node: "second", Listeners: []edge.Listener{local(wire.Denetwork)}, Workers: 2, OpenSpace: "s", Bus: b, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	left := make(chan string, 10)
	if _, err := s.game.Subscribe(s.subjects.Event("s"), func(m bus.Msg) {
		if strings.Contains(string(m.Data), `"left"`) {
			left <- string(m.Data)
		}
	}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	p := runClient(t, e.Addrs()[0], dnptest.Cpp(), dnptest.App{})
	s.publish(towerPut)
	s.sees(p, "T", f32(93.5))
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the edge ended with %v", err)
	}
	b.Close()
	s.until(p, "the client is told", func(c *dnptest.Client) bool { return c.Phase() == dnptest.Closed })
	select {
	case a := <-left:
		if !strings.Contains(a, `"reason":"drain"`) {
			t.Errorf("left is %s", a)
		}
	case <-time.After(patience):
		t.Error("game servers were not told that the client left")
	}
	if _, err := e.Stats(expired()); err == nil {
		t.Error("an edge that has ended still returns counters")
	}
}

func expired() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// TestStackPortInUse opens a port that is open.
func TestStackPortInUse(t *testing.T) {
	t.Parallel()
	s := newStack(t, local(wire.Denetwork))
	_, err := edge.New(edge.Config{
		Node: "x", Listeners: []edge.Listener{{Addr: s.edge.Addrs()[0]}}, OpenSpace: "s", Bus: s.bus("x"), Workers: 1, Log: slog.New(slog.DiscardHandler),
	})
	if err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second edge on the same port: %v", err)
	}
}

// TestStackCrowd has 200 clients that all send and receive messages of both kinds.
func TestStackCrowd(t *testing.T) {
	t.Parallel()
	const clients, each = 200, 5
	s := newStack(t, local(wire.Denetwork))
	var mu sync.Mutex
	got, all := make(map[string]int), make(chan struct{})
	if _, err := s.game.Subscribe(s.subjects.From("s", "*"), func(m bus.Msg) {
		mu.Lock()
		defer mu.Unlock()
		if m.Header["Dnp-Reliable"] == "true" {
			if got[string(m.Data)]++; len(got) == clients*each {
				close(all)
			}
		}
		_ = s.game.Publish(bus.Msg{Subject: strings.Replace(m.Subject, ".from.", ".to.", 1), Data: m.Data, Header: map[string]string{"Dnp-Reliable": m.Header["Dnp-Reliable"]}})
	}); err != nil {
		t.Fatal(err)
	}
	s.publish(towerPut)
	java := dnptest.Java()
	java.GiveUp = patience // a machine without time for 200 clients acknowledges later than within 3 s
	peers := make([]*dnptest.Peer, clients)
	for i := range peers {
		peers[i] = s.client(0, java)
	}
	for i, p := range peers {
		s.sees(p, "T", f32(93.5))
		if err := p.Do(func(now time.Time, c *dnptest.Client) {
			for n := range each {
				_ = c.Send(now, fmt.Appendf(nil, "reliable %d %d", i, n))
				_ = c.SendUnreliable(now, fmt.Appendf(nil, "quick %d %d", i, n))
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-all:
	case <-time.After(patience):
		t.Fatalf("%d of %d reliable messages", len(got), clients*each)
	}
	for i, p := range peers {
		s.until(p, "all echoes in order", func(c *dnptest.Client) bool {
			n := 0
			for _, m := range c.Messages {
				if m.Reliable {
					if string(m.Data) != fmt.Sprintf("reliable %d %d", i, n) {
						s.Errorf("client %d: message %d is %q", i, n, m.Data)
					}
					n++
				}
			}
			return n == each
		})
	}
	mu.Lock()
	defer mu.Unlock()
	for data, n := range got {
		if n != 1 {
			t.Errorf("%q arrived %d times", data, n)
		}
	}
	s.publish(`{"op":"set","key":"tower","values":{"hp":1}}`)
	for _, p := range peers {
		s.sees(p, "T", f32(1))
	}
}

// TestStackKickUnheard kicks clients at the moment when the edge loses its connection to NATS: each leaves all the same, and game servers
// hear why.
func TestStackKickUnheard(t *testing.T) {
	t.Parallel()
	s := newStack(t, local(wire.Denetwork))
	type event struct{ Type, Client, Reason, Detail string }
	events := make(chan event, 1000)
	if _, err := s.game.Subscribe(s.subjects.Event("s"), func(m bus.Msg) {
		var ev event
		if json.Unmarshal(m.Data, &ev) == nil && (ev.Type == "joined" || ev.Type == "left") {
			events <- ev
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.game.Flush(patience); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		p := s.client(0, dnptest.Cpp())
		joined := receive(t, events, "the client joined")
		if err := s.edgeBus.Conn().ForceReconnect(); err != nil {
			t.Fatal(err)
		}
		s.publish(fmt.Sprintf(`{"op":"kick","client":%q,"reason":"cheats"}`, joined.Client))
		s.until(p, "it is told", func(c *dnptest.Client) bool { return c.Phase() == dnptest.Closed })
		if left := receive(t, events, "the client left"); left != (event{"left", joined.Client, "kicked", "cheats"}) {
			t.Errorf("game servers hear %+v, want that %s was kicked", left, joined.Client)
		}
	}
}

// TestStackNATSRestarts stops NATS while players are connected, and starts it again.
func TestStackNATSRestarts(t *testing.T) {
	t.Parallel()
	s := newStack(t, local(wire.Denetwork))
	a, b := s.client(0, dnptest.Cpp()), s.client(0, dnptest.Cpp())
	s.publish(lampPut)
	s.sees(a, "L", u16(1))
	s.sees(b, "L", u16(1))
	s.until(a, "the link is up", func(c *dnptest.Client) bool { return c.LinkNamed("L").Phase == dnptest.LinkIsUp })
	s.nats.Shutdown()
	s.writes(a, "L", 0, u16(7))
	s.startNATS(s.port)
	s.sees(b, "L", u16(7)) // written while there was no NATS
	s.publish(`{"op":"set","key":"lamp","values":{"level":9}}`)
	s.sees(a, "L", u16(9))
	s.sees(s.client(0, dnptest.Cpp()), "L", u16(9))
}

// BenchmarkAck measures how long a client waits for the acknowledgement of a reliable message,
// with and without a session log in a NATS server of the same process, and how many writes that
// takes. The client cannot resolve times below about a millisecond.
func BenchmarkAck(b *testing.B) {
	for _, durability := range []string{"none", "log"} {
		b.Run(durability, func(b *testing.B) { benchmarkAck(b, durability) })
	}
}

func benchmarkAck(b *testing.B, durability string) {
	log := slog.New(slog.DiscardHandler)
	var subjects subject.Names
	nats := startNATS(b, natsembed.Config{})
	connect := func() (*natsbus.Bus, error) {
		bus, err := natsbus.Connect(natsbus.Config{URL: nats.URL()})
		if err == nil {
			b.Cleanup(bus.Close)
		}
		return bus, err
	}
	bus, err := connect()
	if err != nil {
		b.Fatal(err)
	}
	flags := &config.Sessions{SessionDurability: durability, SessionReplicas: 1}
	durable, err := compose.OpenDurable(b.Context(), flags, "e", connect, nil, subjects, time.Second, log)
	if err != nil {
		b.Fatal(err)
	}
	e, err := edge.New(edge.Config{
		Node: "e", Listeners: []edge.Listener{local(wire.Denetwork)}, Workers: 1, OpenSpace: "s", Bus: bus, Log: log, Durable: durable.Edge(nil), DrainTimeout: 5 * time.Second,
	})
	if err != nil {
		b.Fatal(err)
	}
	r, err := relay.New(relay.Config{Node: "r", Bus: bus, Epoch: 1, Log: log})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 3)
	go func() { ended <- r.Run(ctx) }()
	go func() { ended <- e.Run(ctx) }()
	after, stopLog := context.WithCancel(context.Background())
	go func() { durable.Run(after); ended <- nil }()
	defer func() { stop(); <-ended; <-ended; stopLog(); <-ended }()
	fast := dnptest.Cpp()
	fast.Tick = 100 * time.Microsecond // the library's own is 20 ms
	p := runClient(b, e.Addrs()[0], fast, dnptest.App{})
	defer p.Close()
	until := func(done func(*dnptest.Client) bool) {
		if err := p.Until(b.Context(), done); err != nil {
			b.Fatal(err)
		}
	}
	until(func(c *dnptest.Client) bool { return c.Phase() == dnptest.Connected })
	n := 0
	for b.Loop() {
		n++
		if err := p.Do(func(now time.Time, c *dnptest.Client) { _ = c.Send(now, fmt.Appendf(nil, "%d", n)) }); err != nil {
			b.Fatal(err)
		}
		until(func(c *dnptest.Client) bool { return c.Queued() == 0 })
	}
	if stats, err := e.Stats(b.Context()); err == nil {
		b.ReportMetric(float64(stats.Durable.LogWrites)/float64(n), "writes/message")
	}
}
