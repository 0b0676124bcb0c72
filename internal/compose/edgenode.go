package compose

import (
	"context"
	"log/slog"
	"slices"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/gossip"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/subject"
	"golang.org/x/sync/errgroup"
)

// EdgeFlags are the flags of an edge of a cluster.
type EdgeFlags struct {
	NATS     *config.NATS
	Node     *config.Node
	Gossip   *config.Gossip
	Sharding *config.Sharding
	Edge     *config.Edge
	Sessions *config.Sessions
	Forward  *config.Forward
	Admin    *config.Admin
}

// An EdgeNode is an edge of a cluster with all that it needs.
type EdgeNode struct {
	bus     *natsbus.Bus
	durable *Durable // nil if sessions end with the edge
	edge    *edge.Edge
	gossip  *gossip.Gossip // nil if nobody is to be met
	forward *Forwarding    // nil if sessions end with the edge, or without gossip or its keys
	tel     *telemetry.Telemetry
	admin   *telemetry.Server
	mapping Mapping
	leave   chan struct{} // holds one when the edge is to drain

	subjects subject.Names
	shards   int
	log      *slog.Logger
}

// NewEdgeNode connects to NATS and opens what it needs. The error is one line that says
// what cannot be had.
func NewEdgeNode(ctx context.Context, f EdgeFlags, log *slog.Logger) (*EdgeNode, error) {
	tel, err := telemetry.Open("edge", f.Node.Name, log)
	if err != nil {
		return nil, err
	}
	log = tel.Logger(log)
	n := &EdgeNode{subjects: Subjects(f.NATS), shards: f.Sharding.Shards, tel: tel, log: log, leave: make(chan struct{}, 1)}
	if err := n.open(ctx, f, log); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

func (n *EdgeNode) open(ctx context.Context, f EdgeFlags, log *slog.Logger) (err error) {
	waiting, reached, err := showWaiting(f.Admin)
	if err != nil {
		return err
	}
	defer waiting.Stop()
	var buses []*natsbus.Bus
	connect := func() (*natsbus.Bus, error) {
		bus, err := DialNATS(ctx, f.NATS, f.Node, log)
		if err == nil {
			buses = append(buses, bus)
		}
		return bus, err
	}
	if n.bus, err = connect(); err != nil {
		return err
	}
	reached()
	if n.durable, err = OpenDurable(ctx, f.Sessions, f.Node.Name, connect, n.subjects, f.Node.StartTimeout, log); err != nil {
		return err
	}
	if len(f.Gossip.GossipJoin) > 0 {
		if n.gossip, err = NewGossip(f.Gossip, cluster.RoleEdge, f.Node.Name, n.shards, nil, log); err != nil {
			return err
		}
	}
	if n.durable != nil { // sessions that end with their edge are nowhere else
		if n.forward, err = NewForwarding(f.Forward, f.Node.Name, n.gossip, log); err != nil {
			return err
		}
	}
	if n.edge, err = NewEdge(f.Edge, n.shards, f.Node.Name, n.bus, n.subjects, n.durable.Edge(n.forward), n.tel, log); err != nil {
		return err
	}
	metrics := slices.Concat(n.edge.Metrics(), n.durable.Metrics(), BusMetrics(buses...))
	if n.gossip != nil {
		metrics = append(metrics, GossipMetrics(n.gossip)...)
	}
	if n.forward != nil {
		n.forward.Serve(n.edge)
		metrics = append(metrics, n.forward.Metrics()...)
	}
	waiting.Stop()
	n.admin, err = telemetry.Listen(telemetry.Config{
		Addr: f.Admin.HTTP, Telemetry: n.tel, Pprof: f.Admin.Pprof, TokenFile: f.Admin.HTTPToken, Metrics: metrics,
		Health: func() telemetry.Health { return n.mapping.Note(EdgeHealth(n.edge, n.bus, n.durable)) }, Drain: n.Drain,
	})
	return err
}

// Drain has Run end as if its context had ended, and says what becomes of sessions.
func (n *EdgeNode) Drain() telemetry.Drain {
	select {
	case n.leave <- struct{}{}:
	default: // it is about to
	}
	if n.durable == nil {
		return telemetry.Drain{Sessions: telemetry.SessionsClosed}
	}
	return telemetry.Drain{Sessions: telemetry.SessionsHandedOver}
}

// Run serves until ctx ends or Drain is called, hands every session over and leaves.
func (n *EdgeNode) Run(ctx context.Context, node string) error {
	defer n.close()
	// What the edge needs while it drains goes on until it has.
	after, stop := context.WithCancel(context.Background())
	durableEnd := make(chan struct{})
	go func() { n.durable.Run(after); close(durableEnd) }()
	defer func() { stop(); <-durableEnd }()
	serving, leave := context.WithCancel(ctx)
	defer leave()
	group, others := errgroup.WithContext(after)
	group.Go(func() error { return n.admin.Run(others) })
	group.Go(func() error {
		n.mapping.Watch(others, n.bus, n.subjects, node, n.shards, n.log)
		return nil
	})
	if n.gossip != nil {
		n.gossip.SetPhase(cluster.PhaseReady)
		group.Go(func() error { return n.gossip.Run(others) })
		group.Go(func() error {
			FollowRoster(others, n.gossip, func(r cluster.Roster) { n.setRoster(others, r) })
			return nil
		})
	}
	if n.forward != nil {
		group.Go(func() error { return n.forward.Run(others) })
	}
	group.Go(func() error {
		defer stop() // the last one to leave
		return n.edge.Run(serving)
	})
	group.Go(func() error {
		select {
		case <-serving.Done():
		case <-others.Done(): // something ended with an error
		case <-n.leave:
		}
		if n.gossip != nil {
			n.gossip.SetPhase(cluster.PhaseDraining)
		}
		leave()
		return nil
	})
	return group.Wait()
}

// setRoster tells the edge who is there.
func (n *EdgeNode) setRoster(ctx context.Context, r cluster.Roster) {
	if n.forward != nil {
		n.forward.SetRoster(ctx, r)
	}
	n.edge.SetRoster(r)
}

func (n *EdgeNode) close() {
	if n.forward != nil {
		n.forward.Close()
	}
	if n.gossip != nil {
		n.gossip.Close()
	}
	n.durable.Close()
	if n.bus != nil {
		n.bus.Close()
	}
	n.tel.Close()
}
