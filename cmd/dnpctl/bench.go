package main

import (
	"time"

	"github.com/dnprelay/dnprelay/internal/bench"
	"github.com/dnprelay/dnprelay/internal/config"
)

type benchCommand struct {
	Quick bool   `env:"-" help:"Only a few cases, in less than a minute."`
	Only  string `env:"-" placeholder:"SERIES" help:"Only this series: sweep, half or model."`
	Case  string `env:"-" placeholder:"STATES,HZ,CLIENTS,EDGES[,LINKS]" help:"Only this case, with every client linked to all states, or to so many."`
	Model string `env:"-" default:"all" help:"What changes with --case: all values, tenth = every tenth, sine = slowly and filtered by precision."`

	Carrier []string `env:"-" placeholder:"udp,websocket,webtransport" help:"How clients come, with --case or --idle. Several are measured side by side."`
	Idle    int      `env:"-" placeholder:"CLIENTS" help:"Only so many clients that are linked to five states of which none changes: what they cost in memory."`

	bench.Flags
}

// Problems lists the invalid flags of c.
func (c *benchCommand) Problems() (list config.Problems) {
	if c.Rounds < 1 || c.Rounds > 99 {
		list.Add("--rounds", "want 1 to 99, got %d", c.Rounds)
	}
	if c.Window < 100*time.Millisecond || c.Window > time.Minute {
		list.Add("--window", "want 100ms to 1m, got %v", c.Window)
	}
	if c.Workers < 1 || c.Workers > 64 {
		list.Add("--workers", "want 1 to 64, got %d", c.Workers)
	}
	if c.Idle < 0 || c.Idle > 0 && c.Case != "" {
		list.Add("--idle", "want a number of clients, and no --case")
	}
	if len(c.Carrier) > 0 && c.Case == "" && c.Idle == 0 {
		list.Add("--carrier", "needs --case or --idle")
	}
	return list
}
