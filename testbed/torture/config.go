//go:build linux

package torture

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/testbed/play"
)

// A Config describes a run.
type Config struct {
	play.MatchConfig // but for the numbers of relays and edges

	Phases    []string      // names; empty means all
	Scale     float64       // factor on the number of faults
	StopAfter time.Duration // no fault begins later; 0 = no limit
}

// A PhaseKind is faults of one kind.
type PhaseKind struct {
	Name    string
	About   string
	Count   int  // of faults at scale 1
	Excused bool // its interruptions are figures, not violations
	Cluster bool // needs three NATS servers
}

// Phases returns all phases in their order.
func Phases() []PhaseKind {
	return []PhaseKind{
		{Name: "calm", About: "nothing, for comparison", Count: 4},
		{Name: "kill", About: "kill -9 of the edge with most clients", Count: 200},
		{Name: "stop", About: "SIGSTOP of the edge with most clients for 0.1 to 10 s, then SIGCONT", Count: 40},
		{Name: "drain", About: "SIGTERM of each edge in turn; flows move with the next datagram of their client", Count: 90},
		{Name: "drain-flush", About: "the same, but flows move at once, which cuts off the answers of the leaving edge", Count: 15},
		{Name: "spray", About: "each datagram to any edge, in turn with pinned flows", Count: 12},
		{Name: "redis-kill", About: "kill -9 of Redis, then of an edge, then Redis again", Count: 10},
		{Name: "redis-flush", About: "FLUSHALL, then kill -9 of an edge", Count: 10},
		{Name: "redis-lies", About: "wrong owners in Redis, then kill -9 of an edge", Count: 10},
		{Name: "redis-stop", About: "SIGSTOP of Redis for 5 s, and kill -9 of an edge meanwhile", Count: 10},
		{Name: "nats-leader", About: "kill -9 of the NATS server that leads most session logs", Count: 10, Excused: true, Cluster: true},
	}
}

func (c *Config) chosen() (list []PhaseKind, err error) {
	for _, p := range Phases() {
		if p.Cluster && c.NATS < 3 && !slices.Contains(c.Phases, p.Name) {
			continue
		}
		if len(c.Phases) == 0 || slices.Contains(c.Phases, p.Name) {
			p.Count = max(1, int(float64(p.Count)*c.Scale))
			list = append(list, p)
		}
	}
	if len(list) < len(c.Phases) {
		var all []string
		for _, p := range Phases() {
			all = append(all, p.Name)
		}
		return nil, fmt.Errorf("phases %s: there are only %s", strings.Join(c.Phases, ", "), strings.Join(all, ", "))
	}
	return list, nil
}
