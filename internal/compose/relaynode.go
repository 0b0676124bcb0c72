package compose

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/gossip"
	"github.com/dnprelay/dnprelay/cluster/natslease"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/format"
	"github.com/dnprelay/dnprelay/internal/relay"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/subject"
	"golang.org/x/sync/errgroup"
)

// Times of a relay in a cluster.
const (
	joinWait  = 3 * time.Second        // for other nodes, before the relay claims all shards
	leaveWait = 500 * time.Millisecond // from the announcement that the relay drains until it does, so that the others know
)

// RelayFlags are the flags of a relay of a cluster.
type RelayFlags struct {
	config.NATS      `group:"Cluster"`
	config.Node      `group:"Cluster"`
	config.Gossip    `group:"Cluster"`
	config.Sharding  `group:"Cluster"`
	config.Relay     `group:"Relay"`
	config.RelayNATS `group:"Relay"`
	config.Admin     `group:"Health, metrics and logs" set:"http=127.0.0.1:8413"`
	config.Logging   `group:"Health, metrics and logs"`
}

// A RelayNode is a relay of a cluster with everything that it needs.
type RelayNode struct {
	flags         *RelayFlags
	subjects      subject.Names
	bus, storeBus *natsbus.Bus
	leases        *natslease.Leases
	relay         *relay.Relay
	gossip        *gossip.Gossip // nil without --gossip-join
	tel           *telemetry.Telemetry
	admin         *telemetry.Server
	mapping       Mapping
	log           *slog.Logger
}

// NewRelayNode connects to NATS and opens what the relay needs. The error is one line that
// names what is not available.
func NewRelayNode(ctx context.Context, f *RelayFlags, log *slog.Logger) (*RelayNode, error) {
	tel, err := telemetry.Open("relay", f.Name, log)
	if err != nil {
		return nil, err
	}
	n := &RelayNode{flags: f, subjects: Subjects(&f.NATS), tel: tel, log: tel.Logger(log)}
	if err := n.open(ctx); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

func (n *RelayNode) open(ctx context.Context) error {
	f := n.flags
	waiting, reached, err := showWaiting(&f.Admin)
	if err != nil {
		return err
	}
	defer waiting.Stop()
	if n.bus, err = DialNATS(ctx, &f.NATS, &f.Node, n.log); err != nil {
		return err
	}
	// Keyframes are large and must not delay batches, so the store has its own connection.
	if n.storeBus, err = DialNATS(ctx, &f.NATS, &f.Node, n.log); err != nil {
		return err
	}
	reached()
	err = openStore(ctx, f.StartTimeout, n.log, func(ctx context.Context) (err error) {
		n.leases, err = natslease.Open(ctx, natslease.Config{
			Conn: n.storeBus.Conn(), Subjects: n.subjects, Node: f.Name, Shards: f.Shards, Streams: f.StoreStreams,
			Replicas: f.Replicas, Lease: cluster.LeaseConfig{Silence: f.LeaseSilence, Format: n.format}, Log: n.log,
		})
		return err
	})
	if err != nil {
		return err
	}
	n.relay, err = relay.New(relay.Config{
		Node: f.Name, Bus: n.bus, Subjects: n.subjects, Shards: f.Shards, Tick: f.Tick,
		Wildcard: f.Ingress == "wildcard", Leases: n.leases, DurableRate: f.DurableRate,
		DrainTimeout: f.DrainTimeout, Log: n.log, Telemetry: n.tel,
	})
	if err != nil {
		return err
	}
	metrics := append(n.relay.Metrics(), BusMetrics(n.bus, n.storeBus)...)
	metrics = append(metrics, leaseMetrics(n.leases)...)
	if len(f.GossipJoin) > 0 {
		if n.gossip, err = NewGossip(&f.Gossip, cluster.RoleRelay, f.Name, f.Shards, nil, n.log); err != nil {
			return err
		}
		metrics = append(metrics, GossipMetrics(n.gossip)...)
	}
	waiting.Stop()
	n.admin, err = telemetry.Listen(telemetry.Config{
		Addr: f.HTTP, Telemetry: n.tel, Pprof: f.Pprof, TokenFile: f.HTTPToken, Metrics: metrics,
		Health: func() telemetry.Health { return n.mapping.Note(health(n.relay.Ready(), n.bus)) }, // without NATS nothing reaches the relay
	})
	return err
}

// format returns the lowest format that all members read. Gossip is opened before the relay asks
// for a lease.
func (n *RelayNode) format() uint8 {
	if n.gossip == nil {
		return format.Oldest
	}
	return n.gossip.Roster().Format()
}

// Run serves until ctx ends, and then hands every shard over.
func (n *RelayNode) Run(ctx context.Context) error {
	defer n.close()
	if err := n.relay.Start(); err != nil {
		return err
	}
	// Whatever the relay needs while it drains runs until the relay has ended.
	after, stop := context.WithCancel(context.Background())
	defer stop()
	leasesEnd := make(chan struct{})
	go func() { n.leases.Run(after); close(leasesEnd) }()
	relayCtx, stopRelay := context.WithCancel(after)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return n.relay.Run(relayCtx) })
	group.Go(func() error { return n.admin.Run(ctx) })
	group.Go(func() error {
		n.mapping.Watch(ctx, n.bus, n.subjects, n.flags.Name, n.flags.Shards, n.log)
		return nil
	})
	gossipEnd := n.runGossip(after, group)
	group.Go(func() error {
		n.follow(ctx)
		stopRelay()
		return nil
	})
	err := group.Wait()
	stop()
	<-leasesEnd
	<-gossipEnd
	return err
}

// runGossip runs gossip until after ends, so that a relay that drains is still a member.
// The group waits for gossip to fail or for the relay to end.
func (n *RelayNode) runGossip(after context.Context, group *errgroup.Group) <-chan struct{} {
	end := make(chan struct{})
	if n.gossip == nil {
		close(end)
		return end
	}
	failed := make(chan error, 1)
	go func() { failed <- n.gossip.Run(after); close(end) }()
	group.Go(func() error {
		select {
		case err := <-failed:
			return err
		case <-n.relay.Done():
			return nil
		}
	})
	return end
}

// follow gives the relay every roster until ctx ends, and then announces that the relay
// drains.
func (n *RelayNode) follow(ctx context.Context) {
	if n.gossip == nil {
		n.relay.SetRoster(cluster.NewRoster([]cluster.Member{{Name: n.flags.Name, Role: cluster.RoleRelay, Phase: cluster.PhaseReady}}))
		<-ctx.Done()
		return
	}
	alive := make(chan bool)
	var wait sync.WaitGroup
	wait.Go(func() { pulse(ctx, alive, n.bus.Conn().FlushWithContext, n.storeBus.Conn().FlushWithContext) })
	defer wait.Wait()
	joined := time.NewTimer(joinWait)
	defer joined.Stop()
	for ready, reached := false, true; ; {
		if !ready && n.gossip.Roster().Len() > 1 {
			ready = true
			n.gossip.SetPhase(phase(reached))
		}
		if reached { // without NATS it can hand nothing over, and it must announce its return before it follows the others
			n.relay.SetRoster(n.gossip.Roster())
		}
		select {
		case <-ctx.Done():
			n.gossip.SetPhase(cluster.PhaseDraining)
			time.Sleep(leaveWait)
			n.relay.SetRoster(n.gossip.Roster())
			return
		case <-n.gossip.Changes():
		case <-joined.C:
			ready = true
			n.gossip.SetPhase(phase(reached))
		case reached = <-alive:
			n.log.Warn("reachability of NATS changed; without NATS this relay gets no shards", "reached", reached)
			if ready {
				n.gossip.SetPhase(phase(reached))
			}
		}
	}
}

// phase returns the phase of a relay that has joined the cluster. A relay that does not
// reach NATS gets no shards.
func phase(reached bool) cluster.Phase {
	if reached {
		return cluster.PhaseReady
	}
	return cluster.PhaseStarting
}

func (n *RelayNode) close() {
	if n.gossip != nil {
		n.gossip.Close()
	}
	for _, b := range [...]*natsbus.Bus{n.bus, n.storeBus} {
		if b != nil {
			b.Close()
		}
	}
	n.tel.Close()
}

// NewRelay returns a relay without a cluster: it holds every shard, with the time of its
// start as epoch, and stores nothing.
func NewRelay(c *config.Relay, shards int, node string, bus bus.Bus, subjects subject.Names, tel *telemetry.Telemetry, log *slog.Logger) (*relay.Relay, error) {
	return relay.New(relay.Config{
		Node: node, Bus: bus, Subjects: subjects, Shards: shards, Tick: c.Tick, Log: log,
		Epoch: uint64(time.Now().UnixMilli()), Telemetry: tel,
	})
}

// leaseMetrics returns the metrics of a relay's leases and store.
func leaseMetrics(l *natslease.Leases) []telemetry.Metric {
	return []telemetry.Metric{
		telemetry.CounterBy("dnp.relay.store.answers", "{answer}", "Answers of the durable store, by outcome.", "outcome",
			func(observe func(string, uint64)) { l.Stats().Answers.Each(observe) }),
		telemetry.CounterBy("dnp.relay.ownerships.ended", "{ownership}", "Shards that this relay stopped owning, by reason.", "reason",
			func(observe func(string, uint64)) {
				lost := l.Stats().Lost
				observe("released", lost[cluster.ReasonReleased])
				observe("taken", lost[cluster.ReasonTaken])
				observe("fenced", lost[cluster.ReasonEpoch])
				observe("silence", lost[cluster.ReasonSilence])
			}),
		telemetry.Counter("dnp.relay.store.retries", "{attempt}", "Times that the relay repeated a watch or a load of stored states.", func() uint64 {
			s := l.Stats()
			return s.WatchRestarts + s.LoadRetries
		}),
	}
}
