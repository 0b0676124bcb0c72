package compose

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/gossip"
	"github.com/dnprelay/dnprelay/cluster/natslease"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/jetstream"
	"github.com/dnprelay/dnprelay/internal/relay"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/subject"
	"golang.org/x/sync/errgroup"
)

// Times of a node among others.
const (
	meetWait  = 3 * time.Second        // for the others before a relay wants all shards
	leaveWait = 500 * time.Millisecond // from saying that it leaves until it does, so that the others know
)

// RelayFlags are the flags of a relay of a cluster.
type RelayFlags struct {
	NATS     *config.NATS
	Node     *config.Node
	Gossip   *config.Gossip
	Sharding *config.Sharding
	Relay    *config.Relay
	Store    *config.RelayNATS
	Admin    *config.Admin
}

// A RelayNode is a relay of a cluster with all that it needs.
type RelayNode struct {
	bus, storeBus *natsbus.Bus
	leases        *natslease.Leases
	relay         *relay.Relay
	gossip        *gossip.Gossip // nil if nobody is to be met
	telemetry     *telemetry.Telemetry
	admin         *telemetry.Server
	mapping       Mapping

	subjects subject.Names
	shards   int
	log      *slog.Logger
}

// NewRelayNode connects to NATS and opens what it needs. The error is one line that
// says what cannot be had.
func NewRelayNode(ctx context.Context, f RelayFlags, log *slog.Logger) (*RelayNode, error) {
	tel, err := telemetry.Open("relay", f.Node.Name, log)
	if err != nil {
		return nil, err
	}
	log = tel.Logger(log)
	n := &RelayNode{subjects: Subjects(f.NATS), shards: f.Sharding.Shards, telemetry: tel, log: log}
	if err := n.open(ctx, f, log); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

func (n *RelayNode) open(ctx context.Context, f RelayFlags, log *slog.Logger) (err error) {
	waiting, reached, err := showWaiting(f.Admin)
	if err != nil {
		return err
	}
	defer waiting.Stop()
	if n.bus, err = DialNATS(ctx, f.NATS, f.Node, log); err != nil {
		return err
	}
	// Keyframes are large and must not delay batches, so the store has its own connection.
	if n.storeBus, err = DialNATS(ctx, f.NATS, f.Node, log); err != nil {
		return err
	}
	reached()
	n.leases, err = openLeases(ctx, natslease.Config{
		Conn: n.storeBus.Conn(), Subjects: n.subjects, Node: f.Node.Name, Shards: f.Sharding.Shards,
		Streams: f.Store.StoreStreams, Replicas: f.Store.Replicas, Lease: cluster.LeaseConfig{Silence: f.Store.LeaseSilence}, Log: log,
	}, f.Node.StartTimeout, log)
	if err != nil {
		return err
	}
	n.relay, err = relay.New(relay.Config{
		Node: f.Node.Name, Bus: n.bus, Subjects: n.subjects, Shards: f.Sharding.Shards, Tick: f.Relay.Tick,
		Wildcard: f.Store.Ingress == "wildcard", Leases: n.leases, DurableRate: f.Store.DurableRate,
		DrainTimeout: f.Store.DrainTimeout, Log: log, Telemetry: n.telemetry,
	})
	if err != nil {
		return err
	}
	metrics := append(n.relay.Metrics(), BusMetrics(n.bus, n.storeBus)...)
	metrics = append(metrics, LeaseMetrics(n.leases)...)
	if len(f.Gossip.GossipJoin) > 0 {
		if n.gossip, err = NewGossip(f.Gossip, cluster.RoleRelay, f.Node.Name, f.Sharding.Shards, nil, log); err != nil {
			return err
		}
		metrics = append(metrics, GossipMetrics(n.gossip)...)
	}
	waiting.Stop()
	n.admin, err = telemetry.Listen(telemetry.Config{
		Addr: f.Admin.HTTP, Telemetry: n.telemetry, Pprof: f.Admin.Pprof, TokenFile: f.Admin.HTTPToken, Metrics: metrics,
		Health: func() telemetry.Health { return n.mapping.Note(RelayHealth(n.relay, n.bus)) },
	})
	return err
}

// openLeases opens the store, and tries again while it has no leader. A deployment
// that contradicts this node does not get better by waiting.
func openLeases(ctx context.Context, cfg natslease.Config, timeout time.Duration, log *slog.Logger) (*natslease.Leases, error) {
	start := time.Now()
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		leases, err := natslease.Open(attempt, cfg)
		cancel()
		switch {
		case err == nil || errors.Is(err, jetstream.ErrDeployment) || ctx.Err() != nil:
			return leases, err
		case timeout > 0 && time.Since(start) >= timeout:
			return nil, fmt.Errorf("gave up after %v: %w", timeout, err)
		}
		log.Warn("the store is not there, trying again", "error", err)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// Run serves until ctx ends, hands every shard over and leaves.
func (n *RelayNode) Run(ctx context.Context, node string) error {
	defer n.close()
	if err := n.relay.Start(); err != nil {
		return err
	}
	// What the relay needs while it drains goes on until it has.
	after, stop := context.WithCancel(context.Background())
	defer stop()
	leasesEnd := make(chan struct{})
	go func() { n.leases.Run(after); close(leasesEnd) }()
	relayCtx, stopRelay := context.WithCancel(after)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return n.relay.Run(relayCtx) })
	group.Go(func() error { return n.admin.Run(ctx) })
	group.Go(func() error {
		n.mapping.Watch(ctx, n.bus, n.subjects, node, n.shards, n.log)
		return nil
	})
	gossipEnd := n.runGossip(after, group)
	group.Go(func() error {
		n.follow(ctx, node)
		stopRelay()
		return nil
	})
	err := group.Wait()
	stop()
	<-leasesEnd
	<-gossipEnd
	return err
}

// runGossip runs the gossip in the group for as long as after lasts, so that a relay
// that drains is still among the others.
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

// follow gives the relay every roster until ctx ends, and then says that it leaves.
func (n *RelayNode) follow(ctx context.Context, node string) {
	if n.gossip == nil {
		n.relay.SetRoster(cluster.NewRoster([]cluster.Member{{Name: node, Role: cluster.RoleRelay, Phase: cluster.PhaseReady}}))
		<-ctx.Done()
		return
	}
	alive := make(chan bool)
	var wait sync.WaitGroup
	wait.Go(func() { pulse(ctx, alive, n.bus.Conn().FlushWithContext, n.storeBus.Conn().FlushWithContext) })
	defer wait.Wait()
	met := time.NewTimer(meetWait)
	defer met.Stop()
	for ready, reached := false, true; ; {
		if !ready && n.gossip.Roster().Len() > 1 {
			ready = true
			n.gossip.SetPhase(phase(reached))
		}
		if reached { // without NATS nothing can be handed over, and being back must come before what others say
			n.relay.SetRoster(n.gossip.Roster())
		}
		select {
		case <-ctx.Done():
			n.gossip.SetPhase(cluster.PhaseDraining)
			time.Sleep(leaveWait)
			n.relay.SetRoster(n.gossip.Roster())
			return
		case <-n.gossip.Changes():
		case <-met.C:
			ready = true
			n.gossip.SetPhase(phase(reached))
		case reached = <-alive:
			n.log.Warn("reachability of NATS; without it this relay is given no shards", "reached", reached)
			if ready {
				n.gossip.SetPhase(phase(reached))
			}
		}
	}
}

// phase returns what a relay that has met the others is. One that does not reach NATS is
// not given shards.
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
	n.telemetry.Close()
}
