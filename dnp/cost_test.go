package dnp

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A counter is a Sender that counts.
type counter struct {
	buf              []byte
	datagrams, bytes int
}

func (d *counter) Datagram(size int) []byte {
	if cap(d.buf) < size {
		d.buf = make([]byte, 0, size)
	}
	return d.buf[:0]
}

func (d *counter) Send(_ netip.AddrPort, b []byte) {
	d.datagrams++
	d.bytes += len(b)
}

// A crowd is a server with states of position and rotation, 28 bytes, that every
// client is linked to.
type crowd struct {
	e       *Endpoint
	out     counter
	now     time.Time
	sources []*Source
}

func clientAddr(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 1000)
}

func newCrowd(tb testing.TB, states, clients int, types ...string) *crowd {
	tb.Helper()
	e, err := New(Config{Listen: true, Probe: ProbeNone, Rand: newRand(tb), LinksMax: LinksPossible, BytesPerSecond: 1 << 30, OfferBytesPerSecond: -1})
	if err != nil {
		tb.Fatal(err)
	}
	c := &crowd{e: e, now: epoch}
	for range states {
		c.sources = append(c.sources, e.NewSource(SourceConfig{State: newState(tb, types...), Message: []byte("M")}))
	}
	for i := range clients {
		c.join(tb, clientAddr(i))
	}
	c.e.Flush(c.now, &c.out)
	return c
}

// join connects a client and brings up all its links.
func (c *crowd) join(tb testing.TB, addr netip.AddrPort) {
	events := c.e.Receive(c.now, addr, unhex("0001000000"), &c.out)
	if len(events) != 1 {
		tb.Fatal("not connected")
	}
	conn := events[0].Conn
	for _, s := range c.sources {
		if err := conn.Link(s, true); err != nil {
			tb.Fatal(err)
		}
	}
	for i := range c.sources {
		c.e.Advance(c.now, &c.out)
		c.e.Receive(c.now, addr, wire.ReliableAck{Seq: wire.Denetwork.Seq(conn.send.base())}.Append(nil), &c.out)
		c.e.Receive(c.now, addr, wire.LinkUp{Link: wire.LinkID(0x8000 + i)}.Append(nil), &c.out)
	}
}

var posRot = []string{"vector3f32", "quaternionf32"}

// move changes every state.
func (c *crowd) move(n int) {
	var v [16]byte
	binary.LittleEndian.PutUint64(v[:], uint64(n+1))
	for _, s := range c.sources {
		s.State().Set(0, v[:12])
		s.State().Set(1, v[:16])
		s.Changed(0)
		s.Changed(1)
	}
}

func TestFlushAllocs(t *testing.T) {
	c := newCrowd(t, 20, 10, posRot...)
	n := 0
	turn := func() {
		n++
		c.move(n)
		c.now = c.now.Add(50 * time.Millisecond)
		c.e.Advance(c.now, &c.out)
		c.e.Flush(c.now, &c.out)
	}
	turn()
	if got := testing.AllocsPerRun(100, turn); got != 0 {
		t.Errorf("a flush of 200 updates makes %v allocations, want 0", got)
	}
}

func TestReceiveAllocs(t *testing.T) {
	s, _ := linked(t, quiet(), false, "uint8")
	var out counter
	var n uint64
	s.c.send.next = 0
	cases := []struct {
		name string
		next func() []byte
	}{
		{"reliable message in order", func() []byte { return relMessage(s.c.recv.next) }},
		{"reliable message early", func() []byte { n++; return relMessage(s.c.recv.next + 1 - n%2) }},
		{"unreliable message", func() []byte { return messageDatagram }},
		{"LinkUpdate", func() []byte { return updateDatagram }},
		{"repeat", func() []byte { return relMessage(s.c.recv.next - 1) }},
		{"nonsense", func() []byte { return messageDatagram[:0] }},
	}
	for _, tt := range cases {
		turn := func() { s.e.Receive(s.now, peerAddr, tt.next(), &out) }
		for range 10 {
			turn()
		}
		if got := testing.AllocsPerRun(100, turn); got != 0 {
			t.Errorf("%s: %v allocations, want 0", tt.name, got)
		}
	}
	s.c.Send([]byte("m"), 0)
	s.e.Advance(s.now, &out)
	ack := wire.ReliableAck{Seq: wire.Seq(s.c.send.base())}.Append(nil)
	o := s.c.send.flight[0]
	if got := testing.AllocsPerRun(100, func() {
		s.e.Receive(s.now, peerAddr, ack, &out)
		s.c.send.flight = append(s.c.send.flight[:0], o)
	}); got != 0 {
		t.Errorf("acknowledgement: %v allocations, want 0", got)
	}
}

var (
	messageDatagram = unhex("03 6869")
	updateDatagram  = unhex("09 01 0080 01 0000 07")
	relDatagram     [8]byte
)

func relMessage(n uint64) []byte {
	return wire.ReliableMessage{Seq: wire.Denetwork.Seq(n), Data: messageDatagram}.Append(relDatagram[:0])
}

// TestMemory measures the memory of idle clients and links.
func TestMemory(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	used := func(states, clients int) float64 {
		before := heap()
		c := newCrowd(t, states, clients, "uint8")
		c.now = c.now.Add(time.Second)
		c.e.Advance(c.now, &c.out)
		c.e.Flush(c.now, &c.out)
		n := float64(heap() - before)
		runtime.KeepAlive(c)
		return n
	}
	perClient := func(states int) float64 { return (used(states, 200) - used(states, 100)) / 100 } // without the states themselves
	ten, thousand := perClient(10), perClient(1000)
	perLink := (thousand - ten) / 990
	t.Logf("%.0f bytes per idle client with ten links, %.1f bytes per further link", ten, perLink)
	if ten > 16<<10 {
		t.Errorf("an idle client with ten links takes %.0f bytes, want at most 16 KiB", ten)
	}
	if perLink > 32 {
		t.Errorf("a further idle link takes %.1f bytes, want at most 32", perLink)
	}
}

func BenchmarkFlush(b *testing.B) {
	for _, size := range []struct{ states, clients int }{{100, 200}, {10, 200}, {1000, 20}} {
		b.Run(fmt.Sprintf("states=%d/clients=%d", size.states, size.clients), func(b *testing.B) {
			c := newCrowd(b, size.states, size.clients, posRot...)
			c.out = counter{}
			before := c.e.stats.UpdatesOut
			b.ReportAllocs()
			b.ResetTimer()
			n := 0
			for b.Loop() {
				n++
				c.move(n)
				c.now = c.now.Add(50 * time.Millisecond)
				c.e.Flush(c.now, &c.out)
			}
			updates := float64(c.e.stats.UpdatesOut - before)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/updates, "ns/update")
			b.ReportMetric(float64(c.out.bytes+28*c.out.datagrams)/updates, "wirebytes/update")
		})
	}
}

// BenchmarkFlushBehind is the case in which encoding once does not help: each link lacks
// other values.
func BenchmarkFlushBehind(b *testing.B) {
	c := newCrowd(b, 100, 200, posRot...)
	before := c.e.stats.UpdatesOut
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		c.move(n)
		for conn := range c.e.All {
			for i := range conn.links.slots {
				conn.links.slots[i].sent--
			}
		}
		c.now = c.now.Add(50 * time.Millisecond)
		c.e.Flush(c.now, &c.out)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(c.e.stats.UpdatesOut-before), "ns/update")
}

func BenchmarkReceive(b *testing.B) {
	setup := func(b *testing.B) *crowd { return newCrowd(b, 10, 200, posRot...) }
	b.Run("message", func(b *testing.B) {
		c := setup(b)
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			n++
			c.e.Receive(c.now, clientAddr(n%200), messageDatagram, &c.out)
		}
	})
	b.Run("reliable", func(b *testing.B) {
		c := setup(b)
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			c.e.Receive(c.now, clientAddr(n%200), relMessage(uint64(n/200)), &c.out)
			n++
		}
	})
}

// BenchmarkLateJoin connects one more client to 100 states that 200 others have.
func BenchmarkLateJoin(b *testing.B) {
	c := newCrowd(b, 100, 200, posRot...)
	b.ReportAllocs()
	for b.Loop() {
		c.join(b, peerAddr)
		conn, _ := c.e.Conn(peerAddr)
		conn.Close(CloseLocal)
		c.e.Advance(c.now, &c.out)
	}
}

// An answerer is a Sender whose peers acknowledge what is reliable, and refuse offers: without that, they count as
// dead.
type answerer struct {
	counter
	answers []datagram
}

type datagram struct {
	from netip.AddrPort
	data []byte
}

func (a *answerer) Send(to netip.AddrPort, b []byte) {
	a.counter.Send(to, b)
	cmd, seq, _ := wire.Numbered(b)
	if isReliable(cmd, wire.Denetwork) {
		a.answers = append(a.answers, datagram{to, wire.ReliableAck{Seq: seq}.Append(nil)})
	}
	if cmd == wire.CommandReliableLinkState {
		a.answers = append(a.answers, datagram{to, append([]byte{byte(wire.CommandLinkDown)}, b[3:5]...)})
	}
}

// BenchmarkIdle is a second of 1,000 idle clients with ten links each, which answer what the server asks.
func BenchmarkIdle(b *testing.B) {
	c := newCrowd(b, 10, 1000, posRot...)
	var out answerer
	seconds := 0
	for b.Loop() {
		seconds++
		end := c.now.Add(time.Second)
		for {
			at, ok := c.e.NextTimeout()
			if !ok || at.After(end) {
				break
			}
			if at.After(c.now) {
				c.now = at
			}
			c.e.Advance(c.now, &out)
			c.e.Flush(c.now, &out)
			for _, a := range out.answers {
				c.e.Receive(c.now, a.from, a.data, &out.counter)
			}
			out.answers = out.answers[:0]
		}
		c.now = end
	}
	left := 0
	for range c.e.All {
		left++
	}
	if left != 1000 {
		b.Errorf("%d clients are left, want 1,000", left)
	}
	b.ReportMetric(float64(out.datagrams)/float64(seconds), "datagrams/s")
}
