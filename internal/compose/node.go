package compose

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/gossip"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/natsroles"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/subject"
)

// A node is what relays and edges have in common.
type node struct {
	name     string
	shards   int
	subjects subject.Names
	bus      *natsbus.Bus   // the first of buses
	buses    []*natsbus.Bus // all connections to NATS
	gossip   *gossip.Gossip // nil without --gossip-join
	tel      *telemetry.Telemetry
	admin    *telemetry.Server
	misled   atomic.Bool // publishes do not reach relays, as far as watchMapping knows
	log      *slog.Logger
}

// init opens telemetry, which close closes.
func (n *node) init(service, name string, shards int, log *slog.Logger) (err error) {
	n.name, n.shards = name, shards
	if n.tel, err = telemetry.Open(service, name, log); err == nil {
		n.log = n.tel.Logger(log)
	}
	return err
}

// start connects a node of a cluster to NATS, as often as connections says, and has open
// make the rest. Until that is done, /readyz names what is missing.
func (n *node) start(ctx context.Context, c *config.Cluster, admin *config.Admin, connections int, open func(context.Context) error) error {
	n.subjects = subject.Names{Prefix: c.SubjectPrefix}
	var connected atomic.Bool
	stop, err := telemetry.Wait(admin.HTTP, func() []string {
		if connected.Load() {
			return []string{"store"}
		}
		return []string{"nats"}
	})
	if err != nil {
		return err
	}
	defer stop()
	for range connections {
		if _, err := n.dial(ctx, c); err != nil {
			return err
		}
	}
	connected.Store(true)
	return open(ctx)
}

// dial makes a connection to NATS, which close closes. It waits as long as the flags allow.
func (n *node) dial(ctx context.Context, c *config.Cluster) (*natsbus.Bus, error) {
	b, err := natsbus.Dial(ctx, natsbus.Config{
		URL: c.NATSURL, Security: Security(&c.NATS), Name: n.name, InboxPrefix: natsroles.NodeInbox,
		OnError: func(err error) { n.log.Warn("NATS", "error", err) },
	}, c.StartTimeout, n.log)
	if err == nil {
		n.add(b)
	}
	return b, err
}

func (n *node) add(b *natsbus.Bus) {
	n.buses = append(n.buses, b)
	n.bus = n.buses[0]
}

// join opens the gossip port if the flags name other nodes.
func (n *node) join(c *config.Gossip, role cluster.Role) (err error) {
	if len(c.GossipJoin) > 0 {
		n.gossip, err = NewGossip(c, role, n.name, n.shards, n.log)
	}
	return err
}

// listen opens the port for health and metrics.
func (n *node) listen(c *config.Admin, metrics []telemetry.Metric, health func() telemetry.Health, drain func() telemetry.Drain) (err error) {
	metrics = append(metrics, BusMetrics(n.buses...)...)
	if n.gossip != nil {
		metrics = append(metrics, GossipMetrics(n.gossip)...)
	}
	n.admin, err = telemetry.Listen(telemetry.Config{
		Addr: c.HTTP, Telemetry: n.tel, Pprof: c.Pprof, TokenFile: c.HTTPToken, Metrics: metrics, Drain: drain,
		Health: func() telemetry.Health {
			h := health()
			if n.misled.Load() {
				h.Missing = append(h.Missing, "mapping")
			}
			return h
		},
	})
	return err
}

func health(ready bool, bus bus.Bus) telemetry.Health {
	h := telemetry.Health{Ready: ready}
	if !bus.Connected() {
		h.Missing = append(h.Missing, "nats")
	}
	return h
}

// close ends what the node opened, after everything that uses it.
func (n *node) close() {
	if n.gossip != nil {
		n.gossip.Close()
	}
	for _, b := range n.buses {
		b.Close()
	}
	n.tel.Close()
}
