package bench

import "time"

// Flags are the flags of a command that runs cases.
type Flags struct {
	Rounds  int           `env:"-" default:"5" help:"Windows per case, each with its baselines; the table has medians."`
	Window  time.Duration `env:"-" default:"1.2s" help:"How long one window takes."`
	Workers int           `env:"-" default:"1" help:"Workers of each edge."`
	Tick    time.Duration `env:"-" default:"10ms" help:"Tick of the relay."`
	Flush   time.Duration `env:"-" default:"5ms" help:"Flush interval of the edges."`
	Pin     bool          `env:"-" help:"Edges on core 0, everything else on core 1."`
	Bin     string        `env:"-" placeholder:"DIR" help:"Folder of the programs relay and edge; empty = that of dnpctl."`
	JSON    string        `name:"json" env:"-" placeholder:"FILE" help:"Write all figures to this file, too."`
}
