package compose

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/gossip"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/format"
	"github.com/dnprelay/dnprelay/internal/jetstream"
	"github.com/dnprelay/dnprelay/internal/natsembed"
	"github.com/dnprelay/dnprelay/internal/relay"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/internal/turn"
	"github.com/dnprelay/dnprelay/internal/version"
	"github.com/dnprelay/dnprelay/subject"
)

// A node is what relays and edges have in common.
type node struct {
	name        string
	shards      int
	subjects    subject.Names
	inbox       string            // begins the subjects on which the node gets answers
	peerInbox   string            // begins those on which an edge gets the answers of edges; empty for relays
	bus         *natsbus.Bus      // the first of buses
	buses       []*natsbus.Bus    // all connections to NATS
	embedded    *natsembed.Server // nil if NATS runs elsewhere
	gossip      *gossip.Gossip    // nil without --gossip-join
	tel         *telemetry.Telemetry
	admin       *telemetry.Server
	misrouted   atomic.Bool // publishes do not reach relays, as far as watchMapping knows
	silent      atomic.Bool // NATS does not answer, as far as pulse knows
	silenceTold bool        // and the log says so; belongs to the goroutine that follows pulse
	log         *slog.Logger

	leaving chan struct{} // closed when the node begins to end, for whatever reason
	step    atomic.Value  // string: what the node does to end
}

// endWait is how long a node may take to end besides its drain: its announcement to the others,
// the connections, and a collector that accepts the last spans.
const endWait = 5 * time.Second

// within runs a node, and gives up a node that takes longer to end than its drain may take and
// endWait, because something hangs. The error says what.
func (n *node) within(ctx context.Context, drain time.Duration, run func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- run() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	case <-n.leaving:
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(drain + endWait):
		return fmt.Errorf("ending by force, %v after the drain timeout of %v: %v does not end", endWait, drain, n.step.Load())
	}
}

// openTelemetry names the node in its metrics, spans and log lines, until close.
func (n *node) openTelemetry(service, name string, shards int, log *slog.Logger) (err error) {
	n.name, n.shards, n.inbox = name, shards, subject.Inbox(service)
	if service == "edge" {
		n.peerInbox = subject.InboxPeer
	}
	if n.tel, err = telemetry.Open(service, name, log); err == nil {
		n.log = n.tel.Logger(log)
	}
	return err
}

// start opens so many connections to NATS for a node of a cluster, and calls open, which makes the
// rest. Until that is done, /readyz names what is missing.
func (n *node) start(ctx context.Context, c *config.Cluster, admin *config.Admin, connections int, open func(context.Context) error) error {
	n.subjects = subject.Names{Prefix: c.SubjectPrefix}
	var connected atomic.Bool
	if err := n.openAdmin(admin, func() []string {
		if connected.Load() {
			return []string{"store"}
		}
		return []string{"nats"}
	}); err != nil {
		return err
	}
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
		URL: c.NATSURL, Security: Security(&c.NATS), Name: n.name, InboxPrefix: n.inbox,
		PeerInbox: n.peerInbox, MayAnswer: n.subjects.MayAnswer,
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

// openAdmin opens the port for health and metrics, where a node says what it waits for until show.
func (n *node) openAdmin(c *config.Admin, missing func() []string) (err error) {
	n.admin, err = telemetry.Listen(c.HTTP, missing)
	return err
}

// show serves health and metrics, and the spaces of a relay, if relay is not nil.
func (n *node) show(c *config.Admin, metrics []telemetry.Metric, health func() telemetry.Health, drain func(tell func(telemetry.Drain)), relay *relay.Relay) error {
	var pages map[string]func(context.Context) (any, error)
	if relay != nil {
		pages = map[string]func(context.Context) (any, error){"spaces": func(ctx context.Context) (any, error) { return relay.Loads(ctx) }}
	}
	metrics = append(metrics, BusMetrics(n.buses...)...)
	if n.gossip != nil {
		metrics = append(metrics, GossipMetrics(n.gossip)...)
	}
	return n.admin.Show(telemetry.Config{
		Telemetry: n.tel, Pprof: c.Pprof, TokenFile: c.HTTPToken, Metrics: metrics, Drain: drain, Pages: pages,
		Health: func() telemetry.Health {
			h := health()
			if n.silent.Load() && !slices.Contains(h.Missing, "nats") {
				h.Missing = append(h.Missing, "nats")
			}
			if n.misrouted.Load() {
				h.Missing = append(h.Missing, "mapping")
			}
			return h
		},
	})
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
	if n.admin != nil {
		n.admin.Close()
	}
	if n.gossip != nil {
		n.step.Store("the port for gossip")
		n.gossip.Close()
	}
	n.step.Store("the connection to NATS")
	for _, b := range n.buses {
		b.Close()
	}
	if n.embedded != nil {
		n.embedded.Shutdown()
	}
	n.step.Store("the connection to the collector")
	n.tel.Close()
}

// Security returns the credentials of a node at NATS.
func Security(c *config.NATS) natsbus.Security {
	return natsbus.Security{
		User: c.NATSUser, Password: c.NATSPassword, Credentials: c.NATSCreds, NKey: c.NATSNKey, CA: c.NATSCA, Cert: c.NATSCert, Key: c.NATSKey,
	}
}

// openStore calls open until it succeeds, while JetStream is not available. timeout is how
// long it may take; 0 is without limit. ErrDeployment and ErrReplicas end the attempts: the streams
// contradict the flags, and waiting does not help. replicas is the flag with the number of their copies.
func openStore(ctx context.Context, timeout time.Duration, replicas string, log *slog.Logger, open func(context.Context) error) error {
	start := time.Now()
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := open(attempt)
		cancel()
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case errors.Is(err, jetstream.ErrDeployment) || errors.Is(err, jetstream.ErrReplicas):
			return storeProblem(err, replicas)
		case timeout > 0 && time.Since(start) >= timeout:
			return fmt.Errorf("gave up after %v: %w", timeout, err)
		}
		log.Warn("JetStream is not available, trying again", "error", err)
		if !turn.Pause(ctx, time.Second) {
			return ctx.Err()
		}
	}
}

// replacedMetric is the metric of the streams that were made again, with which a node lost what
// only they had.
func replacedMetric(read func() uint64) telemetry.Metric {
	return telemetry.Counter("dnp.streams.replaced", "{stream}", "Streams of JetStream that were deleted while this node ran, and made again.", read)
}

// BusMetrics returns the metrics of a node's connections to NATS.
func BusMetrics(buses ...*natsbus.Bus) []telemetry.Metric {
	sum := func() (all natsbus.Stats) {
		for _, b := range buses {
			s := b.Stats()
			telemetry.Sum(&all, &s)
		}
		return all
	}
	of := telemetry.NewGroup("dnp.nats.", sum)
	s := &of.All
	return []telemetry.Metric{
		telemetry.Gauge("dnp.nats.connected", "{connection}", "Connections to NATS that are up.", func() (n float64) {
			for _, b := range buses {
				if b.Connected() {
					n++
				}
			}
			return n
		}),
		telemetry.Gauge("dnp.nats.connections", "{connection}", "Connections to NATS that this node needs.",
			func() float64 { return float64(len(buses)) }),
		of.InOut("messages", "{message}", "Messages that this node received from NATS, and published there.", &s.Received, &s.Published),
		of.InOut("io", "By", "Bytes of the bodies of messages that this node received from NATS, and published there.", &s.ReceivedBytes, &s.PublishedBytes),
		of.CounterBy("drops", "{message}", "Messages of the bus that were dropped, by reason; slow = received, but not handled in time.",
			"reason", telemetry.Parts{"disconnected": &s.DroppedDisconnected, "busy": &s.DroppedBusy, "size": &s.DroppedSize, "other": &s.DroppedOther, "slow": &s.Missed}),
		of.Counter("slow.consumers", "{event}", "Times that messages from NATS began to arrive faster than this node handled them.", &s.SlowConsumers),
		of.Counter("reconnects", "{connection}", "Times that a lost connection to NATS was restored.", &s.Reconnects),
		of.Counter("moves", "{connection}", "Times that this node left a NATS server over which it heard no relay.", &s.Moves),
		of.Counter("errors", "{error}", "Errors that NATS reported, for example refused subscriptions.", &s.Errors),
	}
}

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
	of := telemetry.NewGroup("dnp.cluster.gossip.", g.Stats)
	s := &of.All
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
		of.Gauge("health", "{score}", "Degradation of gossip at this node; 0 = answers arrive in time.", &s.Health),
		of.Counter("suspicions", "{probe}", "Times that a member of the cluster did not answer a probe of this node.", &s.Suspicions),
		of.Counter("refutations", "{message}", "Times that other nodes suspected this node or declared it dead.", &s.Refutations),
		of.Counter("undecipherable", "{message}", "Gossip messages and connections with an unknown key.", &s.Undecipherable),
	}
}
