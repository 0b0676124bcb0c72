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

// NewGossip opens the gossip port of a node with what the flags say. The node is
// known as starting until SetPhase says otherwise. Its Run joins the others and ends
// with an error when they refuse this node for its key or its shard count.
func NewGossip(c *config.Gossip, role cluster.Role, node string, shards int, addresses []cluster.Address, log *slog.Logger) (*gossip.Gossip, error) {
	return gossip.Open(gossip.Config{
		Self: cluster.Member{
			Name: node, Role: role, Phase: cluster.PhaseStarting, Shards: uint16(shards),
			Incarnation: uint64(time.Now().UnixMilli()), Version: version.Short(), Addresses: addresses,
			Format: format.Newest,
		},
		Bind: c.GossipBind, Advertise: c.GossipAdvertise, Join: c.GossipJoin, KeyFile: c.GossipKeyFile, Log: log,
	})
}

// FollowRoster calls each with who is there, and again whenever that changed, until ctx
// ends. Only one goroutine may follow a node of gossip.
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

// GossipMetrics returns what a node shows at /metrics about the others.
func GossipMetrics(g *gossip.Gossip) []telemetry.Metric {
	count := func(name, unit, help string, read func(gossip.Stats) uint64) telemetry.Metric {
		return telemetry.Counter("dnp.cluster."+name, unit, help, func() uint64 { return read(g.Stats()) })
	}
	return []telemetry.Metric{
		telemetry.GaugeBy("dnp.cluster.members", "{member}", "Nodes that are there, with this one.", "phase", func(observe func(string, float64)) {
			var phases [cluster.PhaseLeaving + 1]int
			for m := range g.Roster().All() {
				phases[m.Phase]++
			}
			for p := cluster.PhaseStarting; p <= cluster.PhaseLeaving; p++ {
				observe(p.String(), float64(phases[p]))
			}
		}),
		telemetry.Gauge("dnp.cluster.gossip.health", "{score}", "How badly this node answers and is answered; 0 = in time.",
			func() float64 { return float64(g.Stats().Health) }),
		count("gossip.suspicions", "{probe}", "Members that did not answer a probe of this node.",
			func(s gossip.Stats) uint64 { return s.Suspicions }),
		count("gossip.refutations", "{message}", "Times that others suspected this node or took it for dead.",
			func(s gossip.Stats) uint64 { return s.Refutations }),
		count("gossip.undecipherable", "{message}", "Messages and connections under a key that is not known.",
			func(s gossip.Stats) uint64 { return s.Undecipherable }),
	}
}
