// Command relay holds the authoritative store of network states. In development it runs
// everything else, too.
//
//	relay dev      NATS, a relay, an edge and a demo in one process
//	relay serve    a relay of a cluster
//
// internal/compose has the commands; internal/relay and internal/edge do the work.
package main

import (
	"os"

	"github.com/dnprelay/dnprelay/internal/compose"
	"github.com/dnprelay/dnprelay/internal/config"
)

type commands struct {
	Dev   compose.DevCommand   `cmd:"" help:"Run everything in one process: NATS with JetStream, a relay, an edge and a demo."`
	Serve compose.RelayCommand `cmd:"" help:"Run a relay of a cluster, which holds the authoritative states."`
}

const help = "Relays typed network states from game servers (over NATS) to game clients (DNP over UDP)."

func main() {
	os.Exit(config.Program{Name: "relay", Help: help, Commands: &commands{}}.Main(os.Args[1:]))
}
