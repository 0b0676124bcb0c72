package main

import (
	"context"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/dnprelay/dnprelay/internal/compose"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/telemetry"
)

type serveCommand struct {
	config.NATS      `group:"Cluster"`
	config.Node      `group:"Cluster"`
	config.Sharding  `group:"Cluster"`
	config.Relay     `group:"Relay"`
	config.RelayNATS `group:"Relay"`
	config.Admin     `group:"Health, metrics and logs" set:"http=127.0.0.1:8413"`
	config.Logging   `group:"Health, metrics and logs"`
}

// Run serves until ctx ends.
func (c *serveCommand) Run(ctx context.Context, log *slog.Logger) error {
	bus, err := compose.DialNATS(ctx, &c.NATS, &c.Node, log)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // told to leave before there was anything to leave
	case err != nil:
		return err
	}
	defer bus.Close()
	r, err := compose.NewRelay(&c.Relay, c.Shards, c.Name, c.Ingress == "wildcard", bus, compose.Subjects(&c.NATS), log)
	if err != nil {
		return err
	}
	admin, err := telemetry.Listen(telemetry.Config{
		Addr: c.HTTP, Service: "relay", Node: c.Name, Pprof: c.Pprof, Metrics: r.Metrics(),
		Health: func() telemetry.Health { return compose.RelayHealth(r, bus) },
	})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return r.Run(ctx) })
	group.Go(func() error { return admin.Run(ctx) })
	return group.Wait()
}
