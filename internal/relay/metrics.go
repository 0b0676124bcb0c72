package relay

import (
	"context"
	"time"

	"github.com/dnprelay/dnprelay/internal/telemetry"
)

// Stats asks every worker for its counters. It fails when ctx ends before all have
// answered.
func (r *Relay) Stats(ctx context.Context) (Stats, error) {
	answers := make(chan Stats, len(r.workers))
	for _, w := range r.workers {
		w.commands.Put(func(now time.Time) { answers <- w.Stats(now) })
	}
	var sum Stats
	for range r.workers {
		select {
		case s := <-answers:
			age := max(sum.DurableAge, s.DurableAge)
			telemetry.Sum(&sum, &s)
			sum.DurableAge = age
		case <-ctx.Done():
			return sum, ctx.Err()
		}
	}
	return sum, nil
}

// Metrics returns what this relay shows at /metrics.
func (r *Relay) Metrics() []telemetry.Metric {
	s := &telemetry.Cache[Stats]{Read: r.Stats}
	count := func(name, unit, help string, read func(*Stats) uint64) telemetry.Metric {
		return telemetry.Counter("dnp.relay."+name, unit, help, func() uint64 {
			stats := s.Get()
			return read(&stats)
		})
	}
	gauge := func(name, unit, help string, read func(*Stats) uint64) telemetry.Metric {
		return telemetry.Gauge("dnp.relay."+name, unit, help, func() float64 {
			stats := s.Get()
			return float64(read(&stats))
		})
	}
	return []telemetry.Metric{
		gauge("shards", "{shard}", "Shards that this relay serves.", func(s *Stats) uint64 { return s.Shards }),
		telemetry.Gauge("dnp.relay.shards.all", "{shard}", "Shards of the deployment, as this relay was told.",
			func() float64 { return float64(r.cfg.Shards) }),
		gauge("unstored", "{state}", "States that changed and are not in the durable store.", func(s *Stats) uint64 { return s.Unstored }),
		telemetry.Gauge("dnp.relay.durable.age", "s", "How long the oldest change has been waiting to be stored.", func() float64 {
			return s.Get().DurableAge.Seconds()
		}),
		count("stored", "{state}", "States that were stored.", func(s *Stats) uint64 { return s.Stored }),
		gauge("spaces", "{space}", "Spaces held.", func(s *Stats) uint64 { return s.Spaces }),
		gauge("states", "{state}", "States held.", func(s *Stats) uint64 { return s.Store.States }),
		count("publishes", "{message}", "Messages of publishers.", func(s *Stats) uint64 { return s.Publishes }),
		count("publish.errors", "{error}", "Publishes and ops that were answered with an error.",
			func(s *Stats) uint64 { return s.Refused + s.Store.PublishErrors }),
		count("values", "{value}", "Values that changed and were emitted.", func(s *Stats) uint64 { return s.Store.ValuesChanged }),
		count("values.filtered", "{value}", "Values that changed less than their precision.",
			func(s *Stats) uint64 { return s.Store.ValuesFiltered }),
		count("batches", "{batch}", "Batches emitted.", func(s *Stats) uint64 { return s.Store.Batches }),
		count("batch.io", "By", "Bytes of batches emitted.", func(s *Stats) uint64 { return s.Store.BatchBytes }),
		count("writes", "{write}", "Writes of clients.", func(s *Stats) uint64 { return s.Store.Writes }),
		count("writes.refused", "{write}", "Writes of clients that were refused.", func(s *Stats) uint64 { return s.Store.WritesRefused }),
		count("values.out_of_range", "{value}", "Values of clients that were refused, because they are below min or above max.", func(s *Stats) uint64 { return s.Store.ValuesOutOfRange }),
		count("values.not_finite", "{value}", "Values of clients that were refused, because they are NaN or infinite.", func(s *Stats) uint64 { return s.Store.ValuesNotFinite }),
		count("values.too_often", "{value}", "Values of clients that were refused, because they were written more often than their rate.", func(s *Stats) uint64 { return s.Store.ValuesTooOften }),
		count("refused.untold", "{event}", "Events about refused writes that were left out, because the client caused so many.", func(s *Stats) uint64 { return s.Store.RefusedUntold }),
		count("repairs", "{request}", "Repair requests answered.", func(s *Stats) uint64 { return s.Repairs }),
		telemetry.CounterBy("dnp.relay.busy", "{message}", "Publishes and writes answered busy, by what was full.", "reason",
			func(observe func(string, uint64)) {
				stats := s.Get()
				observe("answers", stats.Store.Busy)
				observe("spaces", stats.SpacesRefused)
			}),
		gauge("inbox.io", "By", "Messages of the bus that wait for a worker.", func(s *Stats) uint64 { return s.InboxBytes }),
		gauge("inbox.messages", "{message}", "Their number.", func(s *Stats) uint64 { return s.InboxMessages }),
		count("checksums", "{view}", "Checksums emitted, with which replicas compare what they have.", func(s *Stats) uint64 { return s.Store.Checksums }),
		count("restore.errors", "{state}", "Stored states that could not be read.", func(s *Stats) uint64 { return s.RestoreErrors }),
		count("sessions.refused", "{session}", "Sessions beyond what a space may have.", func(s *Stats) uint64 { return s.Store.SessionsRefused }),
		count("sessions.lost", "{session}", "Sessions that no edge named for too long.", func(s *Stats) uint64 { return s.SessionsLost }),
		telemetry.CounterBy("dnp.relay.bus.lost", "{message}", "Messages for the bus that it refused, and from it that the relay dropped, by reason.",
			"reason", func(observe func(string, uint64)) {
				stats := s.Get()
				observe("outgoing", stats.Lost)
				observe("inbox", stats.InboxLost)
				observe("malformed", stats.Malformed+stats.Store.RepairMalformed)
				observe("not_held", stats.NotHeld)
			}),
	}
}
