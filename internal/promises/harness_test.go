package promises

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/natslease"
	"github.com/dnprelay/dnprelay/dnprelaytest"
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
const patience = 2 * time.Minute

var (
	times = flag.Int("times", 1, "how often a test tries what the short form tries once")
	seed  = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the paths and of what a test chooses")
)

// tries returns how often a test tries, of which the short form tries n.
func tries(n int) int { return n * *times }

// A cond is what a path does to datagrams, in each direction.
type cond struct {
	base, jitter time.Duration
	loss, double float64

	// late is when one of four doubles arrives, which is long after its twin.
	late time.Duration
}

func (c cond) String() string {
	return fmt.Sprintf("%v±%v,loss%v,double%v", c.base, c.jitter, c.loss, c.double)
}

// conds are c0 to c3: a machine, an ordinary path without loss, a long one with some, a bad one.
var conds = []cond{{}, {30e6, 10e6, 0, 0, 0}, {100e6, 15e6, 0.05, 0.05, 0}, {30e6, 10e6, 0.2, 0.1, 0}}

// A path is a proxy between clients and an edge.
type path struct {
	url string // for clients
	cut atomic.Bool

	mu  sync.Mutex // datagrams go both ways
	rng *rand.Rand
}

// proxy carries datagrams of any number of clients to a URL until the test ends.
func proxy(t testing.TB, to string, c cond) *path {
	t.Helper()
	l, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	p := &path{url: "udp://" + l.LocalAddr().String(), rng: rand.New(rand.NewPCG(*seed, 1))}
	var running sync.WaitGroup
	running.Go(func() { p.serve(l, strings.TrimPrefix(to, "udp://"), c, &running) })
	t.Cleanup(func() { l.Close(); running.Wait() })
	return p
}

func (p *path) serve(l *net.UDPConn, edge string, c cond, running *sync.WaitGroup) {
	ups := map[string]net.Conn{}
	defer func() {
		for _, up := range ups {
			up.Close()
		}
	}()
	b := make([]byte, 65536)
	for {
		n, from, err := l.ReadFromUDP(b)
		if err != nil {
			return
		}
		up := ups[from.String()]
		if up == nil {
			if up, err = net.Dial("udp", edge); err != nil {
				return
			}
			ups[from.String()] = up
			running.Go(func() {
				b := make([]byte, 65536)
				for {
					n, err := up.Read(b)
					switch {
					case errors.Is(err, net.ErrClosed):
						return
					case err == nil: // an error says that no edge listens there at the moment
						p.carry(b[:n], c, func(q []byte) { _, _ = l.WriteToUDP(q, from) })
					}
				}
			})
		}
		p.carry(b[:n], c, func(q []byte) { _, _ = up.Write(q) })
	}
}

// carry brings a datagram to its end, or not, or twice.
func (p *path) carry(b []byte, c cond, end func([]byte)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n, again := 1, false; n > 0; n, again = n-1, true {
		if p.cut.Load() || p.rng.Float64() < c.loss {
			continue
		}
		if p.rng.Float64() < c.double {
			n++
		}
		d := c.base
		if again && p.rng.IntN(4) == 0 {
			d += c.late
		}
		if c.jitter > 0 {
			d += time.Duration(p.rng.Int64N(int64(2*c.jitter))) - c.jitter
		}
		q := append([]byte(nil), b...)
		if d <= 0 {
			end(q)
		} else {
			time.AfterFunc(d, func() { end(q) })
		}
	}
}

// A world is a deployment with the space demo, and a game server in it.
type world struct {
	*testing.T
	ctx   context.Context
	nats  string // URL
	edge  string // URL
	p     *publisher.Publisher
	space *publisher.Space
	nc    *nats.Conn
	rng   *rand.Rand // of the goroutine of the test

	kill, serve func() // end the relay; start another

	mu      sync.Mutex
	refused []error // of ops, that nobody waited for
}

// start runs NATS, a relay that stores nothing and an edge.
func start(t *testing.T) *world {
	t.Helper()
	srv := dnprelaytest.Start(t)
	w := &world{T: t, nats: srv.NATS, edge: srv.Edge, kill: srv.StopRelay, serve: srv.StartRelay}
	w.begin()
	return w
}

// startStored runs NATS, a relay that stores its states and an edge. kill ends the relay as a crash does: it stores and hands over nothing.
// serve returns before the next relay holds the shards.
func startStored(t *testing.T) *world {
	t.Helper()
	w := &world{T: t}
	srv, err := natsembed.Start(natsembed.Config{Listen: "127.0.0.1:0", Folder: natstest.Dir(t), Mappings: subject.Names{}.Mappings(64)})
	w.must(err)
	t.Cleanup(srv.Shutdown)
	w.nats = srv.URL()
	var crash func()
	number := 0
	w.kill = func() {
		if crash != nil {
			crash()
			crash = nil
		}
	}
	w.serve = func() { number++; crash = w.storing(fmt.Sprint("relay-", number)) }
	t.Cleanup(func() { w.kill() })
	w.serve()
	bus := w.bus()
	t.Cleanup(bus.Close)
	e, err := edge.New(edge.Config{
		Node: "edge", Listeners: []edge.Listener{{Addr: netip.MustParseAddrPort("127.0.0.1:0")}}, Workers: 1, OpenSpace: "demo", Bus: bus, Log: slog.New(slog.DiscardHandler),
	})
	w.must(err)
	t.Cleanup(w.run(e.Run))
	w.edge = "udp://" + e.Addrs()[0].String()
	w.begin()
	return w
}

// storing runs a relay with leases and a store, and returns what ends it as a crash does.
func (w *world) storing(name string) (crash func()) {
	log := slog.New(slog.DiscardHandler)
	bus, store := w.bus(), w.bus()
	leases, err := natslease.Open(w.Context(), natslease.Config{Conn: store.Conn(), Node: name, Log: log})
	w.must(err)
	r, err := relay.New(relay.Config{Node: name, Bus: bus, Leases: leases, Tick: time.Millisecond, Workers: 1, DrainTimeout: time.Nanosecond, Log: log})
	w.must(err)
	r.SetRoster(cluster.NewRoster([]cluster.Member{{Name: name, Role: cluster.RoleRelay, Phase: cluster.PhaseReady, Shards: 64, Incarnation: 1}}))
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { leases.Run(ctx) })
	running.Go(func() { _ = r.Run(ctx) }) // it could not hand its shards over
	return func() {
		bus.Close()
		store.Close()
		stop()
		running.Wait()
	}
}

// run runs a node and returns the function that ends it.
func (w *world) run(f func(context.Context) error) func() {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	return func() {
		stop()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	}
}

func (w *world) bus() *natsbus.Bus {
	w.Helper()
	b, err := natsbus.Connect(natsbus.Config{URL: w.nats})
	w.must(err)
	return b
}

func (w *world) begin() {
	w.Helper()
	var cancel context.CancelFunc
	w.ctx, cancel = context.WithTimeout(w.Context(), patience*time.Duration(*times))
	w.Cleanup(cancel)
	w.rng = rand.New(rand.NewPCG(*seed, 2))
	w.Cleanup(func() {
		if w.Failed() {
			w.Logf("repeat with -seed=%d", *seed)
		}
	})
	var err error
	w.nc, err = nats.Connect(w.nats)
	w.must(err)
	w.Cleanup(w.nc.Close)
	w.p, w.space = w.game()
}

// of is the world in a subtest, which must not end the relay.
func (w *world) of(t *testing.T) *world {
	return &world{T: t, ctx: w.ctx, nats: w.nats, edge: w.edge, p: w.p, space: w.space, nc: w.nc, rng: w.rng}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// game connects a game server.
func (w *world) game() (*publisher.Publisher, *publisher.Space) {
	w.Helper()
	p, err := publisher.Connect(w.ctx, publisher.Config{
		URL: w.nats, Log: slog.New(slog.DiscardHandler), Status: func(publisher.Status) {},
		Refused: func(_ string, err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.refused = append(w.refused, err)
		},
	})
	w.must(err)
	w.Cleanup(p.Close)
	s, err := p.Space("demo")
	w.must(err)
	return p, s
}

// dial connects a client, and tries until the edge takes it.
func (w *world) dial(url string, cfg client.Config) *client.Client {
	w.Helper()
	for {
		c, err := client.Dial(w.ctx, url, cfg)
		if err == nil {
			w.Cleanup(func() { _ = c.Close() })
			return c
		}
		if w.ctx.Err() != nil {
			w.Fatal(err)
		}
	}
}

// publish waits until the relay has accepted ops.
func (w *world) publish(ops ...publisher.Op) publisher.Position {
	w.Helper()
	pos, err := w.space.Publish(w.ctx, ops...)
	w.must(err)
	return pos
}

// A listed is a state as the relay lists it.
type listed struct {
	Key      string
	Audience json.RawMessage
	Values   []struct {
		Name  string
		Value json.RawMessage
	}
}

// list asks the relay for all states until one answers.
func (w *world) list() []listed {
	w.Helper()
	var all []listed
	after := "{}"
	for w.ctx.Err() == nil {
		m, err := w.nc.RequestWithContext(w.ctx, "dnp.v1.get.demo", []byte(after))
		var a struct {
			Error  any
			States []listed
		}
		if err != nil || json.Unmarshal(m.Data, &a) != nil || a.Error != nil { // no relay serves the space at the moment
			continue
		}
		if len(a.States) == 0 {
			return all
		}
		all = append(all, a.States...)
		after = fmt.Sprintf(`{"after":%q}`, all[len(all)-1].Key)
	}
	w.Fatal("no relay answers")
	return nil
}

// truth is what the relay says of all states: the values as JSON by key and name.
func (w *world) truth() map[string]map[string]string {
	w.Helper()
	r := map[string]map[string]string{}
	for _, s := range w.list() {
		r[s.Key] = map[string]string{}
		for i, x := range s.Values {
			if x.Name == "" {
				x.Name = strconv.Itoa(i)
			}
			r[s.Key][x.Name] = string(x.Value)
		}
	}
	return r
}

// audience is what the relay says of the audience of a state; empty if it does not have the state.
func (w *world) audience(key string) string {
	w.Helper()
	for _, s := range w.list() {
		if s.Key == key {
			return string(s.Audience)
		}
	}
	return ""
}

// eventually waits until f is true.
func (w *world) eventually(why string, f func() bool) {
	w.Helper()
	for !f() {
		if w.ctx.Err() != nil {
			w.Fatalf("%s: not within %v", why, patience)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// heard collects the events of a loop.
type heard struct {
	mu   sync.Mutex
	list []publisher.Event
}

// has reports whether an event is among them that f wants.
func (h *heard) has(f func(publisher.Event) bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ev := range h.list {
		if f(ev) {
			return true
		}
	}
	return false
}

// events begins a loop over events, and returns when it hears them; each may be nil.
func (w *world) events(s *publisher.Space, f publisher.Filter, each func(publisher.Event)) *heard {
	w.Helper()
	const probe = publisher.Kind("probe")
	if len(f.Kinds) > 0 {
		f.Kinds = append(f.Kinds[:len(f.Kinds):len(f.Kinds)], probe)
	}
	h := &heard{}
	ctx, stop := context.WithCancel(w.ctx)
	hears, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for ev, err := range s.Events(ctx, f) {
			if err != nil {
				return
			}
			if ev.Kind == probe {
				select {
				case hears <- struct{}{}:
				default:
				}
				continue
			}
			h.mu.Lock()
			h.list = append(h.list, ev)
			h.mu.Unlock()
			if each != nil {
				each(ev)
			}
		}
	}()
	w.Cleanup(func() { stop(); <-ended })
	w.eventually("the loop hears events", func() bool {
		w.must(w.nc.Publish("dnp.v1.event."+s.Name(), []byte(`{"v":1,"type":"probe"}`)))
		return len(hears) > 0
	})
	return h
}

// u32 puts a state with the value n.
func u32(key string, n int, extra ...publisher.Value) publisher.Put {
	return publisher.Put{Key: key, Describe: true, Values: append([]publisher.Value{{Name: "n", Type: publisher.Uint32, Value: n}}, extra...)}
}

// eachCond runs f in parallel with a deployment and a path of each condition. The short form has only those of numbers.
func eachCond(t *testing.T, short []int, f func(w *world, c cond, p *path)) {
	for i, c := range conds {
		chosen := *times > 1
		for _, k := range short {
			chosen = chosen || k == i
		}
		if !chosen {
			continue
		}
		t.Run(fmt.Sprint("c", i), func(t *testing.T) {
			t.Parallel()
			w := start(t)
			f(w, c, proxy(t, w.edge, c))
		})
	}
}
