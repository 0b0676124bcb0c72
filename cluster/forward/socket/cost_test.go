//go:build linux

package socket

import (
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster/forward"
	"github.com/dnprelay/dnprelay/dnp/udp"
)

// BenchmarkCost compares datagrams of 1,200 bytes to a client that an edge sends itself
// with those that it returns by another edge: sealed, sent, opened, given to a worker and
// sent. The processor time is that of all, with the client's reading; rounds of both
// alternate, and the medians are shown.
func BenchmarkCost(b *testing.B) {
	client := socket(b)
	worker := socket(b) // of the edge that the client knows
	handed := make(chan [][]byte, 64)
	a := open(b, "a", false, func(_ time.Time, list []forward.Delivery) {
		var copies [][]byte
		for _, d := range list {
			copies = append(copies, append([]byte(nil), d.Data...))
		}
		handed <- copies
	})
	owner := open(b, "b", true, nil)
	meet(b, a, owner)
	to := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), client.LocalAddr().Port())
	data := make([]byte, 1200)

	send := func(p []byte) { worker.Writer().Send(to, append(worker.Writer().Datagram(len(p)), p...)) }
	direct := func() {
		for range 64 {
			send(data)
		}
		flush(b, worker)
	}
	returned := func() {
		for range 64 {
			owner.Return("a", forward.Client{Addr: to, Listener: 1}, 1, data)
		}
		for n := 0; n < 64; {
			for _, p := range <-handed {
				send(p)
				n++
			}
			flush(b, worker)
		}
	}
	var costs [2][]float64
	for b.Loop() {
		for i, round := range [2]func(){direct, returned} {
			before := processorTime(b)
			for range 50 {
				round()
				read(b, client, 64)
			}
			costs[i] = append(costs[i], float64(processorTime(b)-before)/(50*64))
		}
	}
	slices.Sort(costs[0])
	slices.Sort(costs[1])
	d, r := costs[0][len(costs[0])/2], costs[1][len(costs[1])/2]
	b.ReportMetric(d, "direct-cpu-ns")
	b.ReportMetric(r, "returned-cpu-ns")
	b.ReportMetric(r/d, "ratio")
}

func socket(b *testing.B) *udp.Socket {
	s, err := udp.Open(udp.Config{Addr: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

func flush(b *testing.B, s *udp.Socket) {
	if err := s.Writer().Flush(); err != nil {
		b.Fatal(err)
	}
}

func read(b *testing.B, s *udp.Socket, n int) {
	batch := make([]udp.Datagram, 64)
	s.SetReadDeadline(time.Now().Add(patience))
	for n > 0 {
		got, err := s.ReadBatch(batch)
		if err != nil {
			b.Fatal(err)
		}
		n -= got
	}
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
