package compose

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/lease"
	"github.com/dnprelay/dnprelay/cluster/natslease"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/format"
	"github.com/dnprelay/dnprelay/internal/jetstream"
	"github.com/dnprelay/dnprelay/internal/relay"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/replication"
	"golang.org/x/sync/errgroup"
)

// A RelayCommand is the command that runs a relay of a cluster, with its flags.
type RelayCommand struct {
	config.Cluster   `group:"Cluster"`
	config.Relay     `group:"Relay"`
	config.RelayNATS `group:"Relay"`
	config.Admin     `group:"Health, metrics and logs" set:"http=127.0.0.1:8413"`
	config.Logging   `group:"Health, metrics and logs"`
}

// Problems lists what is wrong with the files of the flags, and with the environment.
func (c *RelayCommand) Problems() (list config.Problems) {
	clusterProblems(&list, &c.Cluster)
	processProblems(&list, &c.Admin)
	return list
}

// A relayNode is a relay of a cluster with everything that it needs.
type relayNode struct {
	node
	flags  *RelayCommand
	store  *natsbus.Bus // its own connection, because keyframes are large and must not delay batches
	leases *natslease.Leases
	relay  *relay.Relay
}

// Run serves until ctx ends, and then hands every shard over. The error is one line that
// names what is not available.
func (c *RelayCommand) Run(ctx context.Context, log *slog.Logger) error {
	n := &relayNode{flags: c, node: node{leaving: make(chan struct{})}}
	return n.within(ctx, c.DrainTimeout, func() error { return c.serve(ctx, n, log) })
}

func (c *RelayCommand) serve(ctx context.Context, n *relayNode, log *slog.Logger) error {
	if err := n.openTelemetry("relay", c.Name, c.Shards, log); err != nil {
		return err
	}
	defer n.close()
	switch err := n.start(ctx, &c.Cluster, &c.Admin, 2, n.open); {
	case err != nil && ctx.Err() != nil:
		return nil // a signal before the relay has shards: nothing to drain
	case err != nil:
		return err
	}
	metrics := append(n.relay.Metrics(), leaseMetrics(n.leases)...)
	if err := n.show(&c.Admin, metrics, n.health, nil, n.relay); err != nil {
		return err
	}
	return n.run(ctx)
}

// health returns the health of a relay. It is not ready without anything that it needs: nothing
// reaches it without NATS, and it can neither hold shards nor store states without the streams.
func (n *relayNode) health() telemetry.Health {
	h := health(n.relay.Ready() && !n.silent.Load(), n.bus)
	h.Missing = append(h.Missing, n.relay.Missing()...)
	h.Ready = h.Ready && len(h.Missing) == 0
	return h
}

// headsWait is how long a relay listens to the heads of holders before it makes a stream. A
// holder sends one for each shard every 250 ms.
const headsWait = time.Second

// highestEpoch returns the highest epoch that holders name.
func (n *relayNode) highestEpoch() uint64 {
	var highest atomic.Uint64
	end, err := n.bus.Subscribe(n.subjects.HeadAll(), func(m bus.Msg) {
		if epoch, ok := replication.HeadEpoch(m.Data); ok && jetstream.Believable(time.Now(), epoch) {
			highest.Store(max(highest.Load(), epoch))
		}
	})
	if err != nil {
		return 0 // the connection is closed, so no stream will be made
	}
	time.Sleep(headsWait)
	end()
	return highest.Load()
}

// open makes what a relay needs besides its connections to NATS.
func (n *relayNode) open(ctx context.Context) error {
	c := n.flags
	n.store = n.buses[1]
	err := openStore(ctx, c.StartTimeout, "--replicas", n.log, func(ctx context.Context) (err error) {
		n.leases, err = natslease.Open(ctx, natslease.Config{
			Conn: n.store.Conn(), Subjects: n.subjects, Node: n.name, Shards: n.shards, Streams: c.StoreStreams,
			Replicas: c.Replicas, Silence: c.LeaseSilence, Format: n.format,
			Epochs: n.highestEpoch, Log: n.log,
		})
		return err
	})
	if err != nil {
		return err
	}
	n.relay, err = relay.New(relay.Config{
		Node: n.name, Bus: n.bus, Subjects: n.subjects, Shards: n.shards, Tick: c.Tick, Spaces: c.Spaces, Eye: c.EveryEye(),
		Wildcard: c.Ingress == "wildcard", Leases: n.leases, Missing: n.leases.Missing, Stored: n.leases.Stored, DurableRate: c.DurableRate,
		DrainTimeout: c.DrainTimeout, Log: n.log, Telemetry: n.tel,
	})
	if err != nil {
		return err
	}
	return n.join(&c.Gossip, cluster.RoleRelay)
}

// format returns the lowest format that all members read. Gossip is opened before the relay asks
// for a lease.
func (n *relayNode) format() uint8 {
	if n.gossip == nil {
		return format.Oldest
	}
	return n.gossip.Roster().Format()
}

func (n *relayNode) run(ctx context.Context) error {
	if err := n.relay.Start(); err != nil {
		return err
	}
	// Whatever the relay needs while it drains runs until the relay has ended.
	after, stop := context.WithCancel(context.Background())
	var lasting sync.WaitGroup
	defer func() {
		n.step.Store("the store")
		stop()
		lasting.Wait()
	}()
	lasting.Go(func() { n.leases.Run(after) })
	relayCtx, stopRelay := context.WithCancel(after)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return n.relay.Run(relayCtx) })
	group.Go(func() error { return n.admin.Run(ctx) })
	group.Go(func() error { return n.watchMapping(ctx) })
	group.Go(func() error { return n.watchRelays(ctx, n.otherRelays) })
	failed := make(chan error, 2)
	lasting.Go(func() { failed <- n.leases.Maintain(after) })
	if n.gossip != nil { // a relay that drains is still a member
		lasting.Go(func() { failed <- n.gossip.Run(after) })
	}
	group.Go(func() error {
		select {
		case err := <-failed:
			return err
		case <-n.relay.Done():
			return nil
		}
	})
	group.Go(func() error {
		n.follow(ctx)
		stopRelay()
		return nil
	})
	return group.Wait()
}

// follow gives the relay every roster until ctx ends, and then tells the other nodes that the relay
// drains.
func (n *relayNode) follow(ctx context.Context) {
	defer func() {
		n.step.Store("handing the shards over")
		close(n.leaving)
	}()
	alive := make(chan bool)
	var asking sync.WaitGroup
	asking.Go(func() { pulse(ctx, alive, n.bus.Conn().FlushWithContext, n.store.Conn().FlushWithContext) })
	defer asking.Wait()
	if n.gossip == nil {
		n.relay.SetRoster(cluster.NewRoster([]cluster.Member{{Name: n.name, Role: cluster.RoleRelay, Phase: cluster.PhaseReady}}))
		n.followPulse(ctx, alive)
		return
	}
	announced := cluster.PhaseStarting
	for reached := true; ; {
		phase := cluster.PhaseStarting // without NATS a relay gets no shards
		if reached {
			phase = cluster.PhaseReady
		}
		if phase != announced {
			announced = phase
			n.gossip.SetPhase(phase)
		}
		n.relay.SetRoster(n.gossip.Roster())
		select {
		case <-ctx.Done():
			n.gossip.SetPhase(cluster.PhaseDraining)
			return
		case <-n.gossip.Changes():
		case reached = <-alive:
			n.noteAlive(reached)
		}
	}
}

// leaseMetrics returns the metrics of a relay's leases and store.
func leaseMetrics(l *natslease.Leases) []telemetry.Metric {
	of := telemetry.NewGroup("dnp.relay.", l.Stats)
	s := &of.All
	return []telemetry.Metric{
		of.CounterBy("store.answers", "{answer}", "Answers of the durable store, by outcome.", "outcome", answers(&s.Answers)),
		of.CounterBy("ownerships.ended", "{ownership}", "Shards that this relay stopped owning, or serving (silence), by reason.", "reason", telemetry.Parts{
			"released": &s.Lost[lease.ReasonReleased], "taken": &s.Lost[lease.ReasonTaken], "fenced": &s.Lost[lease.ReasonEpoch], "revoked": &s.Lost[lease.ReasonRevoked],
			"silence": &s.Paused, "wiped": &s.Lost[lease.ReasonWiped], "hung": &s.Lost[lease.ReasonHung], "replaced": &s.Lost[lease.ReasonReplaced],
		}),
		of.Counter("store.retries", "{attempt}", "Times that the relay repeated a watch or a load of stored states.", &s.WatchRestarts, &s.LoadRetries),
		replacedMetric(func() uint64 { return l.Stats().Replaced }),
	}
}
