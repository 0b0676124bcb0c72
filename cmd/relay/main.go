// Command relay holds the authoritative store of network states. In development it runs
// everything else, too.
//
//	relay dev      NATS, a relay, an edge and a demo in one process
//	relay serve    a relay of a cluster
//
// It only connects parts; internal/relay and internal/edge do the work.
package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/dnprelay/dnprelay/internal/compose"
	"github.com/dnprelay/dnprelay/internal/config"
)

type commands struct {
	Dev   devCommand   `cmd:"" help:"Run everything in one process: NATS with JetStream, a relay, an edge and a demo."`
	Serve serveCommand `cmd:"" help:"Run a relay of a cluster, which holds the authoritative states."`
}

const help = "Relays typed network states from game servers (over NATS) to game clients (DNP over UDP)."

func main() {
	os.Exit(config.Program{Name: "relay", Help: help, Commands: &commands{}}.Main(os.Args[1:]))
}

type serveCommand struct{ compose.RelayFlags }

// Run serves until ctx ends.
func (c *serveCommand) Run(ctx context.Context, log *slog.Logger) error {
	node, err := compose.NewRelayNode(ctx, &c.RelayFlags, log)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // a signal before the relay has shards: nothing to drain
	case err != nil:
		return err
	}
	return node.Run(ctx)
}
