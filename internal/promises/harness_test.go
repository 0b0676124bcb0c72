package promises

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
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

// A world is a deployment with the space demo, and a game server in it.
type world struct {
	*testing.T
	ctx   context.Context
	nats  string // URL
	games string // URL of NATS for game servers, if that is another one
	cut   func() // ends the connections of game servers, with startCut
	way   way
	doors []*door
	paths []*path       // to the doors
	next  *atomic.Int64 // counts the clients
	ts    *tsProcess    // if clients are in TypeScript
	p     *publisher.Publisher
	space *publisher.Space
	nc    *nats.Conn
	rng   *rand.Rand // of the goroutine of the test

	kill, serve func() // end the relay; start another

	mu      sync.Mutex
	refused []error         // of ops, that nobody waited for
	stored  map[uint64]bool // numbers of the states that the durable store has confirmed
}

// start runs NATS and a relay that stores nothing.
func start(t *testing.T) *world {
	t.Helper()
	srv := dnprelaytest.Start(t)
	w := &world{T: t, nats: srv.NATS, kill: srv.StopRelay, serve: srv.StartRelay}
	w.begin()
	return w
}

// startCut is start with connections of game servers that can be cut. They are long, so that a cut takes answers and events along.
func startCut(t *testing.T) *world {
	t.Helper()
	srv := dnprelaytest.Start(t)
	p := &path{}
	w := &world{T: t, nats: srv.NATS, kill: srv.StopRelay, serve: srv.StartRelay, cut: p.end}
	w.games = "nats://" + p.stream(t, strings.TrimPrefix(srv.NATS, "nats://"), cond{base: 100e6})
	w.begin()
	return w
}

// startStored runs NATS and a relay that stores its states. kill ends the relay as a crash does: it stores and hands over nothing.
// serve returns before the next relay holds the shards.
func startStored(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, stored: map[uint64]bool{}}
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
	w.serve = func() { number++; crash = w.crashing(fmt.Sprint("relay-", number)) }
	t.Cleanup(func() { w.kill() })
	w.serve()
	w.begin()
	return w
}

// crashing runs a relay with leases and a store, and returns what ends it as a crash does.
func (w *world) crashing(name string) (crash func()) {
	log := slog.New(slog.DiscardHandler)
	bus, store := w.bus(), w.bus()
	leases, err := natslease.Open(w.Context(), natslease.Config{Conn: store.Conn(), Node: name, Log: log})
	w.must(err)
	r, err := relay.New(relay.Config{Node: name, Bus: bus, Leases: storing{leases, w}, Tick: time.Millisecond, Workers: 1, DrainTimeout: time.Nanosecond, Log: log})
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

// storing tells the world what the durable store has confirmed.
type storing struct {
	cluster.Leases
	w *world
}

func (s storing) Store(shard int, epoch uint64, batch []cluster.Keyframe, done func(error)) {
	numbers := make([]uint64, 0, len(batch)) // the batch belongs to the leases
	for _, k := range batch {
		numbers = append(numbers, k.Number)
	}
	s.Leases.Store(shard, epoch, batch, func(err error) {
		if err == nil {
			s.w.mu.Lock()
			for _, n := range numbers {
				s.w.stored[n] = true
			}
			s.w.mu.Unlock()
		}
		done(err)
	})
}

// untilStored waits until the durable store has n states.
func (w *world) untilStored(n int) {
	w.Helper()
	w.eventually(fmt.Sprintf("the store has %d states", n), func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.stored) >= n
	})
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
	w.nc, err = nats.Connect(cmp.Or(w.games, w.nats))
	w.must(err)
	w.Cleanup(w.nc.Close)
	w.p, w.space = w.game()
}

// tell says how often a promise was tried, and how often it was broken, which is an error.
func (w *world) tell(tries, broken int, format string, args ...any) {
	w.Helper()
	w.Logf("%d tries, %d violations "+format, append([]any{tries, broken}, args...)...)
	if broken > 0 {
		w.Errorf("%d violations in %d tries, want none", broken, tries)
	}
}

// of is the world in a subtest, which must not end the relay. The time of a subtest begins when it runs.
func (w *world) of(t *testing.T) *world {
	ctx, cancel := context.WithTimeout(t.Context(), patience*time.Duration(*times))
	t.Cleanup(cancel)
	return &world{
		T: t, ctx: ctx, nats: w.nats, games: w.games, way: w.way, doors: w.doors, paths: w.paths, next: w.next, ts: w.ts,
		p: w.p, space: w.space, nc: w.nc, rng: w.rng,
	}
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
		URL: cmp.Or(w.games, w.nats), Log: slog.New(slog.DiscardHandler), Status: func(publisher.Status) {},
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

// reach runs edges, with paths to them.
func (w *world) reach(y way) {
	w.Helper()
	w.way, w.next = y, &atomic.Int64{}
	for range y.edges {
		d := w.open("demo")
		w.doors, w.paths = append(w.doors, d), append(w.paths, d.by(w, y))
	}
	if y.library == "ts" {
		w.ts = startTypeScript(w)
	}
}

// path is that of the next client.
func (w *world) path() *path { return w.paths[int(w.next.Add(1))%len(w.paths)] }

// dial connects a client over a path, and tries until the edge takes it.
func (w *world) dial(p *path, e ears) player {
	w.Helper()
	c := w.connect(p, e)
	if c == nil {
		w.FailNow()
	}
	return c
}

// connect is dial for a goroutine that is not the one of the test: it returns nil if the time is over. The caller need not close the client.
func (w *world) connect(p *path, e ears) (c player) {
	for {
		var err error
		if w.ts != nil {
			c, err = w.ts.dial(w.ctx, p.url, e)
		} else {
			var cl *client.Client
			cl, err = client.Dial(w.ctx, p.url, e.config(p.cfg))
			c = goPlayer{cl}
		}
		if err == nil {
			w.Cleanup(func() { _ = c.Close() })
			return c
		}
		if w.ctx.Err() != nil {
			w.Error(err)
			return nil
		}
	}
}

// atOnce is how many clients of a test try something at the same time.
const atOnce = 16

// each tries something n times, at once.
func (w *world) each(n int, try func(i int)) {
	w.Helper()
	var running sync.WaitGroup
	room := make(chan struct{}, atOnce)
	for i := range n {
		room <- struct{}{}
		running.Go(func() {
			defer func() { <-room }()
			try(i)
		})
	}
	running.Wait()
	if w.Failed() {
		w.FailNow()
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
		m, err := w.nc.Request("dnp.v1.get.demo", []byte(after), time.Second) // the connection may end meanwhile
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
func (h *heard) has(f func(publisher.Event) bool) bool { return h.count(f) > 0 }

// count returns how many of them f wants.
func (h *heard) count(f func(publisher.Event) bool) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ev := range h.list {
		if f(ev) {
			n++
		}
	}
	return n
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
