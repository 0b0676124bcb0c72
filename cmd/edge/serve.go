package main

import (
	"context"
	"log/slog"

	"github.com/dnprelay/dnprelay/internal/config"
)

type serveCommand struct {
	config.NATS    `group:"Cluster"`
	config.Node    `group:"Cluster"`
	config.Edge    `group:"Edge"`
	config.Admin   `group:"Health, metrics and logs" set:"http=127.0.0.1:8414"`
	config.Logging `group:"Health, metrics and logs"`
}

// Run serves until ctx ends.
func (c *serveCommand) Run(ctx context.Context, log *slog.Logger) error {
	<-ctx.Done()
	return nil
}
