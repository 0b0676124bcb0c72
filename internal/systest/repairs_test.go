package systest

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/view"
	"github.com/dnprelay/dnprelay/subject"
)

// startWideEdge starts an edge with several workers, each of which is a node of the network.
func (w *world) startWideEdge(workers int) (all []*simEdge) {
	w.Helper()
	w.edges++
	name := fmt.Sprintf("wide%d", w.edges)
	cfg := edge.Config{
		Node: name, Workers: workers, Shards: simShards, Flush: 5 * time.Millisecond, OpenSpace: "s",
		Bus: w.hub.Node(name), Subjects: w.subjects, NewID: w.newID, Seed: w.net.Rand().Uint64, Log: slog.New(slog.DiscardHandler),
	}
	e, err := edge.New(cfg)
	if err != nil {
		w.Fatal(err)
	}
	for i := range workers {
		s := &simEdge{
			world: w, node: name, bus: w.hub.Node(name),
			addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(w.edges), byte(i)}), 3413),
		}
		s.worker, err = e.AddWorker(edge.Listener{Profile: wire.Denetwork, Probe: dnp.ProbePing}, s, func() {
			s.wake()
		})
		if err != nil {
			w.Fatal(err)
		}
		w.net.Attach(s.addr, s)
		all = append(all, s)
	}
	if err := e.Start(); err != nil {
		w.Fatal(err)
	}
	return all
}

// answers counts what relays answer to repair requests.
type answers struct {
	whole, states, bytes int
	requests, asked      int
	byReply              map[string]int // whole answers by subject
}

// tap counts answers until the next tap.
func (w *world) tap() *answers {
	a := &answers{byReply: make(map[string]int)}
	w.hub.Tap = func(_ string, m bus.Msg) {
		if strings.HasSuffix(m.Subject, ".repair") {
			a.requests++
			a.asked += len(m.Data)
			return
		}
		if !strings.HasPrefix(m.Subject, subject.Inbox("edge")) {
			return
		}
		h, _, err := view.Parse(m.Data)
		if err != nil || h.Flags&view.FlagReply == 0 {
			return
		}
		a.bytes += len(m.Data)
		switch last := h.Flags&view.FlagLast != 0; {
		case h.Flags&view.FlagKeyframes != 0 && last:
			a.whole++
			a.byReply[m.Subject]++
		case h.Flags&view.FlagStates != 0:
			a.states++
		}
	}
	return a
}

// TestFailoverAnswers lets the holder of a space die that 20 edges with 8 workers each follow. The new holder gives
// each edge one answer, not each worker one.
func TestFailoverAnswers(t *testing.T) {
	const edges, workers, states = 20, 8, 1000
	g := newRing(t, *seed, 2)
	g.hub.Tap = nil // this test counts instead
	put := func(from, to int) {
		var ops []string
		for i := from; i < to; i++ {
			ops = append(ops, fmt.Sprintf(`{"op":"put","key":"k%d","audience":{"groups":["none"]},"values":[{"type":"uint32","value":%d},{"type":"string","value":"some text of a state"}]}`, i, i))
		}
		g.mustPublish("s", `{"ops":[`+strings.Join(ops, ",")+`]}`)
	}
	for i := 0; i < states; i += 250 {
		put(i, i+250)
	}
	var all []*simEdge
	for range edges {
		all = append(all, g.startWideEdge(workers)...)
	}
	moving, n := true, 0
	g.net.Every(20*time.Millisecond, func() bool {
		n++
		g.fire("s", fmt.Sprintf(`{"op":"set","key":"k%d","values":{"0":%d}}`, n%states, n))
		return moving
	})
	joins := g.tap()
	for i := range workers { // so that most workers ask when the answer is there already
		for j := range edges {
			g.connect(all[j*workers+i], dnptest.Cpp(), dnptest.App{})
		}
		g.net.Run(250 * time.Millisecond)
	}
	complete := func() bool {
		_, store := g.authority()
		for _, e := range all {
			if r := e.worker.Replica("s"); r == nil || store == nil || !at(r, store) || r.Len() < states {
				return false
			}
		}
		return true
	}
	g.within(10*time.Second, "all workers have the space", complete)
	t.Logf("%d workers of %d edges join: %d answers in whole, %d bytes", len(all), edges, joins.whole, joins.bytes)
	if joins.whole > edges {
		t.Errorf("%d answers in whole to workers that join, want at most %d", joins.whole, edges)
	}
	g.net.Run(3 * time.Second)
	epoch, _ := all[0].worker.Replica("s").Position()
	a := g.tap()
	g.die(g.holder("s"))
	g.within(10*time.Second, "all workers follow the new holder", func() bool {
		now, _ := all[0].worker.Replica("s").Position()
		return now > epoch && complete()
	})
	g.net.Run(4 * time.Second)
	t.Logf("the holder died: %d requests of %d bytes, %d answers in whole, %d of states, %d bytes", a.requests, a.asked, a.whole, a.states, a.bytes)
	if a.whole > edges {
		t.Errorf("%d answers in whole, want at most %d", a.whole, edges)
	}
	for reply, n := range a.byReply {
		if n > 1 {
			t.Errorf("%s got %d answers", reply, n)
		}
	}
	moving = false
	g.net.Run(time.Second)
	_, store := g.authority()
	for _, e := range all {
		if d := differ(store, e.worker.Replica("s")); d != "" {
			t.Fatalf("a worker of %s differs: %s", e.node, d)
		}
	}
}

// TestLateWorker has a worker take keyframes that another worker of its edge got a moment ago. What was published
// since is there at once, although the space is quiet and the next head is 250 ms away.
func TestLateWorker(t *testing.T) {
	w := newWorld(t, *seed)
	w.startRelay()
	workers := w.startWideEdge(2)
	w.mustPublish("s", `{"op":"put","key":"k","values":[{"type":"uint32","value":1}]}`)
	first := w.join(workers[0], dnptest.Cpp(), dnptest.App{})
	w.within(time.Second, "its worker has the space", func() bool { return first.has("k", 0, u32(1)) })
	a := w.tap()
	for i := range uint32(20) {
		w.mustPublish("s", fmt.Sprintf(`{"op":"set","key":"k","values":{"0":%d}}`, i+2))
		p := w.join(workers[1], dnptest.Cpp(), dnptest.App{})
		w.within(100*time.Millisecond, "the client has the newest value", func() bool { return p.has("k", 0, u32(i+2)) })
	}
	if a.whole != 0 {
		t.Errorf("%d answers in whole, but the other worker's serves", a.whole)
	}
}

// TestHandDamage damages a value in a replica of an edge. It heals, with few bytes, when the state changes next, or in an audit.
func TestHandDamage(t *testing.T) {
	w, e := newWorldWithEdge(t, nil)
	for i := range 100 {
		w.mustPublish("s", fmt.Sprintf(`{"op":"put","key":"k%d","values":[{"type":"uint32","value":%d}]}`, i, i))
	}
	p := w.join(e, dnptest.Cpp(), dnptest.App{})
	w.within(5*time.Second, "the client has all", func() bool { return p.has("k99", 0, u32(99)) })
	w.net.Run(40 * time.Second) // the last checksums were sent
	a := w.tap()
	spoil(e.worker.Replica("s").ByKey("k7"))
	w.within(31*time.Second, "an audit heals the replica", func() bool {
		return string(e.worker.Replica("s").ByKey("k7").Values.Value(0)) == string(u32(7))
	})
	w.net.Run(time.Second)
	if a.whole != 0 || a.states != 1 || a.bytes+a.asked > 1000 {
		t.Errorf("%+v, want one answer with one state", *a)
	}
	if !p.has("k7", 0, u32(7)) {
		t.Errorf("the client has % x", p.Value("k7", 0))
	}
}

// spoil changes the first value of a state in a replica by hand.
func spoil(st *replication.State) {
	v := append([]byte(nil), st.Values.Value(0)...)
	v[len(v)-1] ^= 0x40
	st.Values.Set(0, v)
}

func u32(n uint32) []byte { return []byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)} }
