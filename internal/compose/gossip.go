package compose

import (
	"context"
	"log/slog"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/gossip"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/format"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/internal/version"
)

// NewGossip opens the gossip port that the flags name. Other nodes know the node as
// starting until SetPhase. Run joins the others and ends with an error if they refuse this
// node for its key or its shard count.
func NewGossip(c *config.Gossip, role cluster.Role, node string, shards int, log *slog.Logger) (*gossip.Gossip, error) {
	return gossip.Open(gossip.Config{
		Self: cluster.Member{
			Name: node, Role: role, Phase: cluster.PhaseStarting, Shards: uint16(shards),
			Incarnation: uint64(time.Now().UnixMilli()), Version: version.Short(), Format: format.Newest,
		},
		Bind: c.GossipBind, Advertise: c.GossipAdvertise, Join: c.GossipJoin, KeyFile: c.GossipKeyFile, Log: log,
	})
}

// FollowRoster calls each with the roster, and again after each change, until ctx ends.
// Only one goroutine may follow g.
func FollowRoster(ctx context.Context, g *gossip.Gossip, each func(cluster.Roster)) {
	for {
		each(g.Roster())
		select {
		case <-ctx.Done():
			return
		case <-g.Changes():
		}
	}
}

// GossipMetrics returns the metrics of a node's gossip.
func GossipMetrics(g *gossip.Gossip) []telemetry.Metric {
	of := telemetry.Group[gossip.Stats]{Prefix: "dnp.cluster.gossip.", Read: g.Stats}
	return []telemetry.Metric{
		telemetry.GaugeBy("dnp.cluster.members", "{member}", "Nodes of the cluster, this one included.", "phase", func(observe func(string, float64)) {
			var phases [cluster.PhaseLeaving + 1]int
			for m := range g.Roster().All() {
				phases[m.Phase]++
			}
			for p := cluster.PhaseStarting; p <= cluster.PhaseLeaving; p++ {
				observe(p.String(), float64(phases[p]))
			}
		}),
		of.Gauge("health", "{score}", "Degradation of gossip at this node; 0 = answers arrive in time.",
			func(s *gossip.Stats) float64 { return float64(s.Health) }),
		of.Counter("suspicions", "{probe}", "Members that did not answer a probe of this node.",
			func(s *gossip.Stats) uint64 { return s.Suspicions }),
		of.Counter("refutations", "{message}", "Times that other nodes suspected this node or declared it dead.",
			func(s *gossip.Stats) uint64 { return s.Refutations }),
		of.Counter("undecipherable", "{message}", "Messages and connections with an unknown key.",
			func(s *gossip.Stats) uint64 { return s.Undecipherable }),
	}
}
