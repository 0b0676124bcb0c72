package main

import (
	"log/slog"

	"github.com/dnprelay/dnprelay/cluster/redisaffinity"
	"github.com/dnprelay/dnprelay/internal/compose"
	"github.com/dnprelay/dnprelay/internal/telemetry"
)

// openAffinity implements compose.OpenAffinity.
func openAffinity(urls []string, node string, log *slog.Logger) (compose.Affinity, []telemetry.Metric, error) {
	a, err := redisaffinity.Open(redisaffinity.Config{URLs: urls, Node: node, Log: log})
	if err != nil {
		return nil, nil, err
	}
	return a, affinityMetrics(a), nil
}

// affinityMetrics returns the metrics of each Redis server.
func affinityMetrics(a *redisaffinity.Affinity) []telemetry.Metric {
	counter := func(name, unit, help string, value func(*redisaffinity.Stats) uint64) telemetry.Metric {
		return telemetry.CounterBy("dnp.session.affinity."+name, unit, help, "server", func(observe func(string, uint64)) {
			for _, s := range a.Servers() {
				observe(s.Addr, value(&s.Stats))
			}
		})
	}
	return []telemetry.Metric{
		counter("trips", "{trip}", "Round trips to a Redis server.", func(s *redisaffinity.Stats) uint64 { return s.Trips }),
		counter("writes", "{write}", "Claims, renewals and releases that edges asked of a Redis server.", func(s *redisaffinity.Stats) uint64 { return s.Writes }),
		counter("asks", "{query}", "Queries that a Redis server answered.", func(s *redisaffinity.Stats) uint64 { return s.Asks }),
		counter("failures", "{command}", "Commands to a Redis server without an answer.", func(s *redisaffinity.Stats) uint64 { return s.Failures }),
		telemetry.GaugeBy("dnp.session.affinity.up", "{server}", "1 for a Redis server that answers this edge, 0 for one that does not.", "server",
			func(observe func(string, float64)) {
				for _, s := range a.Servers() {
					up := 0.0
					if s.Err == nil {
						up = 1
					}
					observe(s.Addr, up)
				}
			}),
	}
}
