//go:build linux

package lab

import (
	"testing"

	"github.com/dnprelay/dnprelay/testbed/bench"
)

func TestTrends(t *testing.T) {
	results := []bench.Result{
		{Name: "sweep", Clients: 7, EdgeCores: 1},
		{Name: "clients", Clients: 100, EdgeCores: 0.001, RSSPerClient: 20},
		{Name: "clients", Clients: 200, EdgeCores: 0.003, RSSPerClient: 15},
		{Name: "clients", Clients: 1100, EdgeCores: 0.012, RSSPerClient: 10},
		{Name: "links", Clients: 10, Links: 3}, // alone: there is no slope
	}
	want := Trend{
		Series: "clients", Unit: "client", From: 100, To: 1100,
		CPU:    Slope{Whole: 11, Least: 10, Most: 20, Last: 10},
		Memory: Slope{Whole: 9, Least: 80.0 / 9, Most: 10, Last: 80.0 / 9},
	}
	got := Trends(results)
	if len(got) != 1 || got[0].Series != want.Series || got[0].Unit != want.Unit || got[0].From != want.From || got[0].To != want.To ||
		!near(got[0].CPU, want.CPU) || !near(got[0].Memory, want.Memory) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func near(a, b Slope) bool {
	close := func(x, y float64) bool { return x-y < 1e-6 && y-x < 1e-6 }
	return close(a.Whole, b.Whole) && close(a.Least, b.Least) && close(a.Most, b.Most) && close(a.Last, b.Last)
}
