package forward

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// A bin is a Sender that keeps the last datagram, in one buffer.
type bin struct {
	buf  [1600]byte
	last []byte
}

func (b *bin) Datagram(int) []byte             { return b.buf[:0] }
func (b *bin) Send(_ netip.AddrPort, p []byte) { b.last = p }

// two returns two edges that know each other; the second serves client 1.
func two(tb testing.TB) (a, b *Router) {
	tb.Helper()
	var list []Peer
	for i, name := range []string{"a", "b"} {
		list = append(list, Peer{name, uint64(i + 1), netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 7947)})
	}
	var routers [2]*Router
	for i, p := range list {
		r, err := New(epoch, Config{Node: p.Name, ID: p.ID, Serves: func(c Client) (uint64, bool) { return 1, i == 1 }})
		if err == nil {
			err = r.SetKeys([][]byte{keyA})
		}
		if err != nil {
			tb.Fatal(err)
		}
		r.SetPeers(epoch, list)
		routers[i] = r
	}
	return routers[0], routers[1]
}

// TestAllocations: nothing is allocated for a datagram, once both edges have met and the
// client is known.
func TestAllocations(t *testing.T) {
	a, b := two(t)
	data := make([]byte, 1200)
	var out, back bin
	if n := testing.AllocsPerRun(1000, func() {
		if !a.In(epoch, "b", client(1), 0, data, &out) {
			t.Fatal("not sent")
		}
		d := b.Receive(epoch, out.last, &back)
		if d.Kind != ToOwner {
			t.Fatal("not taken")
		}
		if !b.Out(epoch, d.Via, client(1), 1, data, &back) || a.Receive(epoch, back.last, &out).Kind != ToClient {
			t.Fatal("no answer")
		}
		out.last[20] ^= 1
		b.Receive(epoch, out.last, &back) // forged
	}); n != 0 {
		t.Errorf("%v allocations for a datagram there and back", n)
	}
	now := epoch
	if n := testing.AllocsPerRun(1000, func() {
		now = now.Add(HeartbeatInterval)
		a.Advance(now, &out)
		b.Receive(now, out.last, &back)
	}); n != 0 {
		t.Errorf("%v allocations for a heartbeat", n)
	}
}

func BenchmarkSeal(b *testing.B) {
	for _, size := range []int{40, 200, 1200} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			from, _ := two(b)
			data := make([]byte, size)
			var out bin
			b.SetBytes(int64(size))
			for b.Loop() {
				from.In(epoch, "b", client(1), 0, data, &out)
			}
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	for _, size := range []int{40, 200, 1200} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			from, to := two(b)
			data := make([]byte, size)
			var out bin
			sealed := make([][]byte, 1024)
			keep := make([]byte, 0, 2000)
			for i := range sealed {
				from.In(epoch, "b", client(1), 0, data, &out)
				sealed[i] = append([]byte(nil), out.last...)
			}
			b.SetBytes(int64(size))
			i := 0
			for b.Loop() {
				if i&1023 == 0 {
					to.byID[1].window = window{}
				}
				keep = append(keep[:0], sealed[i&1023]...)
				if to.Receive(epoch, keep, &out).Kind != ToOwner {
					b.Fatal("not taken")
				}
				i++
			}
		})
	}
}

// BenchmarkForged is what a datagram costs that no peer sealed, under a name that is known.
func BenchmarkForged(b *testing.B) {
	from, to := two(b)
	var out bin
	from.In(epoch, "b", client(1), 0, make([]byte, 1200), &out)
	forged := append([]byte(nil), out.last...)
	forged[len(forged)-1] ^= 1
	p := make([]byte, len(forged))
	for b.Loop() {
		copy(p, forged)
		to.Receive(epoch, p, &out)
	}
}

// BenchmarkBeat is a turn of heartbeats in a full mesh of 64 edges.
func BenchmarkBeat(b *testing.B) {
	r, _ := two(b)
	var list []Peer
	for i := range meshMax {
		list = append(list, Peer{fmt.Sprint("edge-", i), uint64(i + 10), netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}), 7947)})
	}
	r.SetPeers(epoch, list[1:])
	var out bin
	now := epoch
	for b.Loop() {
		now = now.Add(HeartbeatInterval)
		r.Advance(now, &out)
	}
}

// BenchmarkSetPeers is a new roster of a thousand edges.
func BenchmarkSetPeers(b *testing.B) {
	r, _ := two(b)
	var list []Peer
	for i := range 1000 {
		list = append(list, Peer{fmt.Sprint("edge-", i), uint64(i + 10), netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 1, 1}), uint16(i))})
	}
	for b.Loop() {
		r.SetPeers(epoch, list)
	}
}

// TestMemory: a fence that is full.
func TestMemory(t *testing.T) {
	a, _ := two(t)
	for i := range 70_000 {
		c := client(i)
		c.Addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 1)
		a.fence.touch(c.key()).observe(0, 1)
	}
	if s := a.Stats(epoch.Add(time.Second)); s.Clients != 65_536 || s.ClientsForgotten != 70_000-65_536 {
		t.Errorf("%d clients, %d forgotten", s.Clients, s.ClientsForgotten)
	}
}
