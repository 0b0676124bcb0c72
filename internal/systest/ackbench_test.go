package systest

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/compose"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/natsembed"
	"github.com/dnprelay/dnprelay/internal/relay"
	"github.com/dnprelay/dnprelay/subject"
)

// BenchmarkAck measures how long a client waits for the acknowledgement of a reliable
// message, with and without a session log in one NATS server of the same process, and how
// many writes that takes. The client cannot tell times below about a millisecond.
func BenchmarkAck(b *testing.B) {
	for _, durability := range []string{"none", "log"} {
		b.Run(durability, func(b *testing.B) { benchmarkAck(b, durability) })
	}
}

func benchmarkAck(b *testing.B, durability string) {
	log := slog.New(slog.DiscardHandler)
	var subjects subject.Names
	nats, err := natsembed.Start(natsembed.Config{Listen: "127.0.0.1:0", Mappings: subjects.Mappings(64)})
	if err != nil {
		b.Fatal(err)
	}
	defer nats.Shutdown()
	connect := func() (*natsbus.Bus, error) { return natsbus.Connect(natsbus.Config{URL: nats.URL()}) }
	bus, err := connect()
	if err != nil {
		b.Fatal(err)
	}
	defer bus.Close()
	flags := &config.Sessions{SessionDurability: durability, SessionReplicas: 1, DrainTimeout: 5 * time.Second}
	durable, err := compose.OpenDurable(b.Context(), flags, "e", connect, subjects, time.Second, log)
	if err != nil {
		b.Fatal(err)
	}
	defer durable.Close()
	e, err := edge.New(edge.Config{
		Node: "e", Listeners: []edge.Listener{local(wire.Denetwork)}, Workers: 1, OpenSpace: "s", Bus: bus, Log: log, Durable: durable.Edge(nil),
	})
	if err != nil {
		b.Fatal(err)
	}
	r, err := relay.New(relay.Config{Node: "r", Bus: bus, Epoch: 1, Log: log})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 3)
	go func() { ended <- r.Run(ctx) }()
	go func() { ended <- e.Run(ctx) }()
	after, stopLog := context.WithCancel(context.Background())
	go func() { durable.Run(after); ended <- nil }()
	defer func() { stop(); <-ended; <-ended; stopLog(); <-ended }()
	fast := dnptest.Cpp()
	fast.Tick = 100 * time.Microsecond // the library looks every 20 ms
	p, err := dnptest.RunUDP(b.Context(), dnptest.Config{Behaviour: fast, Server: e.Addrs()[0]}, netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	until := func(done func(*dnptest.Client) bool) {
		if err := p.Until(b.Context(), done); err != nil {
			b.Fatal(err)
		}
	}
	until(func(c *dnptest.Client) bool { return c.Phase() == dnptest.Connected })
	n := 0
	for b.Loop() {
		n++
		if err := p.Do(func(now time.Time, c *dnptest.Client) { _ = c.Send(now, fmt.Appendf(nil, "%d", n)) }); err != nil {
			b.Fatal(err)
		}
		until(func(c *dnptest.Client) bool { return c.Queued() == 0 })
	}
	if stats, err := e.Stats(b.Context()); err == nil {
		b.ReportMetric(float64(stats.Durable.LogWrites)/float64(n), "writes/message")
	}
}
