package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/internal/compose"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/natsembed"
	"github.com/dnprelay/dnprelay/internal/relay"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/subject"
	"golang.org/x/sync/errgroup"
)

type devCommand struct {
	config.Dev      `group:"Development"`
	config.Edge     `group:"Edge"`
	config.Sessions `group:"Edge"`
	config.Sharding `group:"Relay"`
	config.Relay    `group:"Relay"`
	config.Admin    `group:"Health, metrics and logs" set:"http=127.0.0.1:8413"`
	config.Logging  `group:"Health, metrics and logs"`
}

// A dev is everything that relay dev runs.
type dev struct {
	nats  *natsembed.Server
	buses []*natsbus.Bus
	relay *relay.Relay
	edge  *edge.Edge
	tel   *telemetry.Telemetry
	logs  *compose.Durable
	admin *telemetry.Server
	demo  *demo
}

// Run serves until ctx ends.
func (c *devCommand) Run(ctx context.Context, log *slog.Logger) error {
	d := &dev{}
	defer d.close()
	if err := d.start(ctx, c, log); err != nil {
		return err
	}
	d.tell(os.Stdout)
	return d.run(ctx)
}

// start opens all ports, so that a port in use is reported before anything runs.
func (d *dev) start(ctx context.Context, c *devCommand, log *slog.Logger) (err error) {
	var subjects subject.Names
	node := config.DefaultNode()
	if d.tel, err = telemetry.Open("relay", node, log); err != nil {
		return err
	}
	log = d.tel.Logger(log)
	d.nats, err = natsembed.Start(natsembed.Config{
		Listen: c.NATSListen, Folder: c.Data, Mappings: subjects.Mappings(c.Shards), Log: log,
	})
	if err != nil {
		return err
	}
	connect := func(name string) (bus *natsbus.Bus) {
		if err == nil {
			if bus, err = natsbus.Connect(natsbus.Config{InProcess: d.nats, Name: name}); err == nil {
				d.buses = append(d.buses, bus)
			}
		}
		return bus
	}
	relayBus, edgeBus, demoBus := connect("relay"), connect("edge"), connect("demo")
	if err != nil {
		return err
	}
	if d.relay, err = compose.NewRelay(&c.Relay, c.Shards, node, relayBus, subjects, d.tel, log); err != nil {
		return err
	}
	d.logs, err = compose.OpenDurable(ctx, &c.Sessions, node, func() (*natsbus.Bus, error) {
		bus := connect("log")
		return bus, err
	}, subjects, time.Second, log)
	if err != nil {
		return err
	}
	if d.edge, err = compose.NewEdge(&c.Edge, c.Shards, node, edgeBus, subjects, d.logs.Edge(nil), d.tel, log); err != nil {
		return err
	}
	if c.Demo {
		d.demo = &demo{bus: demoBus, subjects: subjects, space: c.OpenSpace}
	}
	d.admin, err = telemetry.Listen(telemetry.Config{
		Addr: c.HTTP, Telemetry: d.tel, Pprof: c.Pprof, TokenFile: c.HTTPToken,
		Metrics: slices.Concat(d.edge.Metrics(), d.relay.Metrics(), d.logs.Metrics(), compose.BusMetrics(d.buses...)),
		Health: func() telemetry.Health {
			h := compose.EdgeHealth(d.edge, edgeBus, d.logs)
			h.Ready = h.Ready && d.relay.Ready()
			return h
		},
	})
	return err
}

// run runs everything until ctx ends. The edge ends first, so that the relay and NATS
// carry its last messages.
func (d *dev) run(ctx context.Context) error {
	relayCtx, stopRelay := context.WithCancel(context.Background())
	relayEnd := make(chan error, 1)
	group, ctx := errgroup.WithContext(ctx)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		relayEnd <- d.relay.Run(relayCtx)
		cancel() // nothing works without the relay
	}()
	logsEnd := make(chan struct{})
	go func() {
		d.logs.Run(relayCtx)
		close(logsEnd)
	}()
	group.Go(func() error { return d.edge.Run(ctx) })
	group.Go(func() error { return d.admin.Run(ctx) })
	if d.demo != nil {
		group.Go(func() error { return d.demo.run(ctx) })
	}
	err := group.Wait()
	stopRelay()
	<-logsEnd
	if relayErr := <-relayEnd; err == nil {
		err = relayErr
	}
	return err
}

func (d *dev) close() {
	for _, b := range d.buses {
		b.Close()
	}
	if d.nats != nil {
		d.nats.Shutdown()
	}
	d.tel.Close()
}

// tell prints the addresses and what to try next.
func (d *dev) tell(w io.Writer) {
	fmt.Fprintf(w, "dnprelay: everything in one process\n")
	addrs := d.edge.Addrs()
	for _, a := range addrs {
		fmt.Fprintf(w, "  DNP clients   udp://%s\n", a)
	}
	fmt.Fprintf(w, "  game servers  %s\n", d.nats.URL())
	if a := d.admin.Addr(); a != nil {
		fmt.Fprintf(w, "  health        http://%s/readyz and /metrics\n", a)
	}
	port := addrs[0].Port()
	fmt.Fprintf(w, `Try in another terminal:
  bin/dnpctl watch 127.0.0.1:%d
  bin/dnpctl publish demo tower hp:float32=93.5
  bin/dnpctl events demo
`, port)
}
