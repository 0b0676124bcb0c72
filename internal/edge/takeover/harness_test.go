package takeover

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/forward"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/internal/simnet"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/sessionlog/memlog"
)

const listener = 3413

// server is where clients send to.
var server = netip.MustParseAddrPort("127.0.0.1:3413")

// clientAddr returns the address of client i.
func clientAddr(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 5000)
}

// A testEdge is an edge e1, the log, and the network around it. It is the shell that
// internal/edge is in the product.
type testEdge struct {
	*testing.T
	net       *simnet.Net
	log       *memlog.Store
	affinity  cluster.Affinity
	locations *Locations
	view      *View
	workers   []*testWorker

	knows    bool                                             // the replicas have what clients are linked to
	complete bool                                             // the replicas of all spaces
	spaces   map[string]bool                                  // that are followed
	ask      func(node string, r Request, answer func(error)) // the other edges
	replies  []bool                                           // to requests of other edges
	events   []replication.Event
	warnings int

	direct, over map[netip.AddrPort]int // datagrams to clients
	overEdge     map[string]int         // those of over
	via          string                 // the edge that the client of join comes over
	forwarded    []string               // edges that datagrams were forwarded to
	toClient     func(client netip.AddrPort, p []byte)
	unreachable  bool // the edge that clients come over

	passes     func(edge string, p []byte)           // besides toClient: a balancer, which knows by which edge a datagram leaves; empty for this one
	fromClient func(client netip.AddrPort, p []byte) // of join
	heard      func()                                // a datagram of a client comes
}

// A testWorker is a worker of a testEdge, and the host of its sessions.
type testWorker struct {
	*testEdge
	index    int
	t        *Takeover
	endpoint *dnp.Endpoint
	mail     []func(now time.Time)
}

func newTestEdge(t *testing.T) *testEdge {
	net := simnet.New(1)
	return newTestEdgeOf(t, net, memlog.New(memlog.Config{Schedule: net.Schedule, Rand: rand.New(rand.NewPCG(1, 2))}))
}

func newTestEdgeOf(t *testing.T, net *simnet.Net, log *memlog.Store) *testEdge {
	e := &testEdge{
		T: t, net: net, log: log, locations: NewLocations(noGuard{}), view: NewView("e1"), complete: true, spaces: map[string]bool{},
		ask:    func(string, Request, func(error)) {},
		direct: map[netip.AddrPort]int{}, over: map[netip.AddrPort]int{}, overEdge: map[string]int{}, via: "e2", toClient: func(netip.AddrPort, []byte) {},
		passes: func(string, []byte) {}, heard: func() {},
	}
	e.addWorker()
	return e
}

// next returns another process of the edge, with the same log.
func (e *testEdge) next() *testEdge { return newTestEdgeOf(e.T, e.net, e.log) }

func (e *testEdge) addWorker() *testWorker {
	e.Helper()
	w := &testWorker{testEdge: e, index: len(e.workers)}
	gate, err := admit.New(admit.Config{})
	if err == nil {
		w.endpoint, err = dnp.New(dnp.Config{
			Listen: true, Gate: gate, Rand: rand.New(rand.NewPCG(3, uint64(w.index))),
			Logged: true, LongMax: LongMessageMax, UnprovenMax: 65_536,
		})
	}
	if err != nil {
		e.Fatal(err)
	}
	w.t = New(Config{
		Host: w, Node: "e1", Worker: w.index, Listener: listener, Endpoint: w.endpoint, Rand: rand.New(rand.NewPCG(e.net.Rand().Uint64(), 1)),
		Locations: e.locations, Ports: Ports{Log: e.log, Secret: []byte("secret"), Affinity: e.affinity, Forward: w},
	})
	e.workers = append(e.workers, w)
	return w
}

// claimIn gives the edge an affinity.
func (e *testEdge) claimIn(a cluster.Affinity) {
	e.affinity = a
	for _, w := range e.workers {
		w.t.cfg.Affinity = a
	}
}

// roster tells the edge which edges are there.
func (e *testEdge) roster(phases map[string]cluster.Phase) {
	var list []cluster.Member
	for name, phase := range phases {
		list = append(list, cluster.Member{Name: name, Role: cluster.RoleEdge, Phase: phase})
	}
	e.view, _ = e.view.With(cluster.NewRoster(list))
}

// pass lets time go by.
func (e *testEdge) pass(d time.Duration) {
	for end := e.net.Elapsed() + d; e.net.Elapsed() < end; {
		for _, w := range e.workers {
			w.turn()
		}
		e.net.Run(time.Millisecond)
	}
}

// turn does what a worker does in one turn.
func (w *testWorker) turn() {
	now := w.net.Now()
	w.t.Begin(now)
	mail := w.mail
	w.mail = nil
	for _, do := range mail {
		do(now)
	}
	w.t.Advance(now, now.Add(time.Hour))
	w.handle(now, w.endpoint.Advance(now, w))
	w.t.Advance(now, now.Add(time.Hour))
}

func (w *testWorker) handle(now time.Time, events []dnp.Event) {
	for i := range events {
		if ev := &events[i]; ev.Kind == dnp.EventConnected {
			w.connected(now, ev.Conn)
		} else {
			w.t.Handle(now, ev)
		}
	}
}

func (w *testWorker) connected(now time.Time, conn *dnp.Conn) {
	w.t.Connected(now, conn, "session of "+conn.Addr().String(), &auth.Claims{Client: "c", Space: "s", Write: true})
}

// deliver has a datagram come over an edge, or directly.
func (w *testWorker) deliver(client netip.AddrPort, edge string, p ...byte) {
	hops := uint8(0)
	if edge != "" {
		hops = 1
	}
	w.take(w.net.Now(), client, edge, hops, p)
}

func (w *testWorker) take(now time.Time, client netip.AddrPort, edge string, hops uint8, p []byte) {
	if !w.t.Intercept(now, client, p, edge, hops) {
		w.Receive(now, client, p)
	}
}

// join has a client connect over e2, and wants everything that is for it to go back over
// that one.
func (e *testEdge) join(addr netip.AddrPort) *dnptest.Client {
	e.Helper()
	w := e.workers[0]
	e.fromClient = func(addr netip.AddrPort, p []byte) { w.deliver(addr, e.via, p...) }
	c := dnptest.NewClient(dnptest.Config{Behaviour: dnptest.Cpp(), Server: server, Send: func(p []byte) {
		e.net.Schedule(0, func() { e.fromClient(addr, p) })
	}})
	e.toClient = func(to netip.AddrPort, p []byte) {
		if to == addr {
			p = slices.Clone(p)
			e.net.Schedule(0, func() { c.Receive(e.net.Now(), server, p) })
		}
	}
	c.Connect(e.net.Now())
	for end := e.net.Elapsed() + 2*time.Second; e.net.Elapsed() < end; {
		c.Advance(e.net.Now())
		e.pass(10 * time.Millisecond)
	}
	if c.Phase() != dnptest.Connected || w.t.counts.SessionsOpened != 1 {
		e.Fatalf("the client is %v, %d sessions were opened", c.Phase(), w.t.counts.SessionsOpened)
	}
	if e.direct[addr] > 0 || e.over[addr] == 0 {
		e.Errorf("%d datagrams leave directly, %d over the edge that the client comes over", e.direct[addr], e.over[addr])
	}
	return c
}

// A phase is where a session is in its life at a worker.
type phase string

const (
	Opening       phase = "opening"
	Looking       phase = "looking"
	AwaitingSpace phase = "awaiting space"
	Adopting      phase = "adopting"
	Serving       phase = "serving"
	Revalidating  phase = "revalidating"
	HandingOver   phase = "handing over"
	Given         phase = "given"
	Over          phase = "over"
)

// phase returns the phase of a session; Over for nil.
func (s *Session) phase() phase {
	switch {
	case s == nil || s.departure == gone:
		return Over
	case s.departure == given:
		return Given
	case s.departure == handingOver:
		return HandingOver
	case s.stays() && s.Log.Revalidating():
		return Revalidating
	}
	return map[sessionlog.Phase]phase{
		sessionlog.Opening: Opening, sessionlog.Reading: Looking, sessionlog.Found: AwaitingSpace,
		sessionlog.Claiming: Adopting, sessionlog.Adopted: Adopting, sessionlog.Owning: Serving, sessionlog.Over: Over,
	}[s.Log.Phase()]
}

// session returns the session of a client; nil if the worker has none.
func (w *testWorker) session(addr netip.AddrPort) *Session { return w.t.byName[w.t.name(addr)] }

// wantPhase wants the worker to have the session of a client in a phase, or not to have it.
func (w *testWorker) wantPhase(why string, addr netip.AddrPort, want phase) {
	w.Helper()
	if got := w.session(addr).phase(); got != want {
		w.Errorf("%s: the session is %v, want %v", why, got, want)
	}
}

// Datagram and Send make a worker the sender of its endpoint.
func (w *testWorker) Datagram(size int) []byte { return make([]byte, 0, size) }

func (w *testWorker) Send(to netip.AddrPort, p []byte) {
	if !w.t.Return(to, p) {
		w.direct[to]++
		w.passes("", p)
	}
}

// A noGuard guards the locations of an edge with one goroutine.
type noGuard struct{}

func (noGuard) Lock()   {}
func (noGuard) Unlock() {}

func (w *testWorker) Must(do func(now time.Time)) { w.mail = append(w.mail, do) }
func (w *testWorker) View() *View                 { return w.view }
func (w *testWorker) Workers() int                { return len(w.workers) }

func (w *testWorker) Pass(worker int, client netip.AddrPort, p []byte, edge string, hops uint8) {
	p = slices.Clone(p)
	to := w.workers[worker]
	to.Must(func(now time.Time) {
		to.t.Misplaced(client, w.index, p)
		to.take(now, client, edge, hops, p)
	})
}

func (w *testWorker) Move(worker int, name string) {
	to := w.workers[worker]
	to.Must(func(time.Time) { to.t.Give(name, Path{}, "") })
}

func (w *testWorker) AdoptAt(uint16, string) { w.Error("a session of another listener") }

func (w *testWorker) Moved(client netip.AddrPort, node string) {
	for _, to := range w.workers {
		to.Must(func(now time.Time) { to.t.ForwardTo(now, client, node) })
	}
}

func (w *testWorker) Receive(now time.Time, client netip.AddrPort, p []byte) {
	w.handle(now, w.endpoint.Receive(now, client, p, w))
}

func (w *testWorker) Direct(client netip.AddrPort, p []byte) {
	w.direct[client]++
	w.toClient(client, p)
	w.passes("", p)
}

func (w *testWorker) Refuse(client netip.AddrPort) { w.Send(client, []byte{0}) }

func (w *testWorker) Forward(node string, _ forward.Client, _ uint8, _ []byte) bool {
	w.forwarded = append(w.forwarded, node)
	return true
}

func (w *testWorker) Return(edge string, c forward.Client, _ uint64, p []byte) bool {
	if w.unreachable {
		return false
	}
	w.over[c.Addr]++
	w.overEdge[edge]++
	w.toClient(c.Addr, p)
	w.passes(edge, p)
	return true
}

func (w *testWorker) Ask(node string, r Request, done func(now time.Time, err error)) {
	w.ask(node, r, func(err error) {
		w.Must(func(now time.Time) { done(now, err) })
	})
}

func (w *testWorker) Reply(to string) {
	if to != "" {
		w.replies = append(w.replies, true)
	}
}

func (w *testWorker) Follow(_ time.Time, space string) bool {
	w.spaces[space] = true
	return w.complete
}

func (w *testWorker) Knows(*Session, []uint64) bool { return w.knows }

func (w *testWorker) Spaces() []string           { return []string{"s"} }
func (w *testWorker) Emit(ev replication.Event)  { w.events = append(w.events, ev) }
func (w *testWorker) Warn(string, ...any)        { w.warnings++ }
func (w *testWorker) LogAnswers(time.Time, bool) {}

func (w *testWorker) Serve(now time.Time, s *Session) Feed {
	if s.Log.Conn() == nil && s.Log.Restore(now, w.endpoint, func(uint64) *dnp.Source { return nil }) == nil {
		return nil
	}
	return noFeed{}
}

type noFeed struct{}

func (noFeed) Deliver(sessionlog.Message) {}
func (noFeed) End()                       {}
