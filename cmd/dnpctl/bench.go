package main

import (
	"time"

	"github.com/dnprelay/dnprelay/internal/bench"
	"github.com/dnprelay/dnprelay/internal/bench/nearby"
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
	if c.Idle < 0 || c.Idle > 0 && c.Case != "" {
		list.Add("--idle", "want a number of clients, and no --case")
	}
	if len(c.Carrier) > 0 && c.Case == "" && c.Idle == 0 {
		list.Add("--carrier", "needs --case or --idle")
	}
	return list
}

type benchInterestCommand struct {
	States  int      `env:"-" default:"10000" help:"Objects that wander about; the first ones are the clients. --states 4000 --clients 200 --field 2530 is a smaller run of the same density."`
	Clients int      `env:"-" default:"500" help:"Clients; each sees from an object of its own."`
	Hz      int      `env:"-" default:"20" help:"Changes of each object per second."`
	Field   float64  `env:"-" default:"4000" help:"Side of the square in which everything is."`
	Bands   []string `env:"-" default:"100,300:5:4,600:1:16" placeholder:"WITHIN[:RATE[:PRECISION]]" help:"Bands of the interest, the nearest first (default 100,300:5:4,600:1:16)."`
	AtOnce  bool     `env:"-" help:"All objects change at the begin of a tick, and not evenly over it as with twenty game servers."`
	Seed    uint64   `env:"-" default:"1" help:"Seed of the ways of the objects."`

	Rounds  int           `env:"-" default:"5" want:"1..99" help:"Windows with interest, each with one without; the table has medians."`
	Window  time.Duration `env:"-" default:"4s" want:"100ms..1m" help:"How long one window takes, without the 1.5s before it."`
	Workers int           `env:"-" default:"2" want:"1..64" help:"Workers of the edge."`
	Tick    time.Duration `env:"-" default:"10ms" help:"Tick of the relay."`
	Flush   time.Duration `env:"-" default:"5ms" help:"Flush interval of the edges."`
	Bin     string        `env:"-" placeholder:"DIR" help:"Folder of the programs relay and edge; empty = that of dnpctl."`
	JSON    string        `name:"json" env:"-" placeholder:"FILE" help:"Write all figures to this file, too; - = to standard output, without the table."`
	SVG     string        `name:"svg" env:"-" placeholder:"FILE" help:"Write a picture to this file: field, clients by the bytes that they receive, bands."`
	Profile string        `env:"-" placeholder:"DIR" help:"Write CPU profiles of the edge, the relay and this program in the first window to this folder."`
}

// Problems lists the invalid flags of c.
func (c *benchInterestCommand) Problems() (list config.Problems) {
	load, err := c.load()
	if err != nil {
		list.Add("--bands", "%v", err)
	} else if err := load.Validate(); err != nil {
		list.Add("--states, --clients, --hz, --field", "%v", err)
	}
	return list
}

func (c *benchInterestCommand) load() (l nearby.Load, err error) {
	l = nearby.Load{States: c.States, Clients: c.Clients, Hz: c.Hz, Side: c.Field, AtOnce: c.AtOnce, Seed: c.Seed}
	l.Bands, err = nearby.ParseBands(c.Bands)
	return l, err
}
