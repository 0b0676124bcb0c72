// Command edge terminates the UDP connections of game clients.
//
//	edge serve     an edge of a cluster
//
// It only connects parts; internal/edge does the work.
package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/dnprelay/dnprelay/internal/compose"
	"github.com/dnprelay/dnprelay/internal/config"
)

type commands struct {
	Serve serveCommand `cmd:"" help:"Run an edge of a cluster, to which game clients connect."`
}

const help = "Brings network states from relays to game clients (DNP over UDP)."

func main() {
	os.Exit(config.Program{Name: "edge", Help: help, Commands: &commands{}}.Main(os.Args[1:]))
}

type serveCommand struct{ compose.EdgeFlags }

// Run serves until ctx ends.
func (c *serveCommand) Run(ctx context.Context, log *slog.Logger) error {
	node, err := compose.NewEdgeNode(ctx, &c.EdgeFlags, log)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // a signal before the edge has sessions: nothing to drain
	case err != nil:
		return err
	}
	if c.Auth == "open" {
		log.Warn("clients do not identify themselves, which suits trusted networks only; elsewhere use --auth token or callout")
	}
	return node.Run(ctx)
}
