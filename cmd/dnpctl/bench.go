package main

import (
	"fmt"
	"time"

	"github.com/dnprelay/dnprelay/internal/config"
)

type benchCommand struct {
	Quick   bool          `env:"-" help:"Only a few cases, in less than a minute."`
	Only    string        `env:"-" placeholder:"SERIES" help:"Only this series: sweep, half or model."`
	Case    string        `env:"-" placeholder:"STATES,HZ,CLIENTS,EDGES[,LINKS]" help:"Only this case, with every client linked to all states, or to so many."`
	Model   string        `env:"-" default:"all" help:"What changes with --case: all values, tenth = every tenth, sine = slowly and filtered by precision."`
	Rounds  int           `env:"-" default:"5" help:"Windows per case, each with its baselines; the table has medians."`
	Window  time.Duration `env:"-" default:"1.2s" help:"How long one window takes."`
	Workers int           `env:"-" default:"1" help:"Workers of each edge."`
	Tick    time.Duration `env:"-" default:"10ms" help:"Tick of the relay."`
	Flush   time.Duration `env:"-" default:"5ms" help:"Flush interval of the edges."`
	Pin     bool          `env:"-" help:"Edges on core 0, everything else on core 1."`
	Bin     string        `env:"-" placeholder:"DIR" help:"Folder of the programs relay and edge; empty = that of dnpctl."`
	JSON    string        `name:"json" env:"-" placeholder:"FILE" help:"Write all figures to this file, too."`
}

// Problems lists the invalid flags of c.
func (c *benchCommand) Problems() (list config.Problems) {
	if c.Rounds < 1 || c.Rounds > 99 {
		list = append(list, fmt.Sprintf("--rounds: want 1 to 99, got %d", c.Rounds))
	}
	if c.Window < 100*time.Millisecond || c.Window > time.Minute {
		list = append(list, fmt.Sprintf("--window: want 100ms to 1m, got %v", c.Window))
	}
	if c.Workers < 1 || c.Workers > 64 {
		list = append(list, fmt.Sprintf("--workers: want 1 to 64, got %d", c.Workers))
	}
	return list
}

// benchNATSCommand is the NATS server of a benchmark, in a process of its own.
type benchNATSCommand struct {
	Listen string `arg:"" help:"ADDRESS:PORT."`
}

// benchSendCommand is a baseline of a benchmark, in a process of its own.
type benchSendCommand struct{}
