package systest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/bus/membus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/udp"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/dnprelay/dnprelay/internal/relay"
	"github.com/dnprelay/dnprelay/internal/simnet"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
)

var (
	seed   = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the random tests")
	story  = flag.Bool("story", false, "print what happens in the simulations of chaos and of durable sessions")
	rounds = flag.Int("rounds", 0, "rounds of each random test; 0 for the test's own number")
)

// repeated runs f with consecutive seeds, beginning with the flag's.
func repeated(t *testing.T, usual int, f func(t *testing.T, seed uint64)) {
	for round := range uint64(cmp.Or(*rounds, usual)) {
		t.Run(fmt.Sprint(round), func(t *testing.T) { f(t, *seed+round) })
	}
}

// A world is a whole deployment in one goroutine.
type world struct {
	*testing.T
	net      *simnet.Net
	hub      *membus.Hub
	game     *membus.Bus // a game server's connection
	subjects subject.Names
	relays   int
	ids      int
	events   []event
	heard    map[string]int // ordinal of the last message, by client
	hosts    int
	edges    int                       // with several workers
	truths   map[netip.AddrPort]*truth // by client, for a twin
	endings  *endings
	eye      replication.Eye // of clients that were given none
}

// An event is an event for game servers.
type event struct {
	Type, Space, Client, Session, Key, Reason, Detail, Code string

	Link   int
	Values map[string]json.RawMessage
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	t.Logf("repeat with -seed=%d", seed)
	w := &world{T: t, net: simnet.New(seed), heard: make(map[string]int), truths: make(map[netip.AddrPort]*truth), endings: newEndings()}
	w.hub = membus.New(membus.Config{
		Schedule: w.net.Schedule, Rand: rand.New(rand.NewPCG(seed, 1)), Delay: 200 * time.Microsecond, Shards: simShards,
	})
	w.game = w.hub.Node("game")
	w.on(w.subjects.Event("*"), func(m bus.Msg) {
		var e event
		if err := json.Unmarshal(m.Data, &e); err != nil {
			t.Fatalf("event %s: %v", m.Data, err)
		}
		w.events = append(w.events, e)
		w.endings.note(e)
	})
	return w
}

// print prints a line of the story.
func (w *world) print(format string, v ...any) {
	if *story {
		fmt.Printf("%v ", w.net.Elapsed())
		fmt.Printf(format+"\n", v...)
	}
}

// newWorldWithEdge returns a world of the flag's seed with a relay and an edge.
func newWorldWithEdge(t *testing.T, change func(*edge.Config)) (*world, *simEdge) {
	t.Helper()
	w := newWorld(t, *seed)
	w.startRelay()
	return w, w.startEdge(wire.Denetwork, change)
}

// on subscribes the game server to a subject.
func (w *world) on(subject string, f func(bus.Msg)) {
	w.Helper()
	if _, err := w.game.Subscribe(subject, f); err != nil {
		w.Fatal(err)
	}
}

// newID makes IDs that repeat with the seed and look like real ones.
func (w *world) newID() string {
	w.ids++
	id := fmt.Sprintf("ID%024d", w.ids)
	w.endings.name(id)
	return id
}

// simShards is the number of shards of a world: enough for several relays.
const simShards = 4

// A simRelay is a relay whose workers the scheduler turns.
type simRelay struct {
	name   string
	relay  *relay.Relay
	bus    *membus.Bus
	node   string     // its name on the bus; each start has another one
	leases *leaseNode // nil if it holds everything without leases
	dead   bool
	paused bool
	stuck  bool      // its leases stand still
	apart  bool      // the others believe that it is gone
	told   time.Time // since when it could hear that another relay serves in a higher epoch
	times  int       // how often it could hear that; 0 while it is dead, paused, stuck or off the bus
	leaves bool      // it has told the others that it leaves
	asleep []func()  // turns that became due while it was paused

	pausedAt time.Time // when it was seen paused last
}

// startRelay starts a relay that holds every shard, in a higher epoch than every earlier relay.
func (w *world) startRelay() *simRelay {
	w.Helper()
	return w.startRelayWith(func(*relay.Config) {})
}

// startRelayWith is startRelay with a changed configuration.
func (w *world) startRelayWith(change func(*relay.Config)) *simRelay {
	w.Helper()
	w.relays++
	r := &simRelay{name: fmt.Sprintf("relay%d", w.relays)}
	w.run(r, r.name, change)
	return r
}

// run creates and starts the relay of r. Each start needs another busName, because a dead
// relay's connection is closed forever.
func (w *world) run(r *simRelay, busName string, change func(*relay.Config)) {
	w.Helper()
	r.node, r.bus = busName, w.hub.Node(busName)
	cfg := relay.Config{
		Node: r.name, Bus: r.bus, Subjects: w.subjects, Workers: 2, Shards: simShards,
		Epoch: uint64(w.relays), Tick: 10 * time.Millisecond, NewID: w.newID, Eye: w.eye, Log: slog.New(slog.DiscardHandler),
	}
	if r.leases != nil {
		cfg.Leases = r.leases
		cfg.Stored = func(shard int, done func([]cluster.Keyframe, error)) {
			for _, missing := range r.relay.Missing() {
				if strings.HasPrefix(missing, "states") {
					w.Errorf("%s, at %v: it lacks %s", r.name, w.net.Now(), missing)
				}
			}
			done(r.leases.Stored(shard))
		}
	}
	change(&cfg)
	var err error
	if r.relay, err = relay.New(cfg); err == nil {
		err = r.relay.Start()
	}
	if err != nil {
		w.Fatal(err)
	}
	for _, l := range r.relay.Workers() {
		w.turnWorker(r, l)
	}
}

// kill ends a relay as kill -9 would.
func (r *simRelay) kill() {
	r.dead = true
	r.bus.Close()
	if r.leases != nil {
		r.leases.Stop()
	}
}

// turnWorker turns a worker when it is woken and when it is due.
func (w *world) turnWorker(r *simRelay, l *relay.Worker) {
	generation, woken := 0, false
	var turn func()
	turn = func() {
		switch {
		case r.dead:
			return
		case r.paused:
			r.asleep = append(r.asleep, turn)
			return
		}
		woken = false
		next := l.Turn(w.net.Now())
		generation++
		mine := generation
		w.net.Schedule(next.Sub(w.net.Now()), func() {
			if mine == generation {
				turn()
			}
		})
	}
	l.OnWake(func() {
		if !woken {
			woken = true
			w.net.Schedule(0, turn)
		}
	})
	turn()
}

// A simEdge is an edge with one worker.
type simEdge struct {
	outputBuffer
	world   *world
	addr    netip.AddrPort
	profile wire.Profile
	config  edge.Config
	starts  int
	node    string // its name on the bus; each start has another one

	edge    *edge.Edge
	worker  *edge.Worker
	process *carriedProcess // nil without carried clients
	bus     *membus.Bus
	next    time.Time
	woken   bool // during the turn

	dead     bool
	drains   bool
	paused   bool
	arrived  []udp.Datagram // datagrams that arrived while it was paused
	look     look
	lagSince time.Time // when the holder had the position lagTo, at which its replica was not; zero if it was
	lagTo    position
	excused  bool      // something stood between the two
	awayAt   time.Time // when it was seen without the bus last
}

// A look is the state of an edge's replica at the end of a turn.
type look struct {
	replica            *replication.Replica
	epoch, seq         uint64
	epochAt, changedAt time.Time
	backwards          string // how the position went back, if it ever did
}

// startEdge starts an edge with one worker.
func (w *world) startEdge(profile wire.Profile, change func(*edge.Config)) *simEdge {
	w.Helper()
	w.hosts++
	s := &simEdge{world: w, profile: profile, addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(w.hosts)}), 3413)}
	s.config = edge.Config{
		Node: fmt.Sprintf("edge%d", w.hosts), Workers: 1, Shards: simShards, Flush: 5 * time.Millisecond, OpenSpace: "s",
		Bus: w.hub.Node(fmt.Sprintf("edge%d", w.hosts)), Subjects: w.subjects,
		NewID: w.newID, Seed: w.net.Rand().Uint64, Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&s.config)
	}
	s.boot()
	w.net.Attach(s.addr, s)
	return s
}

// boot starts the process of the edge.
func (s *simEdge) boot() {
	w := s.world
	w.Helper()
	s.starts++
	s.node = s.config.Node
	if s.starts > 1 {
		s.node = fmt.Sprintf("%s.%d", s.config.Node, s.starts)
		s.config.Bus = w.hub.Node(s.node)
	}
	s.bus = w.hub.Node(s.node)
	s.dead, s.drains, s.paused, s.arrived, s.next, s.look = false, false, false, nil, time.Time{}, look{backwards: s.look.backwards}
	if s.config.Carriers != nil {
		s.config.Carriers.Secret = []byte(s.node) // without durable sessions, each process has its own
	}
	var err error
	if s.edge, err = edge.New(s.config); err != nil {
		w.Fatal(err)
	}
	probe := dnp.ProbePing
	if s.profile == wire.Spec {
		probe = dnp.ProbeHello
	}
	process := s.starts
	s.worker, err = s.edge.AddWorker(edge.Listener{Profile: s.profile, Probe: probe}, s, func() {
		if s.starts == process {
			s.wake()
		}
	})
	if err == nil {
		err = s.edge.Start()
	}
	if err != nil {
		w.Fatal(err)
	}
	if s.config.Carriers != nil {
		s.process = &carriedProcess{name: s.node, hub: s.edge.Hub(), rests: func() bool { return s.paused }}
	}
	w.net.Wake(s.addr)
}

// kill ends the process as kill -9 would.
func (s *simEdge) kill() {
	s.dead, s.paused, s.arrived = true, false, nil
	s.bus.Close()
	s.process.end()
}

// replica returns the edge's replica of a space, or nil.
func (s *simEdge) replica(space string) *replication.Replica {
	if s.dead {
		return nil
	}
	return s.worker.Replica(space)
}

// Receive, Advance and NextTimeout make a simEdge a node of the network.
func (s *simEdge) Receive(now time.Time, from netip.AddrPort, p []byte) {
	switch {
	case s.dead:
		return
	case s.paused:
		s.arrived = append(s.arrived, udp.Datagram{From: from, Data: p})
		return
	}
	s.world.endings.served = from
	s.turn(now, []udp.Datagram{{From: from, Data: p}})
	s.world.endings.served = netip.AddrPort{}
}

// receiveCarried takes a datagram of a carried client.
func (s *simEdge) receiveCarried(c *carrier.Conn, p []byte) {
	if c.Receive(p) != nil || s.paused {
		return // the connection has ended, or the datagram waits
	}
	s.world.endings.served = c.Addr()
	s.turn(s.world.net.Now(), nil)
	s.world.endings.served = netip.AddrPort{}
}

// pause stops the edge's process, or resumes it with the datagrams that arrived meanwhile.
func (s *simEdge) pause(paused bool) {
	s.paused = paused
	arrived := s.arrived
	s.arrived = nil
	if !paused {
		s.turn(s.world.net.Now(), arrived)
		s.world.net.Wake(s.addr)
	}
}

func (s *simEdge) Advance(now time.Time)          { s.turn(now, nil) }
func (s *simEdge) NextTimeout() (time.Time, bool) { return s.next, !s.paused && !s.dead }

// wake has the worker take a turn. It may be called in a turn, which another one follows then.
func (s *simEdge) wake() {
	s.next, s.woken = time.Time{}, true
	s.world.net.Wake(s.addr)
}

func (s *simEdge) turn(now time.Time, batch []udp.Datagram) {
	s.woken = false
	next, err := s.worker.Turn(now, batch)
	if err != nil {
		s.world.Fatal(err)
	}
	if !s.woken {
		s.next = next
	}
	s.process.step()
	s.look.take(now, s.worker.Replica("s"))
}

// take records the position of a replica, which must never go back.
func (l *look) take(now time.Time, r *replication.Replica) {
	if r == nil {
		return
	}
	if l.replica != r { // the edge forgot the space, or it is new
		*l = look{replica: r, backwards: l.backwards}
	}
	epoch, seq := r.Position()
	if epoch == l.epoch && seq == l.seq {
		return
	}
	if epoch < l.epoch || epoch == l.epoch && seq < l.seq {
		l.backwards = fmt.Sprintf("the replica went from %d:%d back to %d:%d", l.epoch, l.seq, epoch, seq)
	}
	if epoch != l.epoch {
		l.epochAt = now
	}
	l.epoch, l.seq, l.changedAt = epoch, seq, now
}

// Send sends the worker's datagrams.
func (s *simEdge) Send(to netip.AddrPort, b []byte) {
	s.world.toClient(to, b)
	s.world.net.Send(s.addr, to, b)
}

// An outputBuffer is the part of a worker's output that sends nothing.
type outputBuffer struct{ buf []byte }

func (o *outputBuffer) Datagram(size int) []byte {
	if cap(o.buf) < size {
		o.buf = make([]byte, 0, size)
	}
	return o.buf[:0]
}

func (o *outputBuffer) Flush() error { return nil }

// A player is a client of an edge.
type player struct {
	*dnptest.Client
	addr  netip.AddrPort
	world *world
	edge  *simEdge
	name  string // given by the edge
	said  int    // messages that it sent

	gaveUp bool // its edge gave it up, and the client does not know

	linked  map[string]time.Time // when links came up, by message, if an audit looks
	carried *carriedSession      // nil for a client that speaks UDP
}

// join connects a new client to an edge and waits until game servers know it.
func (w *world) join(e *simEdge, b dnptest.Behaviour, app dnptest.App) *player {
	w.Helper()
	known := len(w.joined())
	p := w.connect(e, b, app)
	w.within(6*time.Second, "the client joins", func() bool { return len(w.joined()) > known })
	p.name = w.joined()[known]
	return p
}

// joined returns the names of all clients that ever joined, in order.
func (w *world) joined() (names []string) {
	for _, e := range w.events {
		if e.Type == "joined" {
			names = append(names, e.Client)
		}
	}
	return names
}

// connect starts to connect a new client to an edge.
func (w *world) connect(e *simEdge, b dnptest.Behaviour, app dnptest.App) *player {
	p := w.newPlayer(e)
	w.add(p, b, app, func(d []byte) { w.net.Send(p.addr, e.addr, d) })
	return p
}

// newPlayer returns a player with an address, whose client is not made.
func (w *world) newPlayer(e *simEdge) *player {
	w.hosts++
	return &player{edge: e, addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(w.hosts >> 8), byte(w.hosts)}), 5000)}
}

// add starts to connect the client of a player, which has an address.
func (w *world) add(p *player, b dnptest.Behaviour, app dnptest.App, send func(d []byte)) {
	p.world = w
	p.Client = dnptest.NewClient(dnptest.Config{
		Behaviour: b, App: app, Server: p.edge.addr, Send: func(d []byte) {
			w.fromClient(p.addr, d)
			send(d)
		},
	})
	w.endings.clients[p.addr] = p
	w.net.Attach(p.addr, p.Client)
	p.Connect(w.net.Now())
	w.net.Wake(p.addr)
}

// do calls f with the current time and wakes the client.
func (p *player) do(f func(now time.Time)) {
	f(p.world.net.Now())
	p.world.net.Wake(p.addr)
}

// publish sends a payload as a game server does and returns the answer. Time passes while it
// waits.
func (w *world) publish(space, body string) string {
	w.Helper()
	return w.ask(w.subjects.Publish(space, ""), body)
}

// ask makes a request and returns the answer, or the error as "error: …".
func (w *world) ask(subject, body string) (answer string) {
	w.Helper()
	w.game.Request(bus.Msg{Subject: subject, Data: []byte(body)}, time.Second, func(m bus.Msg, err error) {
		answer = string(m.Data)
		if err != nil {
			answer = "error: " + err.Error()
		}
	})
	w.net.RunUntil(2*time.Second, func() bool { return answer != "" })
	return answer
}

// mustPublish publishes and wants the publish to be applied.
func (w *world) mustPublish(space, body string) {
	w.Helper()
	if a := w.publish(space, body); strings.Contains(a, "error") {
		w.Fatalf("publish %s: %s", body, a)
	}
}

// fire publishes without waiting for an answer.
func (w *world) fire(space, body string) {
	w.Helper()
	if err := w.game.Publish(bus.Msg{Subject: w.subjects.Publish(space, ""), Data: []byte(body)}); err != nil {
		w.Fatal(err)
	}
}

// within lets time pass until ok reports true, and fails with the reason if that takes longer
// than d.
func (w *world) within(d time.Duration, why string, ok func() bool) {
	w.Helper()
	if !w.net.RunUntil(d, ok) {
		w.Fatalf("not within %v: %s", d, why)
	}
}

// event waits for an event of this type with this key.
func (w *world) event(d time.Duration, typ, key string) (found event) {
	w.Helper()
	w.within(d, fmt.Sprintf("event %s of %q", typ, key), func() bool {
		for _, e := range w.events {
			if e.Type == typ && e.Key == key {
				found = e
				return true
			}
		}
		return false
	})
	return found
}

// has reports whether the client sees value i of the state with this message.
func (p *player) has(message string, i int, want []byte) bool {
	return bytes.Equal(p.Value(message, i), want)
}
