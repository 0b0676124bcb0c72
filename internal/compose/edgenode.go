package compose

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/examples/web"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/edge/fanout"
	"github.com/dnprelay/dnprelay/internal/edge/login"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"golang.org/x/sync/errgroup"
)

// An EdgeCommand is the command that runs an edge of a cluster, with its flags.
type EdgeCommand struct {
	config.Cluster  `group:"Cluster"`
	config.Edge     `group:"Edge"`
	config.Web      `group:"Edge" set:"web="`
	config.LLUDP    `group:"Edge" set:"lludp="`
	config.Variants `group:"Edge" set:"variant="`
	config.Sessions `group:"Edge"`
	config.Forward  `group:"Cluster"`
	config.Admin    `group:"Health, metrics and logs" set:"http=127.0.0.1:8414"`
	config.Logging  `group:"Health, metrics and logs"`

	OpenAffinity OpenAffinity `kong:"-"` // for --redis
	Dev          bool         `kong:"-"` // of relay dev --edges
}

// Problems lists what is wrong with flags that belong together.
func (c *EdgeCommand) Problems() (list config.Problems) {
	list.AddIf(c.WebTransport != "" && c.TLSCert == "", "--webtransport", "needs --tls-cert")
	list.AddIf(c.LLUDP.LLUDP != "" && c.WebSocket == "" && c.Auth != "open", "--lludp", "needs --websocket, where viewers log in")
	for _, f := range []struct{ flag, value string }{{"--forward-listen", c.ForwardListen}, {"--forward-advertise", c.ForwardAdvertise}} {
		list.AddIf(f.value != "" && (c.SessionDurability != "log" || len(c.GossipJoin) == 0 || c.GossipKeyFile == ""), f.flag, "needs --session-durability log, --gossip-join and --gossip-key-file, without which edges do not forward")
	}
	clusterProblems(&list, &c.Cluster)
	clientProblems(&list, &c.Edge, &c.Web)
	processProblems(&list, &c.Admin)
	return list
}

// An edgeNode is an edge of a cluster with everything that it needs.
type edgeNode struct {
	node
	flags   *EdgeCommand
	durable *Durable // nil if sessions end with the edge
	edge    *edge.Edge
	web     *webListeners
	forward *Forwarding   // nil if sessions end with the edge, or without gossip or its keys
	drain   chan struct{} // holds one when the edge is to drain
}

// Run serves until ctx ends or an operator requests a drain, and then hands every session
// over. The error is one line that names what is not available.
func (c *EdgeCommand) Run(ctx context.Context, log *slog.Logger) error {
	n := &edgeNode{flags: c, drain: make(chan struct{}, 1), node: node{leaving: make(chan struct{})}}
	drain := c.DrainTimeout + endOfWorkers
	if c.SessionDurability == "log" {
		drain = c.DrainTimeout + c.DrainLinger
	}
	return n.within(ctx, drain, func() error { return c.serve(ctx, n, log) })
}

// endOfWorkers is how long the workers of an edge may take to tell their clients that it ends.
const endOfWorkers = time.Second

func (c *EdgeCommand) serve(ctx context.Context, n *edgeNode, log *slog.Logger) error {
	if err := n.openTelemetry("edge", c.Name, c.Shards, log); err != nil {
		return err
	}
	defer n.close()
	switch err := n.start(ctx, &c.Cluster, &c.Admin, 1, n.open); {
	case err != nil && ctx.Err() != nil:
		return nil // a signal before the edge has sessions: nothing to drain
	case err != nil:
		return err
	}
	metrics := slices.Concat(n.edge.Metrics(), n.web.metrics(), n.durable.Metrics())
	if n.forward != nil {
		metrics = append(metrics, n.forward.Metrics()...)
	}
	if err := n.show(&c.Admin, metrics, func() telemetry.Health { return edgeHealth(n.edge, n.bus, n.durable) }, n.requestDrain, nil); err != nil {
		return err
	}
	if c.Auth == "open" && !c.Dev {
		log.Warn(openWarning)
	}
	return n.run(ctx)
}

// open makes what an edge needs besides a connection to NATS.
func (n *edgeNode) open(ctx context.Context) (err error) {
	c := n.flags
	connect := func() (*natsbus.Bus, error) { return n.dial(ctx, &c.Cluster) }
	if n.durable, err = OpenDurable(ctx, &c.Sessions, n.name, connect, c.OpenAffinity, n.subjects, c.StartTimeout, n.log); err != nil {
		return err
	}
	if err := n.join(&c.Gossip, cluster.RoleEdge); err != nil {
		return err
	}
	if n.durable != nil { // without a log no other edge serves the clients of this one
		if n.forward, err = NewForwarding(&c.Forward, clientRate(&c.Edge), n.name, n.gossip, n.log); err != nil {
			return err
		}
	}
	flags := webFlags{Web: &c.Web, Variants: &c.Variants, Viewers: &c.LLUDP, Edge: &c.Edge, Dev: c.Dev, Shared: c.Dev}
	if n.edge, err = newEdge(&n.node, flags, n.bus, n.durable.Edge(n.forward), c.DrainTimeout, n.requestDrain); err != nil {
		return err
	}
	if n.durable != nil && n.gossip != nil {
		if err := tellAddresses(n.gossip, n.forward, n.edge.Addrs()); err != nil {
			return err
		}
	}
	var page fs.FS
	if c.Dev {
		page = web.Files
	}
	if n.web, err = openWeb(flags, n.edge, n.durable.key(n.name), page, n.log); err != nil {
		return err
	}
	if n.forward != nil {
		n.forward.Serve(n.edge)
	}
	return nil
}

// requestDrain calls tell with what happens to sessions, and then makes run end as if its context had ended.
func (n *edgeNode) requestDrain(tell func(telemetry.Drain)) {
	d := telemetry.Drain{Sessions: telemetry.SessionsClosed}
	if n.durable != nil {
		d = telemetry.Drain{Sessions: telemetry.SessionsHandedOver, Reason: n.edge.Stranded()}
	}
	tell(d)
	select {
	case n.drain <- struct{}{}:
	default: // a drain is requested already
	}
}

func (n *edgeNode) run(ctx context.Context) error {
	// Whatever the edge needs while it drains runs until the edge has ended.
	after, stop := context.WithCancel(context.Background())
	var durable sync.WaitGroup
	group, others := errgroup.WithContext(after)
	durable.Go(func() { n.durable.Run(after) })
	defer func() {
		n.step.Store("the session log")
		stop()
		durable.Wait()
	}()
	serving, drain := context.WithCancel(ctx)
	defer drain()
	group.Go(func() error { return n.durable.Maintain(others) })
	alive := make(chan bool)
	group.Go(func() error {
		var asks []func(context.Context) error
		for _, b := range n.buses {
			asks = append(asks, b.Conn().FlushWithContext)
		}
		pulse(others, alive, asks...)
		return nil
	})
	group.Go(func() error { n.followPulse(others, alive); return nil })
	group.Go(func() error { return n.admin.Run(others) })
	group.Go(func() error { return n.web.run(others) })
	group.Go(func() error { return n.watchMapping(others) })
	group.Go(func() error { return n.watchRelays(others, n.otherRelays) })
	if n.gossip != nil {
		n.gossip.SetPhase(cluster.PhaseReady)
		group.Go(func() error { return n.gossip.Run(others) })
		group.Go(func() error {
			FollowRoster(others, n.gossip, func(r cluster.Roster) {
				if n.forward != nil {
					n.forward.SetRoster(others, r)
				}
				n.edge.SetRoster(r)
			})
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
		n.step.Store("handing the sessions over")
		close(n.leaving)
		drain()
		return nil
	})
	return group.Wait()
}

func (n *edgeNode) close() {
	if n.forward != nil {
		n.forward.Close()
	}
	n.node.close()
}

var clientStates = map[string]fanout.ClientStates{
	"game": fanout.ClientStatesGame, "space": fanout.ClientStatesSpace, "off": fanout.ClientStatesOff,
}

var recycles = map[string]fanout.Recycle{"close": fanout.RecycleClose, "tell": fanout.RecycleTell}

var auths = map[string]login.Auth{"open": login.AuthOpen, "token": login.AuthToken, "callout": login.AuthCallout}

// newEdge returns an edge that the flags configure. Its ports are open. Operators can drain it over NATS if request is
// not nil.
func newEdge(n *node, flags webFlags, bus bus.Bus, durable *edge.Durable, drain time.Duration, request func(tell func(telemetry.Drain))) (*edge.Edge, error) {
	c := flags.Edge
	cfg := edge.Config{
		Node: n.name, Shared: flags.Shared, Workers: c.Workers, Flush: c.Flush, OpenSpace: c.OpenSpace,
		LogAddresses: edge.LogAddresses(c.LogAddresses),
		ClientStates: clientStates[c.ClientStates], Recycle: recycles[c.Recycle], Describe: c.LinkMessage == "describe", Shards: n.shards, Bus: bus, Subjects: n.subjects, Log: n.log, Telemetry: n.tel,
		Auth: auths[c.Auth], TokenKeys: c.TokenKeys, LoginTimeout: c.LoginTimeout,
		SessionsMax: c.Sessions, SessionsPerAddress: c.SessionsPerAddress,
		Admission:      admission(c),
		Rate:           clientRate(c),
		Durable:        durable,
		Carriers:       carriers(flags, durable),
		Drain:          request,
		DrainTimeout:   drain,
		BytesPerSecond: orUnlimited(c.SessionSendRate), OfferBytesPerSecond: orUnlimited(c.OfferRate),
	}
	for _, l := range c.Listen {
		cfg.Listeners = append(cfg.Listeners, edge.Listener{Addr: l.Addr, Profile: l.Profile, Probe: l.Probe})
	}
	e, err := edge.New(cfg)
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("--listen: %w", err)
	}
	return e, err
}

// admission returns how many unknown clients are looked at.
func admission(c *config.Edge) admit.Config {
	return admit.Config{AddressRate: c.AddressRate, Rate: c.ConnectRate}
}

// openWarning is for edges that others than this machine reach.
const openWarning = "clients do not identify themselves, which suits trusted networks only; elsewhere use --auth token or callout"

// clientRate returns how much each client may send.
func clientRate(c *config.Edge) admit.Rate {
	return admit.Rate{Datagrams: c.SessionDatagramRate, Bytes: c.SessionByteRate}
}

// orUnlimited returns the rate of a flag, where 0 is unlimited, as edge.Config expects it,
// where 0 is the default.
func orUnlimited(rate int) int {
	if rate == 0 {
		return -1
	}
	return rate
}

// edgeHealth returns the health of an edge. The edge stays ready when NATS goes away,
// because it serves its clients from the replicas, and a balancer must not move them.
func edgeHealth(e *edge.Edge, bus bus.Bus, d *Durable) telemetry.Health {
	h := health(e.Ready(), bus)
	h.Missing = append(h.Missing, d.missing()...)
	return h
}
