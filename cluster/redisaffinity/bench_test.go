package redisaffinity

import (
	"fmt"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
)

// BenchmarkRenew writes claims as renewals do, a full part at a time.
func BenchmarkRenew(b *testing.B) {
	s := startServer(b)
	a := start(b, s.url(), "a", func(c *Config) { c.Renew = time.Hour }).ready(b)
	names := make([]string, 10_000)
	for i := range names {
		names[i] = fmt.Sprintf("NAME%012d", i)
	}
	round := 0
	for b.Loop() {
		round++
		before := a.Stats().Writes
		for _, n := range names {
			a.Claim(n, 1)
		}
		for a.Stats().Writes < before+uint64(len(names)) {
			time.Sleep(time.Millisecond)
		}
	}
	b.ReportMetric(float64(round*len(names))/b.Elapsed().Seconds(), "claims/s")
	info, err := client(b, s.url()).MemoryUsage(b.Context(), a.servers[0].record(names[0])).Result()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(info), "B/record")
}

// BenchmarkFind asks one question after the other.
func BenchmarkFind(b *testing.B) {
	a := start(b, startServer(b).url(), "a", nil).ready(b)
	a.Claim("S", 1)
	done := make(chan error, 1)
	for b.Loop() {
		a.Find("S", func(_ cluster.Served, err error) { done <- err })
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
}
