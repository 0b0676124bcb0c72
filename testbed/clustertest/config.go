//go:build linux

package clustertest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/testbed/play"
)

// A Config describes a run.
type Config struct {
	Bin      string // folder with relay, edge and nats-server
	NATSConf string // configuration of a NATS server, deploy/nats/nats-server.conf
	Dir      string // for logs and streams; it must exist

	Rounds    int      // of each fault; fewer of those that take long, see Fault
	Faults    []string // names; empty means all
	Seed      uint64   // of all random choices
	Impaired  play.Impairment
	Progress  func(format string, args ...any) // gets one line at a time
	StopAfter time.Duration                    // no round begins later; 0 = no limit
}

// A Fault is a failure that heals again.
type Fault struct {
	Name  string
	About string
	Few   bool // takes long, so it has a tenth of the rounds
}

// Faults returns all faults in the order in which they run.
func Faults() []Fault {
	return []Fault{
		{Name: "kill", About: "kill -9 of the holder, restarted once another holds the shard"},
		{Name: "pause", About: "SIGSTOP of the holder for 0.1 to 10 s, then SIGCONT"},
		{Name: "partition", About: "the holder is cut off from all other hosts for 0.1 to 10 s"},
		{Name: "nats-leader", About: "kill -9 of the NATS server that leads the shard's stream, restarted after 2 to 8 s"},
		{Name: "link", About: "an edge's connections to NATS are reset, or stall for up to 4 s", Few: true},
		{Name: "nats-down", About: "kill -9 of all NATS servers, restarted after 30 s", Few: true},
	}
}

func (c *Config) roundsOf(f Fault) int {
	if f.Few {
		return max(1, c.Rounds/10)
	}
	return c.Rounds
}

func (c *Config) chosen() ([]Fault, error) {
	all := Faults()
	if len(c.Faults) == 0 {
		return all, nil
	}
	var list []Fault
	for _, name := range c.Faults {
		i := slices.IndexFunc(all, func(f Fault) bool { return f.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no fault %q; there are %s", name, names(all))
		}
		list = append(list, all[i])
	}
	return list, nil
}

func names(list []Fault) string {
	var all []string
	for _, f := range list {
		all = append(all, f.Name)
	}
	return strings.Join(all, ", ")
}
