package main

import (
	"context"
	"log/slog"

	"github.com/dnprelay/dnprelay/internal/config"
)

type devCommand struct {
	config.Dev     `group:"Development"`
	config.Edge    `group:"Edge"`
	config.Relay   `group:"Relay"`
	config.Admin   `group:"Health, metrics and logs" set:"http=127.0.0.1:8413"`
	config.Logging `group:"Health, metrics and logs"`
}

// Run serves until ctx ends.
func (c *devCommand) Run(ctx context.Context, log *slog.Logger) error {
	<-ctx.Done()
	return nil
}
