package edge

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus/membus"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/udp"
	"github.com/dnprelay/dnprelay/internal/simnet"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
)

// A crowd is a worker with many clients that are linked to many states.
type crowd struct {
	testing.TB
	now     time.Time
	edge    *Edge
	bus     *counted
	worker  *Worker
	store   *replication.Store
	clients map[netip.AddrPort]*dnptest.Client
	in      []udp.Datagram
	buf     []byte
	deaf    bool // datagrams are counted and dropped
	sent    int
}

const crowdStates = 100

func newCrowd(t testing.TB, clients int) *crowd {
	c := newClients(t, clients)
	for i := range crowdStates {
		c.publish(fmt.Sprintf(`{"op":"put","key":"k%d","values":[{"type":"vector3f32","value":[0,0,0]},{"type":"quaternionf32","value":[0,0,0,1]}]}`, i))
	}
	c.follow()
	c.settle(400 + clients)
	for _, p := range c.clients {
		if n := len(p.Links()); n < crowdStates {
			t.Fatalf("a client has %d links, want %d", n, crowdStates)
		}
	}
	return c
}

// newClients returns a worker with clients that have connected.
func newClients(t testing.TB, clients int) *crowd {
	c := &crowd{TB: t, now: simnet.Epoch, clients: make(map[netip.AddrPort]*dnptest.Client)}
	hub := membus.New(membus.Config{Schedule: func(time.Duration, func()) {}})
	c.bus = &counted{Bus: hub.Node("e")}
	e, err := New(Config{Node: "e", OpenSpace: "s", Bus: c.bus, Workers: 1, SessionsPerAddress: max(64, clients), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	c.edge = e
	if c.worker, err = e.AddWorker(Listener{Probe: dnp.ProbeNone}, c, func() {}); err != nil {
		t.Fatal(err)
	}
	if err := e.Start(); err != nil {
		t.Fatal(err)
	}
	c.store = replication.NewStore(replication.StoreConfig{Space: "s", Epoch: 1})
	for i := range clients {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 5000)
		c.clients[addr] = dnptest.NewClient(dnptest.Config{Behaviour: dnptest.Cpp(), Send: func(p []byte) {
			c.in = append(c.in, udp.Datagram{From: addr, Data: append([]byte(nil), p...)})
		}})
		c.clients[addr].Connect(c.now)
	}
	c.turn()
	return c
}

// follow lets the replica have what the store has. The first batch cannot be applied without keyframes, which the replica requests.
func (c *crowd) follow() {
	replica := c.worker.Replica("s")
	request, ok := replica.Advance(c.now.Add(10 * time.Second))
	if !ok {
		c.Fatal("the replica requests no keyframes")
	}
	for _, part := range c.store.Repair(c.now, request) {
		replica.ApplyReply(c.now, part)
	}
	c.store.Advance(c.now)
}

// settle lets clients answer what they are sent.
func (c *crowd) settle(turns int) {
	for range turns {
		c.now = c.now.Add(20 * time.Millisecond)
		for _, p := range c.clients {
			p.Advance(c.now)
		}
		c.turn()
	}
}

func (c *crowd) turn() {
	in := c.in
	c.in = nil
	if _, err := c.worker.Turn(c.now, in); err != nil {
		c.Fatal(err)
	}
}

// publish gives the store a payload and returns the batch.
func (c *crowd) publish(body string) []byte {
	p, err := payload.JSON.Parse([]byte(body), "")
	if err != nil {
		c.Fatal(err)
	}
	c.store.Publish(c.now, p)
	var batch []byte
	for _, o := range c.store.Advance(c.now) {
		if o.Kind == replication.OutputBatch {
			batch = o.Data
		}
	}
	return batch
}

func (c *crowd) Datagram(size int) []byte {
	if cap(c.buf) < size {
		c.buf = make([]byte, 0, size)
	}
	return c.buf[:0]
}

func (c *crowd) Send(to netip.AddrPort, b []byte) {
	c.sent += len(b)
	if !c.deaf {
		c.clients[to].Receive(c.now, to, b)
	}
}

func (c *crowd) Flush() error { return nil }

// batches returns batches that change all states, to be applied in this order.
func (c *crowd) batches(n int) [][]byte {
	var all [][]byte
	for i := range n {
		var ops []string
		for k := range crowdStates {
			ops = append(ops, fmt.Sprintf(`{"op":"set","key":"k%d","values":{"0":[%d,%d,3],"1":[%d,0,0,1]}}`, k, i+1, i+1, i+1))
		}
		all = append(all, c.publish(`{"ops":[`+strings.Join(ops, ",")+`]}`))
	}
	return all
}

// BenchmarkFanOut brings a batch of 100 changed states (position and rotation, 28
// bytes) to 200 clients. One operation is one batch, 20,000 updates.
func BenchmarkFanOut(b *testing.B) {
	const clients = 200
	c := newCrowd(b, clients)
	c.deaf = true
	batches := c.batches(b.N)
	before := c.worker.ep.Stats().UpdatesOut
	c.sent = 0
	b.ReportAllocs()
	b.ResetTimer()
	for _, batch := range batches {
		c.now = c.now.Add(50 * time.Millisecond)
		c.worker.post(len(batch), func(w *Worker, now time.Time) { w.live(now, "s", batch) })
		if _, err := c.worker.Turn(c.now, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	if n := c.worker.ep.Stats().UpdatesOut - before; n < uint64(b.N)*clients*crowdStates {
		b.Fatalf("%d updates for %d batches", n, b.N)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*clients*crowdStates), "ns/update")
	b.ReportMetric(float64(c.sent)/float64(b.N*clients*crowdStates), "B/update")
}

// A field is a crowd that is spread among states with an interest, as bench-interest has them: one client for twenty states,
// and a field of 1,600 for each of them.
const (
	fieldStates  = 1000
	fieldClients = fieldStates / 20
	fieldParts   = 20 // batches in which all states change
)

func newField(t testing.TB) *crowd {
	c := newClients(t, fieldClients)
	c.publish(`{"op":"interest","name":"near","at":"pos","axes":"xz","bands":[{"within":100},{"within":300,"rate":5,"precision":4},{"within":600,"rate":1,"precision":16}]}`)
	for i := range fieldStates {
		c.publish(fmt.Sprintf(`{"op":"put","key":"k%d","interest":"near","values":[{"name":"pos","type":"vector3f16","precision":0.1,"value":%s},{"name":"rot","type":"quaternionf16","value":[0,0,0,1]}]}`, i, fieldPlace(i, 0)))
	}
	c.follow()
	c.settle(10) // the holder answers that it knows the clients
	for i, p := range c.worker.spaces.Presences("s") {
		c.store.Join(p.Client, p.Session)
		batch := c.publish(fmt.Sprintf(`{"op":"eye","client":%q,"at":"k%d"}`, p.Client, i))
		c.worker.post(len(batch), func(w *Worker, now time.Time) { w.live(now, "s", batch) })
	}
	c.settle(1000)
	links := 0
	for _, p := range c.clients {
		links += len(p.Links())
	}
	if links < fieldClients*fieldStates/5 {
		t.Fatalf("the clients have %d links", links)
	}
	return c
}

// fieldPlace returns where a state is, of which one that moves to and fro stays within a metre. The places of a lattice that is
// turned are spread evenly.
func fieldPlace(i, round int) string {
	const side, row = 1265, 32
	x, z := float64(i%row)/row*side, float64(i/row)/row*side
	return fmt.Sprintf("[%.1f,0,%.1f]", x-side/2+float64(i*7%41)/2+float64(round%2), z-side/2+float64(i*11%43)/2)
}

// BenchmarkField brings a batch of 50 changed states to those of 50 clients that are near enough. One operation is one batch,
// with the turns that the worker wants until the next one. The clients acknowledge nothing, so that a minute of batches is the most.
func BenchmarkField(b *testing.B) {
	c := newField(b)
	c.deaf = true
	set := func(round, part int) []byte {
		var ops []string
		for i := part; i < fieldStates; i += fieldParts {
			ops = append(ops, fmt.Sprintf(`{"op":"set","key":"k%d","values":{"0":%s,"1":[%d,0,0,1]}}`, i, fieldPlace(i, round), round))
		}
		return c.publish(`{"ops":[` + strings.Join(ops, ",") + `]}`)
	}
	var batches [][]byte
	for i := range b.N {
		batches = append(batches, set(1+i/fieldParts, i%fieldParts))
	}
	before := *c.worker.ep.Stats()
	turns := 0
	b.ReportAllocs()
	b.ResetTimer()
	for _, batch := range batches {
		c.worker.post(len(batch), func(w *Worker, now time.Time) { w.live(now, "s", batch) })
		for end := c.now.Add(50 * time.Millisecond / fieldParts); c.now.Before(end); turns++ {
			next, err := c.worker.Turn(c.now, nil)
			if err != nil {
				b.Fatal(err)
			}
			if least := c.now.Add(100 * time.Microsecond); next.Before(least) { // a turn takes time
				next = least
			}
			if c.now = end; next.Before(end) {
				c.now = next
			}
		}
	}
	b.StopTimer()
	n := float64(b.N) * fieldStates / fieldParts
	b.ReportMetric(float64(turns)/float64(b.N), "turns/batch")
	b.ReportMetric(float64(c.worker.ep.Stats().DatagramsOut-before.DatagramsOut)/n, "datagrams/change")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/n, "ns/change")
	b.ReportMetric(float64(c.worker.ep.Stats().UpdatesOut-before.UpdatesOut)/n, "updates/change")
}

// TestFanOutAllocates wants no allocation per update.
func TestFanOutAllocates(t *testing.T) {
	c := newCrowd(t, 20)
	c.deaf = true
	batches := c.batches(40)
	i := 0
	n := testing.AllocsPerRun(30, func() {
		batch := batches[i]
		i++
		c.now = c.now.Add(20 * time.Millisecond)
		c.worker.post(len(batch), func(w *Worker, now time.Time) { w.live(now, "s", batch) })
		if _, err := c.worker.Turn(c.now, nil); err != nil {
			t.Fatal(err)
		}
	})
	if n > 10 {
		t.Errorf("%v allocations for a batch of %d updates", n, 20*crowdStates)
	}
	st := c.worker.Replica("s").ByKey("k0")
	if got := binary.LittleEndian.Uint32(st.Values.Value(0)); got == 0 {
		t.Error("no batch was applied")
	}
}
