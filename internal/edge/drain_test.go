package edge

import (
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/bus/membus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/dnp/udp"
	"github.com/dnprelay/dnprelay/internal/simnet"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/sessionlog/memlog"
)

// A leaver is an edge that is asked to take sessions over, and the network around it.
type leaver struct {
	*testing.T
	net     *simnet.Net
	edge    *Edge
	worker  *Worker
	other   *membus.Bus
	answers []string
}

type nothing struct{}

func (nothing) Deliver(sessionlog.Message)                {}
func (nothing) End()                                      {}
func (nothing) Begin(_, _, _ string, _ func(uint64)) Feed { return nothing{} }
func (nothing) Datagram(size int) []byte                  { return make([]byte, 0, size) }
func (nothing) Send(netip.AddrPort, []byte)               {}
func (nothing) Flush() error                              { return nil }

func newLeaver(t *testing.T) *leaver { return newLeaverOf(t, nothing{}, nil) }

func newLeaverOf(t *testing.T, out Output, forward Forwarder) *leaver {
	l := &leaver{T: t, net: simnet.New(1)}
	hub, err := membus.New(membus.Config{Schedule: l.net.Schedule})
	if err != nil {
		t.Fatal(err)
	}
	l.other = hub.Node("other")
	log := memlog.New(memlog.Config{Schedule: l.net.Schedule, Rand: rand.New(rand.NewPCG(1, 2))})
	l.edge, err = New(Config{
		Node: "e1", OpenSpace: "s", Bus: hub.Node("e1"), Workers: 1, Log: slog.New(slog.DiscardHandler),
		Durable: &Durable{Log: log, Shards: 1, Secret: []byte("secret"), From: nothing{}, Forward: forward},
	})
	if err == nil {
		l.worker, err = l.edge.AddWorker(Listener{Addr: netip.MustParseAddrPort("127.0.0.1:3413")}, out, func() {})
	}
	if err == nil {
		err = l.edge.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// roster tells the edge who is there.
func (l *leaver) roster(phases map[string]cluster.Phase) {
	var list []cluster.Member
	for name, phase := range phases {
		list = append(list, cluster.Member{Name: name, Role: cluster.RoleEdge, Phase: phase})
	}
	l.edge.SetRoster(cluster.NewRoster(list))
}

// pass lets time go by.
func (l *leaver) pass(d time.Duration) {
	l.Helper()
	for end := l.net.Elapsed() + d; l.net.Elapsed() < end; {
		if _, err := l.worker.Turn(l.net.Now(), []udp.Datagram(nil)); err != nil {
			l.Fatal(err)
		}
		l.net.Run(time.Millisecond)
	}
}

// ask asks the edge, and notes what it answers.
func (l *leaver) ask(r edgeRequest) {
	l.Helper()
	data, err := json.Marshal(r)
	if err != nil {
		l.Fatal(err)
	}
	l.other.Request(bus.Msg{Subject: l.edge.cfg.Subjects.Edge("e1"), Data: data}, adoptAnswer, func(m bus.Msg, err error) {
		if err != nil {
			m.Data = []byte(err.Error())
		}
		l.answers = append(l.answers, string(m.Data))
	})
}

func (l *leaver) want(why string, answers ...string) {
	l.Helper()
	if !slices.Equal(l.answers, answers) {
		l.Errorf("%s: answers are %q, want %q", why, l.answers, answers)
	}
	l.answers = nil
}

// TestAsked: an edge says that it is prepared when it has the states, answers for a session
// when the log says who has it, and refuses when it leaves.
func TestAsked(t *testing.T) {
	l := newLeaver(t)
	l.pass(10 * time.Millisecond)
	l.ask(edgeRequest{Prepare: []string{"not a token"}})
	l.pass(100 * time.Millisecond)
	l.want("there is nothing to prepare", string(answerDone))
	l.ask(edgeRequest{Prepare: []string{"arena", "not a token"}})
	l.pass(prepareMost - 10*time.Millisecond)
	l.want("nobody has told it the states of the space")
	l.pass(20 * time.Millisecond)
	l.want("it does not get them", string(answerRefused))
	if l.worker.Replica("arena") == nil || l.worker.Replica("not a token") != nil {
		t.Errorf("spaces that are followed: %v", l.worker.spaces.Names())
	}

	l.ask(edgeRequest{Adopt: "NOSUCHLOG", Listener: 3413, Client: "192.0.2.1:5000"})
	l.pass(100 * time.Millisecond)
	l.want("there is no such session, so nobody needs to keep it", string(answerDone))

	l.ask(edgeRequest{Adopt: "NOSUCHLOG", Listener: 1, Client: "192.0.2.1:5000"})
	l.pass(100 * time.Millisecond)
	l.want("no listener of its has such clients", string(answerRefused))

	l.edge.draining.Store(true)
	l.ask(edgeRequest{Adopt: "NOSUCHLOG", Listener: 3413, Client: "192.0.2.1:5000"})
	l.ask(edgeRequest{Prepare: []string{"arena"}})
	l.pass(100 * time.Millisecond)
	l.want("it leaves", string(answerRefused), string(answerRefused))
}

// TestAskRefused: whoever asks learns that the other edge refuses, or is not there.
func TestAskRefused(t *testing.T) {
	l := newLeaver(t)
	var got []error
	note := func(_ time.Time, err error) { got = append(got, err) }
	end, err := l.other.Subscribe(l.edge.cfg.Subjects.Edge("e2"), func(m bus.Msg) {
		_ = l.other.Publish(bus.Msg{Subject: m.Reply, Data: answerRefused})
	})
	if err != nil {
		t.Fatal(err)
	}
	l.worker.keeper.ask("e2", edgeRequest{Adopt: "X"}, note)
	l.pass(100 * time.Millisecond)
	end()
	l.worker.keeper.ask("e2", edgeRequest{Adopt: "X"}, note)
	l.pass(adoptAnswer + 100*time.Millisecond)
	if len(got) != 2 || !errors.Is(got[0], errRefused) || got[1] == nil || errors.Is(got[1], errRefused) {
		t.Errorf("the answers are %v, want a refusal, and that nobody is there", got)
	}
}

// TestDrainUnderLoad: an edge whose workers have no room for tasks still begins to drain, and
// learns who takes its sessions.
func TestDrainUnderLoad(t *testing.T) {
	l, w := newTravelled(t)
	l.join(w, strayClient(1))
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
	if n := l.edge.Kept(); n > 0 || l.worker.counts.SessionsHanded != 1 {
		t.Errorf("%d sessions are kept, %d were handed over, want 0 and 1", n, l.worker.counts.SessionsHanded)
	}
}

// TestMust: what must be done wakes the worker, and is done however many tasks there are.
func TestMust(t *testing.T) {
	l := newLeaver(t)
	woken, done := 0, 0
	w, err := l.edge.AddWorker(Listener{Addr: netip.MustParseAddrPort("127.0.0.1:3414")}, nothing{}, func() { woken++ })
	if err != nil {
		t.Fatal(err)
	}
	for w.post(0, func(*Worker, time.Time) {}) {
	}
	woken = 0
	w.keeper.must(func(time.Time) {
		done++
		w.keeper.must(func(time.Time) { done++ })
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

// TestAskedUnderLoad: an edge that has no room for the order to take a session says so at
// once, so that the session has an owner again.
func TestAskedUnderLoad(t *testing.T) {
	l := newLeaver(t)
	l.pass(10 * time.Millisecond)
	for l.worker.post(0, func(*Worker, time.Time) {}) {
	}
	l.ask(edgeRequest{Adopt: "NOSUCHLOG", Listener: 3413, Client: "192.0.2.1:5000"})
	l.net.Run(20 * time.Millisecond)
	l.want("it has no room", string(answerRefused))
}

// TestHeirs: sessions go to edges that work, each to the same one whoever asks.
func TestHeirs(t *testing.T) {
	l := newLeaver(t)
	roster := l.roster
	want := func(why string, names ...string) {
		t.Helper()
		if got := l.edge.roster.heirs(); !slices.Equal(got, names) {
			t.Errorf("%s: the heirs are %v, want %v", why, got, names)
		}
	}
	want("nobody is there")
	if heir := l.edge.roster.heir("X", false); heir != "" {
		t.Errorf("nobody is there, and the heir is %q", heir)
	}
	roster(map[string]cluster.Phase{"e1": cluster.PhaseReady, "e2": cluster.PhaseReady, "e3": cluster.PhaseDraining, "e4": cluster.PhaseStarting})
	want("not itself, and none that leaves or begins", "e2")
	if heir := l.edge.roster.heir("X", false); heir != "e2" {
		t.Errorf("the heir is %q, want the only one that works", heir)
	}
	roster(map[string]cluster.Phase{"e1": cluster.PhaseReady, "e3": cluster.PhaseReady})
	want("e2 is gone, e3 is ready", "e3")
	if !l.edge.roster.dead("e2") || l.edge.roster.alive("e2") || l.edge.roster.dead("e9") {
		t.Error("e2 was there and is not any more; nobody heard of e9")
	}
}

// TestReadyNoMore: whoever asks an edge that has handed everything over is told not to send
// clients, although the bus comes back before the process ends.
func TestReadyNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeaver(t)
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
