package compose

import (
	"github.com/dnprelay/dnprelay/cluster/natslease"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/bus/natsbus"
)

// BusMetrics returns what a node shows at /metrics about its connections to NATS.
func BusMetrics(buses ...*natsbus.Bus) []telemetry.Metric {
	sum := func() (all natsbus.Stats) {
		for _, b := range buses {
			s := b.Stats()
			telemetry.Sum(&all, &s)
		}
		return all
	}
	count := func(name, unit, help string, read func(*natsbus.Stats) uint64) telemetry.Metric {
		return telemetry.Counter("dnp.nats."+name, unit, help, func() uint64 { s := sum(); return read(&s) })
	}
	direction := func(name, unit, help string, read func(*natsbus.Stats) (in, out uint64)) telemetry.Metric {
		return telemetry.CounterBy("dnp.nats."+name, unit, help, "direction", func(observe func(string, uint64)) {
			s := sum()
			in, out := read(&s)
			observe("in", in)
			observe("out", out)
		})
	}
	return []telemetry.Metric{
		telemetry.Gauge("dnp.nats.connected", "{connection}", "Connections to NATS that stand.", func() float64 {
			n := 0
			for _, b := range buses {
				if b.Connected() {
					n++
				}
			}
			return float64(n)
		}),
		telemetry.Gauge("dnp.nats.connections", "{connection}", "Connections to NATS that this node wants.",
			func() float64 { return float64(len(buses)) }),
		direction("messages", "{message}", "Messages of the bus.", func(s *natsbus.Stats) (in, out uint64) { return s.Received, s.Published }),
		direction("io", "By", "Bytes of the bodies of those messages.",
			func(s *natsbus.Stats) (in, out uint64) { return s.ReceivedBytes, s.PublishedBytes }),
		telemetry.CounterBy("dnp.nats.drops", "{message}", "Messages that were dropped, by reason; slow = received, but not taken in time.",
			"reason", func(observe func(string, uint64)) {
				s := sum()
				observe("disconnected", s.DroppedDisconnected)
				observe("busy", s.DroppedBusy)
				observe("size", s.DroppedSize)
				observe("other", s.DroppedOther)
				observe("slow", s.Missed)
			}),
		count("slow.consumers", "{event}", "Times that messages began to come faster than they were taken.",
			func(s *natsbus.Stats) uint64 { return s.SlowConsumers }),
		count("reconnects", "{connection}", "Times that a lost connection stood again.", func(s *natsbus.Stats) uint64 { return s.Reconnects }),
		count("errors", "{error}", "Errors that NATS reported, as of subscriptions that it refused.",
			func(s *natsbus.Stats) uint64 { return s.Errors }),
	}
}

// LeaseMetrics returns what a relay shows at /metrics about its leases and the store.
func LeaseMetrics(l *natslease.Leases) []telemetry.Metric {
	return []telemetry.Metric{
		telemetry.CounterBy("dnp.relay.store.answers", "{answer}", "Answers of the durable store, by outcome.", "outcome",
			func(observe func(string, uint64)) {
				s := l.Stats()
				observe("ok", s.OK)
				observe("stale", s.Stale)
				observe("busy", s.Busy)
				observe("unknown", s.Unknown)
				observe("unreachable", s.Unreachable)
			}),
		telemetry.CounterBy("dnp.relay.ownerships.ended", "{ownership}", "Shards that this relay stopped owning, by reason.", "reason",
			func(observe func(string, uint64)) {
				s := l.Stats()
				observe("released", s.Released)
				observe("taken", s.Taken)
				observe("fenced", s.Fenced)
				observe("silence", s.Silenced)
			}),
		telemetry.Counter("dnp.relay.store.retries", "{attempt}", "Times that a watch or a load of stored states began again.", func() uint64 {
			s := l.Stats()
			return s.WatchRestarts + s.LoadRetries
		}),
	}
}
