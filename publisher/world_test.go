package publisher_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/natsembed"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/dnprelay/dnprelay/internal/relay"
	"github.com/dnprelay/dnprelay/publisher"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
)

func TestMain(m *testing.M) { natstest.VerifyNoLeaks(m) }

// patience bounds every wait. It says nothing about speed.
const patience = 30 * time.Second

// A world runs NATS, a relay and an edge in this process, like `relay dev`.
type world struct {
	nats    *natsembed.Server
	edge    *edge.Edge
	discard *slog.Logger
	ends    []func()
	relay   func() // ends it
}

// newWorld starts everything but the relay. The edge is in space "demo".
func newWorld() *world {
	w := &world{discard: slog.New(slog.DiscardHandler)}
	var err error
	w.nats, err = natsembed.Start(natsembed.Config{Listen: "127.0.0.1:0", Mappings: subject.Names{}.Mappings(64)})
	must(err)
	w.ends = append(w.ends, w.nats.Shutdown)
	w.edge, err = edge.New(edge.Config{
		Node: "e", Listeners: []edge.Listener{{Addr: netip.MustParseAddrPort("127.0.0.1:0")}}, Workers: 1, OpenSpace: "demo",
		Bus: w.bus(), Log: w.discard,
	})
	must(err)
	w.ends = append(w.ends, w.run(w.edge.Run))
	return w
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (w *world) bus() *natsbus.Bus {
	b, err := natsbus.Connect(natsbus.Config{URL: w.nats.URL()})
	must(err)
	w.ends = append(w.ends, b.Close)
	return b
}

// run runs a node and returns the function that ends it.
func (w *world) run(f func(context.Context) error) func() {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { must(f(ctx)) })
	return func() { stop(); running.Wait() }
}

// hold ends the relay, if there is one, and starts another without stored states.
func (w *world) hold(epoch uint64) {
	w.unhold()
	r, err := relay.New(relay.Config{Node: "r", Bus: w.bus(), Epoch: epoch, Tick: time.Millisecond, Log: w.discard})
	must(err)
	w.relay = w.run(r.Run)
}

func (w *world) unhold() {
	if w.relay != nil {
		w.relay()
		w.relay = nil
	}
}

func (w *world) close() {
	w.unhold()
	for i := len(w.ends) - 1; i >= 0; i-- {
		w.ends[i]()
	}
}

// A scene is the world of a test.
type scene struct {
	*testing.T
	*world
	ctx   context.Context
	p     *publisher.Publisher
	space *publisher.Space

	mu      sync.Mutex // the publisher calls Refused from its goroutine
	refused []error
}

func newScene(t *testing.T, cfg publisher.Config) *scene {
	t.Helper()
	s := &scene{T: t, world: newWorld()}
	t.Cleanup(s.close)
	var cancel context.CancelFunc
	s.ctx, cancel = context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	cfg.URL, cfg.Log = s.nats.URL(), s.discard
	cfg.Refused = func(_ string, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.refused = append(s.refused, err)
	}
	var err error
	if s.p, err = publisher.Connect(s.ctx, cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.p.Close)
	if s.space, err = s.p.Space("demo"); err != nil {
		t.Fatal(err)
	}
	return s
}

// publish requires that the relay accepts ops.
func (s *scene) publish(why string, ops ...publisher.Op) {
	s.Helper()
	if _, err := s.space.Publish(s.ctx, ops...); err != nil {
		s.Fatalf("%s: %v", why, err)
	}
}

// holds requires that the relay holds exactly these states with these values.
func (s *scene) holds(why string, want map[string]string) {
	s.Helper()
	nc, err := nats.Connect(s.nats.URL())
	must(err)
	defer nc.Close()
	var got map[string]string
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if got = listing(nc); fmt.Sprint(got) == fmt.Sprint(want) {
			return
		}
	}
	s.Fatalf("%s: the relay holds %v, want %v", why, got, want)
}

func listing(nc *nats.Conn) map[string]string {
	m, err := nc.Request("dnp.v1.get.demo", nil, time.Second)
	if err != nil {
		return nil
	}
	var a struct {
		States []struct {
			Key    string
			Values []struct {
				Name  string
				Value json.RawMessage
			}
		}
	}
	must(json.Unmarshal(m.Data, &a))
	all := map[string]string{}
	for _, st := range a.States {
		for _, v := range st.Values {
			all[st.Key] += fmt.Sprintf("%s=%s ", v.Name, v.Value)
		}
	}
	return all
}

// client connects a client.
func (s *scene) client() *dnptest.Peer {
	s.Helper()
	p, err := dnptest.RunUDP(s.ctx, dnptest.Config{Behaviour: dnptest.Cpp(), Server: s.edge.Addrs()[0]}, netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(p.Close)
	s.until(p, "the client connects", func(c *dnptest.Client) bool { return c.Phase() == dnptest.Connected })
	return p
}

func (s *scene) until(p *dnptest.Peer, why string, ok func(c *dnptest.Client) bool) {
	s.Helper()
	if err := p.Until(s.ctx, ok); err != nil {
		s.Fatalf("%s: %v", why, err)
	}
}

// next is what comes next from c, before the scene is out of patience.
func next[T any](s *scene, c <-chan T) T {
	s.Helper()
	select {
	case v := <-c:
		return v
	case <-s.ctx.Done():
		s.Fatal("nothing comes")
	}
	panic("unreachable")
}
