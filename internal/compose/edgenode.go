package compose

import (
	"context"
	"log/slog"
	"slices"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/gossip"
	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/edge/fanout"
	"github.com/dnprelay/dnprelay/internal/edge/login"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/subject"
	"golang.org/x/sync/errgroup"
)

// EdgeFlags are the flags of an edge of a cluster.
type EdgeFlags struct {
	config.NATS     `group:"Cluster"`
	config.Node     `group:"Cluster"`
	config.Gossip   `group:"Cluster"`
	config.Sharding `group:"Cluster"`
	config.Edge     `group:"Edge"`
	config.Sessions `group:"Edge"`
	config.Forward  `group:"Cluster"`
	config.Admin    `group:"Health, metrics and logs" set:"http=127.0.0.1:8414"`
	config.Logging  `group:"Health, metrics and logs"`
}

// An EdgeNode is an edge of a cluster with everything that it needs.
type EdgeNode struct {
	flags    *EdgeFlags
	subjects subject.Names
	bus      *natsbus.Bus
	durable  *Durable // nil if sessions end with the edge
	edge     *edge.Edge
	gossip   *gossip.Gossip // nil without --gossip-join
	forward  *Forwarding    // nil if sessions end with the edge, or without gossip or its keys
	tel      *telemetry.Telemetry
	admin    *telemetry.Server
	mapping  Mapping
	drain    chan struct{} // holds one when the edge is to drain
	log      *slog.Logger
}

// NewEdgeNode connects to NATS and opens what the edge needs. The error is one line that
// names what is not available.
func NewEdgeNode(ctx context.Context, f *EdgeFlags, log *slog.Logger) (*EdgeNode, error) {
	tel, err := telemetry.Open("edge", f.Name, log)
	if err != nil {
		return nil, err
	}
	n := &EdgeNode{flags: f, subjects: Subjects(&f.NATS), tel: tel, log: tel.Logger(log), drain: make(chan struct{}, 1)}
	if err := n.open(ctx); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

func (n *EdgeNode) open(ctx context.Context) error {
	f := n.flags
	stopWaiting, reached, err := showWaiting(&f.Admin)
	if err != nil {
		return err
	}
	defer stopWaiting()
	var buses []*natsbus.Bus
	connect := func() (*natsbus.Bus, error) {
		bus, err := DialNATS(ctx, &f.NATS, &f.Node, n.log)
		if err == nil {
			buses = append(buses, bus)
		}
		return bus, err
	}
	if n.bus, err = connect(); err != nil {
		return err
	}
	reached()
	if n.durable, err = OpenDurable(ctx, &f.Sessions, f.Name, connect, n.subjects, f.StartTimeout, n.log); err != nil {
		return err
	}
	if len(f.GossipJoin) > 0 {
		if n.gossip, err = NewGossip(&f.Gossip, cluster.RoleEdge, f.Name, f.Shards, nil, n.log); err != nil {
			return err
		}
	}
	if n.durable != nil { // without a log no other edge serves the clients of this one
		if n.forward, err = NewForwarding(&f.Forward, f.Name, n.gossip, n.log); err != nil {
			return err
		}
	}
	if n.edge, err = NewEdge(&f.Edge, f.Shards, f.Name, n.bus, n.subjects, n.durable.Edge(n.forward), n.tel, n.log); err != nil {
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
	stopWaiting()
	n.admin, err = telemetry.Listen(telemetry.Config{
		Addr: f.HTTP, Telemetry: n.tel, Pprof: f.Pprof, TokenFile: f.HTTPToken, Metrics: metrics,
		Health: func() telemetry.Health { return n.mapping.Note(EdgeHealth(n.edge, n.bus, n.durable)) }, Drain: n.Drain,
	})
	return err
}

// Drain makes Run end as if its context had ended, and returns what happens to sessions.
func (n *EdgeNode) Drain() telemetry.Drain {
	select {
	case n.drain <- struct{}{}:
	default: // a drain is requested already
	}
	if n.durable == nil {
		return telemetry.Drain{Sessions: telemetry.SessionsClosed}
	}
	return telemetry.Drain{Sessions: telemetry.SessionsHandedOver}
}

// Run serves until ctx ends or Drain is called, and then hands every session over.
func (n *EdgeNode) Run(ctx context.Context) error {
	defer n.close()
	// Whatever the edge needs while it drains runs until the edge has ended.
	after, stop := context.WithCancel(context.Background())
	durableEnd := make(chan struct{})
	go func() { n.durable.Run(after); close(durableEnd) }()
	defer func() { stop(); <-durableEnd }()
	serving, drain := context.WithCancel(ctx)
	defer drain()
	group, others := errgroup.WithContext(after)
	group.Go(func() error { return n.admin.Run(others) })
	group.Go(func() error {
		n.mapping.Watch(others, n.bus, n.subjects, n.flags.Name, n.flags.Shards, n.log)
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
		defer stop() // the edge ends last
		return n.edge.Run(serving)
	})
	group.Go(func() error {
		select {
		case <-serving.Done():
		case <-others.Done(): // something ended with an error
		case <-n.drain:
		}
		if n.gossip != nil {
			n.gossip.SetPhase(cluster.PhaseDraining)
		}
		drain()
		return nil
	})
	return group.Wait()
}

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

var clientStates = map[string]fanout.ClientStates{
	"game": fanout.ClientStatesGame, "space": fanout.ClientStatesSpace, "off": fanout.ClientStatesOff,
}

var auths = map[string]login.Auth{"open": login.AuthOpen, "token": login.AuthToken, "callout": login.AuthCallout}

// NewEdge returns an edge that the flags configure. Its ports are open.
func NewEdge(c *config.Edge, shards int, node string, bus bus.Bus, subjects subject.Names, durable *edge.Durable, tel *telemetry.Telemetry, log *slog.Logger) (*edge.Edge, error) {
	cfg := edge.Config{
		Node: node, Workers: c.Workers, Flush: c.Flush, OpenSpace: c.OpenSpace,
		LogAddresses: edge.LogAddresses(c.LogAddresses),
		ClientStates: clientStates[c.ClientStates], Shards: shards, Bus: bus, Subjects: subjects, Log: log, Telemetry: tel,
		Auth: auths[c.Auth], TokenKeys: c.TokenKeys,
		SessionsMax: c.Sessions, SessionsPerAddress: c.SessionsPerAddress,
		Admission:     admit.Config{AddressRate: c.AddressRate, Rate: c.ConnectRate},
		RateDatagrams: c.SessionDatagramRate, RateBytes: c.SessionByteRate,
		Durable:        durable,
		BytesPerSecond: orUnlimited(c.SessionSendRate), OfferBytesPerSecond: orUnlimited(c.OfferRate),
	}
	for _, l := range c.Listen {
		cfg.Listeners = append(cfg.Listeners, edge.Listener{Addr: l.Addr, Profile: l.Profile, Probe: l.Probe})
	}
	return edge.New(cfg)
}

// orUnlimited returns the rate of a flag, where 0 is unlimited, as edge.Config expects it,
// where 0 is the default.
func orUnlimited(rate int) int {
	if rate == 0 {
		return -1
	}
	return rate
}

// EdgeHealth returns the health of an edge. The edge stays ready when NATS goes away,
// because it serves its clients from the replicas, and a balancer must not move them.
func EdgeHealth(e *edge.Edge, bus bus.Bus, d *Durable) telemetry.Health {
	h := health(e.Ready(), bus)
	h.Missing = append(h.Missing, d.missing()...)
	return h
}

func health(ready bool, bus bus.Bus) telemetry.Health {
	h := telemetry.Health{Ready: ready}
	if !bus.Connected() {
		h.Missing = append(h.Missing, "nats")
	}
	return h
}
