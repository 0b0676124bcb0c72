package dnprelaytest_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/dnprelaytest"
)

// BenchmarkMoves has 40 clients write position and rotation of a state of their own 20 times a second. An operation is one write
// of each client. It reports, for a write, the bytes and datagrams that the client sends and receives (without UDP and IP), and
// the processor time of clients, edge, relay and NATS.
func BenchmarkMoves(b *testing.B) {
	const clients = 40
	srv := dnprelaytest.Start(b)
	var all []*client.Client
	var states []*client.State
	for range clients {
		c, err := client.Dial(b.Context(), srv.Edge, client.Config{})
		if err != nil {
			b.Fatal(err)
		}
		s, err := c.Offer("me", client.Field{Name: "pos", Type: "vector3f32"}, client.Field{Name: "rot", Type: "quaternionf32"})
		if err != nil {
			b.Fatal(err)
		}
		if err := s.SetConfirmed(b.Context(), "pos", [3]float32{}); err != nil {
			b.Fatal(err)
		}
		all, states = append(all, c), append(states, s)
	}
	count := func() (now [4]uint64) { // bytes and datagrams out, bytes and datagrams in
		for _, c := range all {
			s := c.Stats()
			for i, n := range [4]uint64{s.BytesOut, s.DatagramsOut, s.BytesIn, s.DatagramsIn} {
				now[i] += n
			}
		}
		return now
	}
	before, cpu := count(), cpuTime(b)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for i := range b.N {
		<-tick.C
		for _, s := range states {
			if err := s.SetAt(0, [3]float32{float32(i), 1, 2}); err != nil {
				b.Fatal(err)
			}
			if err := s.SetAt(1, [4]float32{float32(i), 0, 0, 1}); err != nil {
				b.Fatal(err)
			}
		}
	}
	cpu = cpuTime(b) - cpu
	sum := count()
	writes := float64(b.N * clients)
	for i, unit := range [4]string{"out-B/write", "out-datagrams/write", "in-B/write", "in-datagrams/write"} {
		b.ReportMetric(float64(sum[i]-before[i])/writes, unit)
	}
	b.ReportMetric(float64(cpu.Microseconds())/writes, "cpu-us/write")
}

// cpuTime returns the user and system time of this process.
func cpuTime(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
