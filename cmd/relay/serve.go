package main

import (
	"context"
	"log/slog"

	"github.com/dnprelay/dnprelay/internal/compose"
	"github.com/dnprelay/dnprelay/internal/config"
)

type serveCommand struct {
	config.NATS      `group:"Cluster"`
	config.Node      `group:"Cluster"`
	config.Gossip    `group:"Cluster"`
	config.Sharding  `group:"Cluster"`
	config.Relay     `group:"Relay"`
	config.RelayNATS `group:"Relay"`
	config.Admin     `group:"Health, metrics and logs" set:"http=127.0.0.1:8413"`
	config.Logging   `group:"Health, metrics and logs"`
}

// Run serves until ctx ends.
func (c *serveCommand) Run(ctx context.Context, log *slog.Logger) error {
	n, err := compose.NewRelayNode(ctx, compose.RelayFlags{
		NATS: &c.NATS, Node: &c.Node, Gossip: &c.Gossip, Sharding: &c.Sharding, Relay: &c.Relay, Store: &c.RelayNATS, Admin: &c.Admin,
	}, log)
	if err != nil {
		if ctx.Err() != nil {
			return nil // a signal while waiting for NATS is a drain
		}
		return err
	}
	return n.Run(ctx, c.Node.Name)
}
