package edge

import (
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus/membus"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

// An audience is clients of one worker, whose output it is.
type audience map[netip.AddrPort]func(p []byte)

func (audience) Datagram(size int) []byte           { return make([]byte, 0, size) }
func (c audience) Send(to netip.AddrPort, p []byte) { c[to](slices.Clone(p)) }
func (audience) Flush() error                       { return nil }

// TestDrainSpread: an edge without durable sessions closes them evenly, is done before its time is over, and
// admits no client meanwhile.
func TestDrainSpread(t *testing.T) {
	const (
		clients, ending = 90, 9 // of each worker, and of those the ones that end by themselves
		timeout         = 20 * time.Second
		window          = timeout - closeTime
		parts           = 9 // of the window, whose closes are counted
	)
	net := simnet.New(1)
	e, err := New(Config{
		Node: "e1", OpenSpace: "s", Bus: membus.New(membus.Config{Schedule: net.Schedule}).Node("e1"), Workers: 1,
		DrainTimeout: timeout, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []*dnptest.Client
	closed := map[string]map[netip.AddrPort]time.Duration{} // by reason
	out, began := audience{}, time.Duration(0)
	connect := func(w *Worker, addr netip.AddrPort) *dnptest.Client {
		c := dnptest.NewClient(dnptest.Config{Behaviour: dnptest.Cpp(), Server: server, Send: func(p []byte) {
			net.Schedule(0, func() { w.Deliver(net.Now(), "", 0, addr, p) })
		}, App: dnptest.App{Closed: func(reason string) {
			if closed[reason] == nil {
				closed[reason] = map[netip.AddrPort]time.Duration{}
			}
			closed[reason][addr] = net.Elapsed() - began
		}}})
		out[addr] = func(p []byte) { net.Schedule(0, func() { c.Receive(net.Now(), server, p) }) }
		all = append(all, c)
		c.Connect(net.Now())
		return c
	}
	for i := range 2 {
		w, err := e.AddWorker(Listener{Addr: server}, out, func() {})
		if err != nil {
			t.Fatal(err)
		}
		for n := range clients {
			connect(w, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i), byte(n), 1}), 5000))
		}
	}
	if err := e.Start(); err != nil {
		t.Fatal(err)
	}
	pass := func(d time.Duration) {
		for end := net.Elapsed() + d; net.Elapsed() < end; net.Run(10 * time.Millisecond) {
			for _, w := range e.workers {
				if _, err := w.Turn(net.Now(), nil); err != nil {
					t.Fatal(err)
				}
			}
			for _, c := range all {
				c.Advance(net.Now())
			}
		}
	}
	pass(2 * time.Second)
	if n := e.sessions.count(); n != 2*clients || !e.Ready() {
		t.Fatalf("the edge has %d sessions, ready %v", n, e.Ready())
	}
	began = net.Elapsed()
	e.BeginDrain()
	for _, c := range all[:ending] {
		c.Close(net.Now())
	}
	late := connect(e.workers[0], netip.MustParseAddrPort("10.9.9.9:5000"))
	pass(100 * time.Millisecond)
	if late.Phase() != dnptest.Closed || e.Ready() {
		t.Errorf("the edge leaves and admits a client (%v), ready %v", late.Phase(), e.Ready())
	}
	pass(window - 100*time.Millisecond)
	if n := e.sessions.count(); n > 0 {
		t.Errorf("%d sessions are left %v before the drain timeout", n, closeTime)
	}
	var perPart [parts + 1]int
	told := closed["closed by the peer"]
	for _, at := range told {
		perPart[at*parts/window]++
	}
	if len(told) != 2*clients-ending {
		t.Errorf("clients are told: %v", closed)
	}
	for i, n := range perPart[1:parts] {
		if want := 2 * clients / parts; n < want-2 || n > want+2 {
			t.Errorf("%d clients are closed in part %d of %d, want %d: %v", n, i+1, parts, want, perPart)
		}
	}
}
