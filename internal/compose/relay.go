package compose

import (
	"log/slog"
	"time"

	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/relay"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/replication"
)

// NewRelay returns a relay with what the flags say. It holds every shard, with
// the time of its start as epoch, so there must be only one.
func NewRelay(c *config.Relay, shards int, node string, wildcard bool, bus replication.Bus, subjects replication.Subjects, log *slog.Logger) (*relay.Relay, error) {
	return relay.New(relay.Config{
		Node: node, Bus: bus, Subjects: subjects, Shards: shards, Tick: c.Tick, Wildcard: wildcard, Log: log,
		Epoch: uint64(time.Now().UnixMilli()),
	})
}

// RelayHealth says how a relay is. Without NATS nobody can reach it.
func RelayHealth(r *relay.Relay, bus replication.Bus) telemetry.Health {
	return health(r.Ready(), bus)
}
