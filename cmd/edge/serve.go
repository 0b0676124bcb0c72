package main

import (
	"context"
	"log/slog"

	"github.com/dnprelay/dnprelay/internal/compose"
	"github.com/dnprelay/dnprelay/internal/config"
)

type serveCommand struct {
	config.NATS     `group:"Cluster"`
	config.Node     `group:"Cluster"`
	config.Gossip   `group:"Cluster"`
	config.Sharding `group:"Cluster"`
	config.Edge     `group:"Edge"`
	config.Sessions `group:"Edge"`
	config.Forward  `group:"Cluster"`
	config.Admin    `group:"Health, metrics and logs" set:"http=127.0.0.1:8414"`
	config.Logging  `group:"Health, metrics and logs"`
}

// Run serves until ctx ends.
func (c *serveCommand) Run(ctx context.Context, log *slog.Logger) error {
	node, err := compose.NewEdgeNode(ctx, compose.EdgeFlags{
		NATS: &c.NATS, Node: &c.Node, Gossip: &c.Gossip, Sharding: &c.Sharding, Edge: &c.Edge, Sessions: &c.Sessions, Forward: &c.Forward, Admin: &c.Admin,
	}, log)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // told to leave before there was anything to leave
	case err != nil:
		return err
	}
	if c.Auth == "open" {
		log.Warn("clients are not asked who they are; that is for trusted networks, elsewhere use --auth token or callout")
	}
	return node.Run(ctx, c.Name)
}
