package compose

import (
	"log/slog"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/edge/fanout"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/subject"
)

var clientStates = map[string]fanout.ClientStates{
	"game": fanout.ClientStatesGame, "space": fanout.ClientStatesSpace, "off": fanout.ClientStatesOff,
}

var ways = map[string]edge.Auth{"open": edge.AuthOpen, "token": edge.AuthToken, "callout": edge.AuthCallout}

// NewEdge returns an edge with what the flags say. Its ports are open.
func NewEdge(c *config.Edge, shards int, node string, bus bus.Bus, subjects subject.Names, durable *edge.Durable, tel *telemetry.Telemetry, log *slog.Logger) (*edge.Edge, error) {
	cfg := edge.Config{
		Node: node, Workers: c.Workers, Flush: c.Flush, OpenSpace: c.OpenSpace,
		LogAddresses: edge.LogAddresses(c.LogAddresses),
		ClientStates: clientStates[c.ClientStates], Shards: shards, Bus: bus, Subjects: subjects, Log: log, Telemetry: tel,
		Auth: ways[c.Auth], TokenKeys: c.TokenKeys,
		SessionsMax: c.Sessions, SessionsPerAddress: c.SessionsPerAddress,
		Admission:     admit.Config{AddressRate: c.AddressRate, Rate: c.ConnectRate},
		RateDatagrams: c.SessionDatagramRate, RateBytes: c.SessionByteRate,
		Durable:        durable,
		BytesPerSecond: orOff(c.SessionSendRate), OfferBytesPerSecond: orOff(c.OfferRate),
	}
	for _, l := range c.Listen {
		cfg.Listeners = append(cfg.Listeners, edge.Listener{Addr: l.Addr, Profile: l.Profile, Probe: l.Probe})
	}
	return edge.New(cfg)
}

// orOff returns what stands for "no bound" where 0 means the default.
func orOff(rate int) int {
	if rate == 0 {
		return -1
	}
	return rate
}

// EdgeHealth says how an edge is. It stays ready when NATS goes away, because its
// clients are served from the replicas and a balancer must not move them.
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
