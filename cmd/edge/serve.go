package main

import (
	"context"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/gossip"
	"github.com/dnprelay/dnprelay/internal/compose"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/telemetry"
)

type serveCommand struct {
	config.NATS     `group:"Cluster"`
	config.Node     `group:"Cluster"`
	config.Gossip   `group:"Cluster"`
	config.Sharding `group:"Cluster"`
	config.Edge     `group:"Edge"`
	config.Admin    `group:"Health, metrics and logs" set:"http=127.0.0.1:8414"`
	config.Logging  `group:"Health, metrics and logs"`
}

// Run serves until ctx ends.
func (c *serveCommand) Run(ctx context.Context, log *slog.Logger) error {
	waiting, err := telemetry.Wait(c.HTTP, func() []string { return []string{"nats"} })
	if err != nil {
		return err
	}
	defer waiting.Stop()
	bus, err := compose.DialNATS(ctx, &c.NATS, &c.Node, log)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // told to leave before there was anything to leave
	case err != nil:
		return err
	}
	defer bus.Close()
	subjects := compose.Subjects(&c.NATS)
	e, err := compose.NewEdge(&c.Edge, c.Shards, c.Name, bus, subjects, log)
	if err != nil {
		return err
	}
	if c.Auth == "open" {
		log.Warn("clients are not asked who they are; that is for trusted networks, elsewhere use --auth token or callout")
	}
	metrics := e.Metrics()
	var members *gossip.Gossip
	if len(c.GossipJoin) > 0 {
		if members, err = compose.NewGossip(&c.Gossip, cluster.RoleEdge, c.Name, c.Shards, nil, log); err != nil {
			return err
		}
		defer members.Close()
		metrics = append(metrics, compose.GossipMetrics(members)...)
	}
	waiting.Stop()
	var mapping compose.Mapping
	admin, err := telemetry.Listen(telemetry.Config{
		Addr: c.HTTP, Service: "edge", Node: c.Name, Pprof: c.Pprof, Metrics: metrics,
		Health: func() telemetry.Health { return mapping.Note(compose.EdgeHealth(e, bus)) },
	})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return e.Run(ctx) })
	group.Go(func() error { return admin.Run(ctx) })
	group.Go(func() error {
		mapping.Watch(ctx, bus, subjects, c.Name, c.Shards, log)
		return nil
	})
	if members != nil {
		members.SetPhase(cluster.PhaseReady)
		group.Go(func() error { return members.Run(ctx) })
	}
	return group.Wait()
}
