package compose

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/jetstream"
	"github.com/dnprelay/dnprelay/internal/telemetry"
)

// Security returns the credentials of a node at NATS.
func Security(c *config.NATS) natsbus.Security {
	return natsbus.Security{
		User: c.NATSUser, Password: c.NATSPassword, Credentials: c.NATSCreds, NKey: c.NATSNKey, CA: c.NATSCA, Cert: c.NATSCert, Key: c.NATSKey,
	}
}

// openStore calls open until it succeeds, while JetStream is not available. timeout is how
// long it may take; 0 is without limit. ErrDeployment ends the attempts: the streams
// contradict this node, and waiting does not help.
func openStore(ctx context.Context, timeout time.Duration, log *slog.Logger, open func(context.Context) error) error {
	start := time.Now()
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := open(attempt)
		cancel()
		switch {
		case err == nil || errors.Is(err, jetstream.ErrDeployment) || ctx.Err() != nil:
			return err
		case timeout > 0 && time.Since(start) >= timeout:
			return fmt.Errorf("gave up after %v: %w", timeout, err)
		}
		log.Warn("JetStream is not available, trying again", "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// BusMetrics returns the metrics of a node's connections to NATS.
func BusMetrics(buses ...*natsbus.Bus) []telemetry.Metric {
	sum := func() (all natsbus.Stats) {
		for _, b := range buses {
			s := b.Stats()
			telemetry.Sum(&all, &s)
		}
		return all
	}
	of := telemetry.Group[natsbus.Stats]{Prefix: "dnp.nats.", Read: sum}
	return []telemetry.Metric{
		telemetry.Gauge("dnp.nats.connected", "{connection}", "Connections to NATS that are up.", func() (n float64) {
			for _, b := range buses {
				if b.Connected() {
					n++
				}
			}
			return n
		}),
		telemetry.Gauge("dnp.nats.connections", "{connection}", "Connections to NATS that this node needs.",
			func() float64 { return float64(len(buses)) }),
		of.InOut("messages", "{message}", "Messages of the bus.", func(s *natsbus.Stats) (in, out uint64) { return s.Received, s.Published }),
		of.InOut("io", "By", "Bytes of the bodies of bus messages.",
			func(s *natsbus.Stats) (in, out uint64) { return s.ReceivedBytes, s.PublishedBytes }),
		of.CounterBy("drops", "{message}", "Messages that were dropped, by reason; slow = received, but not handled in time.",
			"reason", func(s *natsbus.Stats, observe func(string, uint64)) {
				observe("disconnected", s.DroppedDisconnected)
				observe("busy", s.DroppedBusy)
				observe("size", s.DroppedSize)
				observe("other", s.DroppedOther)
				observe("slow", s.Missed)
			}),
		of.Counter("slow.consumers", "{event}", "Times that messages began to arrive faster than the node handled them.",
			func(s *natsbus.Stats) uint64 { return s.SlowConsumers }),
		of.Counter("reconnects", "{connection}", "Times that a lost connection was restored.", func(s *natsbus.Stats) uint64 { return s.Reconnects }),
		of.Counter("errors", "{error}", "Errors that NATS reported, for example refused subscriptions.",
			func(s *natsbus.Stats) uint64 { return s.Errors }),
	}
}
