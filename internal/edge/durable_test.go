package edge

import (
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/bus/membus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/udp"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/dnprelay/dnprelay/internal/edge/takeover"
	"github.com/dnprelay/dnprelay/internal/simnet"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/sessionlog/memlog"
)

// A testEdge is an edge with durable sessions, and the network around it.
type testEdge struct {
	*testing.T
	net     *simnet.Net
	edge    *Edge
	worker  *Worker
	other   *membus.Bus
	log     *memlog.Store
	answers []string
	client  *dnptest.Client
	from    netip.AddrPort // where the client comes from
}

// nothing takes the messages of clients, and forgets them.
type nothing struct{}

func (nothing) Deliver(sessionlog.Message)                {}
func (nothing) End()                                      {}
func (nothing) Begin(_, _, _ string, _ func(uint64)) Feed { return nothing{} }

// Datagram, Send and Flush make it the output of its worker.
func (l *testEdge) Datagram(size int) []byte { return make([]byte, 0, size) }
func (l *testEdge) Flush() error             { return nil }
func (l *testEdge) Send(to netip.AddrPort, p []byte) {
	if l.client != nil {
		p = slices.Clone(p)
		l.net.Schedule(0, func() { l.client.Receive(l.net.Now(), server, p) })
	}
}

var server = netip.MustParseAddrPort("127.0.0.1:3413")

var addr = netip.MustParseAddrPort("10.0.0.1:5000") // of the client

// join has a client connect, and returns its address.
func (l *testEdge) join() netip.AddrPort {
	l.Helper()
	l.connect(dnptest.App{}, 0)
	l.pass(2 * time.Second)
	if !l.worker.Serves(l.from) {
		l.Fatal("the client has no session")
	}
	return l.from
}

// connect has a client of the C++ library connect after a while.
func (l *testEdge) connect(app dnptest.App, after time.Duration) {
	l.client = dnptest.NewClient(dnptest.Config{Behaviour: dnptest.Cpp(), Server: server, App: app, Send: func(p []byte) {
		l.net.Schedule(0, func() { l.worker.Deliver(l.net.Now(), "", 0, l.from, p) })
	}})
	l.net.Schedule(after, func() { l.client.Connect(l.net.Now()) })
}

func newTestEdge(t *testing.T) *testEdge {
	l := &testEdge{T: t, net: simnet.New(1), from: addr}
	hub := membus.New(membus.Config{Schedule: l.net.Schedule})
	var err error
	l.other = hub.Node("other")
	l.log = memlog.New(memlog.Config{Schedule: l.net.Schedule, Rand: rand.New(rand.NewPCG(1, 2))})
	l.edge, err = New(Config{
		Node: "e1", OpenSpace: "s", Bus: hub.Node("e1"), Workers: 1, Log: slog.New(slog.DiscardHandler),
		Durable: &Durable{Ports: takeover.Ports{Log: l.log, Secret: []byte("secret")}, From: nothing{}},
	})
	if err == nil {
		l.worker, err = l.edge.AddWorker(Listener{Addr: netip.MustParseAddrPort("127.0.0.1:3413")}, l, func() {})
	}
	if err == nil {
		err = l.edge.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// roster tells the edge which edges are there.
func (l *testEdge) roster(phases map[string]cluster.Phase) {
	var list []cluster.Member
	for name, phase := range phases {
		list = append(list, cluster.Member{Name: name, Role: cluster.RoleEdge, Phase: phase})
	}
	l.edge.SetRoster(cluster.NewRoster(list))
}

// pass lets time go by.
func (l *testEdge) pass(d time.Duration) {
	l.Helper()
	for end := l.net.Elapsed() + d; l.net.Elapsed() < end; {
		if _, err := l.worker.Turn(l.net.Now(), []udp.Datagram(nil)); err != nil {
			l.Fatal(err)
		}
		if l.client != nil {
			l.client.Advance(l.net.Now())
		}
		l.net.Run(time.Millisecond)
	}
}

// ask sends a request of another edge, and notes the answer.
func (l *testEdge) ask(r takeover.Request) {
	l.Helper()
	data, err := json.Marshal(r)
	if err != nil {
		l.Fatal(err)
	}
	l.other.Request(bus.Msg{Subject: l.edge.cfg.Subjects.Edge("e1"), Data: data}, takeover.ConsentTime, func(m bus.Msg, err error) {
		if err != nil {
			m.Data = []byte(err.Error())
		}
		l.answers = append(l.answers, string(m.Data))
	})
}

func (l *testEdge) want(why string, answers ...string) {
	l.Helper()
	if !slices.Equal(l.answers, answers) {
		l.Errorf("%s: answers are %q, want %q", why, l.answers, answers)
	}
	l.answers = nil
}

// TestAsked: an edge says that it is prepared when it has the states, answers about a session
// when the log says which edge has it, and refuses when it leaves.
func TestAsked(t *testing.T) {
	l := newTestEdge(t)
	l.pass(10 * time.Millisecond)
	l.ask(takeover.Request{Prepare: []string{"not a token"}})
	l.pass(100 * time.Millisecond)
	l.want("there is nothing to prepare", string(answerDone))
	l.ask(takeover.Request{Prepare: []string{"arena", "not a token"}})
	l.pass(takeover.ConsentTime*3/4 - 10*time.Millisecond)
	l.want("it does not know the states of the space")
	l.pass(20 * time.Millisecond)
	l.want("it does not get them", string(answerRefused))
	if l.worker.Replica("arena") == nil || l.worker.Replica("not a token") != nil {
		t.Errorf("spaces that are followed: %v", l.worker.spaces.Names())
	}

	l.ask(takeover.Request{Adopt: "NOSUCHLOG", Listener: 3413, ClientAddr: "192.0.2.1:5000"})
	l.pass(100 * time.Millisecond)
	l.want("there is no such session, so no edge needs to keep it", string(answerDone))

	l.ask(takeover.Request{Adopt: "NOSUCHLOG", Listener: 1, ClientAddr: "192.0.2.1:5000"})
	l.pass(100 * time.Millisecond)
	l.want("it has no such listener", string(answerRefused))

	l.edge.draining.Store(true)
	l.ask(takeover.Request{Adopt: "NOSUCHLOG", Listener: 3413, ClientAddr: "192.0.2.1:5000"})
	l.ask(takeover.Request{Prepare: []string{"arena"}})
	l.pass(100 * time.Millisecond)
	l.want("it leaves", string(answerRefused), string(answerRefused))
}

// TestAskRefused: an edge looks again at a session when the edge that should take it refuses,
// or does not answer.
func TestAskRefused(t *testing.T) {
	for _, refuses := range []bool{true, false} {
		l := newTestEdge(t)
		c := l.join()
		asked := 0
		_, err := l.other.Subscribe(l.edge.cfg.Subjects.Edge("e2"), func(m bus.Msg) {
			switch {
			case !strings.Contains(string(m.Data), "adopt"):
				_ = l.other.Publish(bus.Msg{Subject: m.Reply, Data: answerDone})
			case refuses:
				asked++
				_ = l.other.Publish(bus.Msg{Subject: m.Reply, Data: answerRefused})
			default:
				asked++
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		l.roster(map[string]cluster.Phase{"e1": cluster.PhaseDraining, "e2": cluster.PhaseReady})
		l.edge.BeginDrain()
		l.pass(500 * time.Millisecond)
		if asked != 1 || l.worker.Serves(c) {
			t.Errorf("refuses %v: asked %d times, keeps it %v; want 1 and that it is given", refuses, asked, l.worker.Serves(c))
		}
		if l.edge.DurableSessions() != 1 {
			t.Errorf("refuses %v: %d sessions wait for a successor, want 1", refuses, l.edge.DurableSessions())
		}
		l.pass(takeover.ConsentTime)
		if got := l.worker.Counts().Durable.SessionsHanded; got != 1 || l.worker.takeover.Count() != 1 {
			t.Errorf("refuses %v: %d hand-overs, %d sessions are looked at, want 1 and 1", refuses, got, l.worker.takeover.Count())
		}
	}
}

// TestDrainUnderLoad: an edge whose workers have no room for tasks still begins to drain, and
// learns that another edge takes its sessions.
func TestDrainUnderLoad(t *testing.T) {
	l := newTestEdge(t)
	l.join()
	fill := func() { // until the next turn, which takes what there is
		for l.worker.post(0, func(*Worker, time.Time) {}) {
		}
	}
	end, err := l.other.Subscribe(l.edge.cfg.Subjects.Edge("e2"), func(m bus.Msg) {
		fill()
		_ = l.other.Publish(bus.Msg{Subject: m.Reply, Data: answerDone})
	})
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	l.roster(map[string]cluster.Phase{"e1": cluster.PhaseDraining, "e2": cluster.PhaseReady})
	fill()
	l.edge.BeginDrain()
	l.pass(time.Second)
	if n := l.edge.DurableSessions(); n > 0 || l.worker.Counts().Durable.SessionsHanded != 1 {
		t.Errorf("%d sessions are left, %d were handed over, want 0 and 1", n, l.worker.Counts().Durable.SessionsHanded)
	}
}

// TestSilentLog: an edge without sessions notices that the log is silent. For 4 s it does not answer
// new clients, which repeat their requests, and then rejects them, which ends their attempts.
func TestSilentLog(t *testing.T) {
	const connected, rejected = "connected", "rejected"
	for why, c := range map[string]struct {
		silence, begin time.Duration // how long the log is silent, and when the client begins to ask
		want           string
		from, to       time.Duration // when it is told
	}{
		"before the edge knows":          {3 * time.Second, 100 * time.Millisecond, connected, 0, 200 * time.Millisecond},
		"soon after the beginning":       {3 * time.Second, 1600 * time.Millisecond, connected, 3 * time.Second, 4 * time.Second},
		"at the end":                     {3 * time.Second, 2900 * time.Millisecond, connected, 3 * time.Second, 4 * time.Second},
		"in a long silence":              {10 * time.Second, 1600 * time.Millisecond, rejected, 4 * time.Second, 6 * time.Second},
		"late in a long silence":         {10 * time.Second, 8 * time.Second, rejected, 8 * time.Second, 8100 * time.Millisecond},
		"half a second after a long one": {10 * time.Second, 10500 * time.Millisecond, connected, 10 * time.Second, 10600 * time.Millisecond},
	} {
		t.Run(why, func(t *testing.T) {
			l, told := newTestEdge(t), ""
			l.pass(5 * time.Second)
			began := l.net.Elapsed()
			tell := func(what string) {
				at := l.net.Elapsed() - began
				if told += what; at < c.from || at > c.to {
					t.Errorf("the client is told %q after %v, want it from %v to %v", what, at, c.from, c.to)
				}
			}
			l.connect(dnptest.App{Connected: func() { tell(connected) }, Closed: tell}, c.begin)
			l.log.SetSilent(true)
			l.net.Schedule(c.silence, func() { l.log.SetSilent(false) })
			l.pass(c.begin + 6*time.Second)
			if told != c.want {
				t.Errorf("the client is told %q, want %q", told, c.want)
			}
			if n := l.worker.takeover.Count(); (n == 1) != (c.want == connected) {
				t.Errorf("the edge has %d sessions", n)
			}
		})
	}
}

// TestSilentLogLines: the edge logs once that the log went silent, and once that it answers again,
// whichever of its workers notice, and however often that changes in between.
func TestSilentLogLines(t *testing.T) {
	l := newTestEdge(t)
	var text strings.Builder
	l.edge.cfg.Log = slog.New(slog.NewTextHandler(&text, nil))
	second, err := l.edge.AddWorker(Listener{Addr: server}, l, func() {})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		why           string
		silent        bool
		pass          time.Duration
		silence, back int // lines so far
	}{
		{"the log answers", false, 5 * time.Second, 0, 0},
		{"some answers were lost", true, 1200 * time.Millisecond, 0, 0},
		{"it answers the next questions", false, 5 * time.Second, 0, 0},
		{"it is silent", true, 5 * time.Second, 1, 0},
		{"it may be silent again", false, 5 * time.Second, 1, 0},
		{"it is", true, 5 * time.Second, 1, 0},
		{"it answers for long", false, 15 * time.Second, 1, 1},
		{"another silence", true, 5 * time.Second, 2, 1},
	} {
		l.log.SetSilent(step.silent)
		for range step.pass / (10 * time.Millisecond) {
			if _, err := second.Turn(l.net.Now(), nil); err != nil {
				t.Fatal(err)
			}
			l.pass(10 * time.Millisecond)
		}
		silence, back := strings.Count(text.String(), "does not answer"), strings.Count(text.String(), "answers again")
		if silence != step.silence || back != step.back {
			t.Fatalf("%s: %d and %d lines, want %d and %d:\n%s", step.why, silence, back, step.silence, step.back, text.String())
		}
	}
}

// TestMessageAfterTheEnd: an edge that learns that another one has a session answers no message for the
// client any more, not even one that came in the same turn. The next owner does.
func TestMessageAfterTheEnd(t *testing.T) {
	l := newTestEdge(t)
	addr := l.join()
	l.pass(31 * time.Second) // there is no relay that answers for the space, so game servers hear of the client now
	client := l.worker.spaces.Presences("s")[0].Client
	name := sessionlog.Key([]byte("secret"), addr, 3413)
	entries := l.log.Entries(name)
	last := entries[len(entries)-1].Seq
	other := "e2"
	adopt := sessionlog.Block{Epoch: 2, Owner: 1, Number: 1, Previous: last, Adopt: &other}
	l.log.Append(sessionlog.Write{Log: name, Expect: last, Data: adopt.Append(nil)}, func(sessionlog.Answer) {})
	l.pass(10 * time.Millisecond)
	l.worker.takeover.Replaced(name, 2)
	asked := 0
	for end := l.net.Elapsed() + 20*time.Millisecond; l.worker.Serves(addr) && l.net.Elapsed() < end; asked++ {
		l.other.Request(bus.Msg{Subject: l.edge.cfg.Subjects.To("s", client), Data: []byte("x")}, time.Second, func(m bus.Msg, err error) {
			if err == nil {
				t.Errorf("the edge that lost the session answers %q", m.Data)
			}
		})
		l.pass(time.Millisecond)
	}
	if l.pass(2 * time.Second); l.worker.Serves(addr) || asked == 0 {
		t.Errorf("the edge serves the client: %v; %d messages were sent", l.worker.Serves(addr), asked)
	}
}

// TestMust: a letter wakes the worker, which opens it however many tasks there are.
func TestMust(t *testing.T) {
	l := newTestEdge(t)
	woken, done := 0, 0
	w, err := l.edge.AddWorker(Listener{Addr: netip.MustParseAddrPort("127.0.0.1:3414")}, l, func() { woken++ })
	if err != nil {
		t.Fatal(err)
	}
	for w.post(0, func(*Worker, time.Time) {}) {
	}
	woken = 0
	w.must(func(time.Time) {
		done++
		w.must(func(time.Time) { done++ })
	})
	for range 2 {
		if _, err := w.Turn(l.net.Now(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if woken != 2 || done != 2 {
		t.Errorf("woken %d times, done %d, want 2 and 2", woken, done)
	}
}

// TestAskedUnderLoad: an edge that has no room for a request to take a session refuses at once,
// so that the session has an owner again.
func TestAskedUnderLoad(t *testing.T) {
	l := newTestEdge(t)
	l.pass(10 * time.Millisecond)
	for l.worker.post(0, func(*Worker, time.Time) {}) {
	}
	l.ask(takeover.Request{Adopt: "NOSUCHLOG", Listener: 3413, ClientAddr: "192.0.2.1:5000"})
	l.net.Run(20 * time.Millisecond)
	l.want("it has no room", string(answerRefused))
}

// TestReadyNoMore: an edge that has handed everything over is not ready, also when the bus
// comes back before the process ends.
func TestReadyNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestEdge(t)
		if !l.edge.Ready() {
			t.Error("it is not ready, although the bus is there")
		}
		l.edge.drain()
		if l.edge.Ready() {
			t.Error("it is ready, although it is about to end")
		}
		bus := l.edge.cfg.Bus.(*membus.Bus)
		bus.SetConnected(false)
		bus.SetConnected(true)
		if l.edge.Ready() {
			t.Error("it is ready again, because the bus came back")
		}
	})
}

// hopePatience is that of takeover.Hope.
const hopePatience = 5 * time.Second

// TestDrainAlone: how long an edge goes on with a session that no edge takes.
func TestDrainAlone(t *testing.T) {
	const timeout = 55 * time.Second
	ready := map[string]cluster.Phase{"e1": cluster.PhaseReady}
	with := func(phase cluster.Phase) map[string]cluster.Phase {
		return map[string]cluster.Phase{"e1": cluster.PhaseReady, "e2": phase}
	}
	for _, c := range []struct {
		why    string
		roster map[string]cluster.Phase
		after  time.Duration
	}{
		{"there is no gossip", nil, closeTime},
		{"it is the only one", ready, hopePatience + closeTime},
		{"the other one leaves, too", with(cluster.PhaseDraining), hopePatience + closeTime},
		{"another one starts", with(cluster.PhaseStarting), timeout},
		{"another one is ready, but takes nothing", with(cluster.PhaseReady), timeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newTestEdge(t)
			l.edge.cfg.DrainTimeout = timeout
			if c.roster != nil {
				l.roster(c.roster)
			}
			l.worker.durable.Store(1)
			start := time.Now()
			l.edge.drain()
			if took := time.Since(start); took < c.after || took > c.after+time.Second {
				t.Errorf("%s: it ends after %v, want %v", c.why, took, c.after)
			}
		})
	}
}

// A lockedText is text that several goroutines write.
type lockedText struct {
	mu sync.Mutex
	b  strings.Builder
}

func (t *lockedText) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(p)
}

func (t *lockedText) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// TestDrainElsewhere: an edge whose clients talk to a port at which no other edge listens says so as soon as it
// drains, and closes their sessions without waiting for the end of its time.
func TestDrainElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestEdge(t)
		text := &lockedText{}
		l.edge.cfg.Log = slog.New(slog.NewTextHandler(text, nil))
		l.edge.cfg.DrainTimeout = 55 * time.Second
		other := cluster.Member{Name: "e2", Role: cluster.RoleEdge, Phase: cluster.PhaseReady, Addresses: []cluster.Address{{Service: cluster.ServiceDNP, Addr: netip.MustParseAddrPort("10.0.0.1:3414")}}}
		l.edge.SetRoster(cluster.NewRoster([]cluster.Member{{Name: "e1", Role: cluster.RoleEdge, Phase: cluster.PhaseReady}, other}))
		l.worker.durable.Store(1)
		start := time.Now()
		go l.edge.drain()
		synctest.Wait()
		const want = "no other edge listens on port 3413, to which their clients talk (e2 at 3414)"
		if got := text.String(); !strings.Contains(got, want) || time.Now() != start {
			t.Errorf("after %v the log has %s, want %q at once", time.Since(start), got, want)
		}
		time.Sleep(hopePatience + closeTime + time.Second) // of the bubble
		if !strings.Contains(text.String(), "closing sessions: no edge takes them") || !l.edge.leaving.Load() {
			t.Errorf("after %v: %s", time.Since(start), text.String())
		}
	})
}

// TestDrainComeback: an edge that was being restarted when the other one was told to leave
// gets its sessions.
func TestDrainComeback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestEdge(t)
		l.join()
		given := map[string]int{}
		for _, node := range []string{"e2", "e3"} {
			_, err := l.other.Subscribe(l.edge.cfg.Subjects.Edge(node), func(m bus.Msg) {
				answer := answerDone
				if strings.Contains(string(m.Data), "adopt") {
					given[node]++
				} else if node == "e2" {
					answer = answerRefused
				}
				_ = l.other.Publish(bus.Msg{Subject: m.Reply, Data: answer})
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		l.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady})
		ended := make(chan struct{})
		go func() { l.edge.drain(); close(ended) }()
		for i := range 1000 {
			time.Sleep(10 * time.Millisecond) // of the bubble
			switch i {
			case 300:
				l.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady, "e2": cluster.PhaseStarting, "e3": cluster.PhaseStarting})
			case 800:
				l.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady, "e2": cluster.PhaseReady, "e3": cluster.PhaseReady})
			}
			l.pass(10 * time.Millisecond)
		}
		<-ended
		if given["e2"] != 0 || given["e3"] != 1 {
			t.Errorf("sessions were given to %v, want one to e3, which is prepared", given)
		}
		if n := l.worker.Counts().Durable.SessionsHanded; n != 1 {
			t.Errorf("%d sessions were handed over", n)
		}
	})
}

// TestDrainEndsAdapters: an edge that leaves closes the session of an adapter at once, since no other edge can continue it, and hands
// that of another client over.
func TestDrainEndsAdapters(t *testing.T) {
	for _, kind := range []carrier.Kind{carrier.WebSocket, carrier.LLUDP, carrier.Variant} {
		l := newTestEdge(t)
		l.from = carrier.NewTokens([]byte("secret"), func() string { return "id" }).Address(kind, "token")
		l.join()
		l.edge.BeginDrain()
		l.pass(10 * time.Millisecond)
		if adapted := kind != carrier.WebSocket; l.worker.Serves(l.from) == adapted {
			t.Errorf("%v: the edge serves the client: %v", kind, !adapted)
		}
	}
}
