package compose

import (
	"log/slog"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/relay"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/subject"
)

// NewRelay returns a relay that is alone: it holds every shard, with the time of its
// start as epoch, and stores nothing.
func NewRelay(c *config.Relay, shards int, node string, bus bus.Bus, subjects subject.Names, tel *telemetry.Telemetry, log *slog.Logger) (*relay.Relay, error) {
	return relay.New(relay.Config{
		Node: node, Bus: bus, Subjects: subjects, Shards: shards, Tick: c.Tick, Log: log,
		Epoch: uint64(time.Now().UnixMilli()), Telemetry: tel,
	})
}

// RelayHealth says how a relay is. Without NATS nobody can reach it.
func RelayHealth(r *relay.Relay, bus bus.Bus) telemetry.Health {
	return health(r.Ready(), bus)
}
