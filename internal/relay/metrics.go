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
	cache := &telemetry.Cache[Stats]{Read: r.Stats}
	of := telemetry.Group[Stats]{Prefix: "dnp.relay.", Read: cache.Get}
	return []telemetry.Metric{
		r.look.metric(),
		of.Gauge("shards", "{shard}", "Shards that this relay serves.", func(s *Stats) float64 { return float64(s.Shards) }),
		of.Gauge("shards.all", "{shard}", "Shards of the deployment, as this relay was told.", func(*Stats) float64 { return float64(r.cfg.Shards) }),
		of.Gauge("unstored", "{state}", "States that changed and are not in the durable store.", func(s *Stats) float64 { return float64(s.Unstored) }),
		of.Gauge("durable.age", "s", "How long the oldest change has been waiting to be stored.",
			func(s *Stats) float64 { return s.DurableAge.Seconds() }),
		of.Counter("stored", "{state}", "States that were stored.", func(s *Stats) uint64 { return s.Stored }),
		of.Gauge("spaces", "{space}", "Spaces held.", func(s *Stats) float64 { return float64(s.Spaces) }),
		of.Gauge("states", "{state}", "States held.", func(s *Stats) float64 { return float64(s.Store.States) }),
		of.Counter("states.expired", "{state}", "States that were removed because their time to live was over.", func(s *Stats) uint64 { return s.Store.Expired }),
		of.Counter("publishes", "{message}", "Messages of publishers.", func(s *Stats) uint64 { return s.Publishes }),
		of.Counter("publish.errors", "{error}", "Publishes and ops that were answered with an error.",
			func(s *Stats) uint64 { return s.Refused + s.Store.PublishErrors }),
		of.Counter("values", "{value}", "Values that changed and were emitted.", func(s *Stats) uint64 { return s.Store.ValuesChanged }),
		of.Counter("values.filtered", "{value}", "Values that changed less than their precision.",
			func(s *Stats) uint64 { return s.Store.ValuesFiltered }),
		of.Counter("batches", "{batch}", "Batches emitted.", func(s *Stats) uint64 { return s.Store.Batches }),
		of.Counter("batch.io", "By", "Bytes of batches emitted.", func(s *Stats) uint64 { return s.Store.BatchBytes }),
		of.Counter("writes", "{write}", "Writes of clients.", func(s *Stats) uint64 { return s.Store.Writes }),
		of.Counter("writes.refused", "{write}", "Writes of clients that were refused.", func(s *Stats) uint64 { return s.Store.WritesRefused }),
		of.Counter("values.out_of_range", "{value}", "Values of clients that were refused, because they are below min or above max.", func(s *Stats) uint64 { return s.Store.ValuesOutOfRange }),
		of.Counter("values.not_finite", "{value}", "Values of clients that were refused, because they are NaN or infinite.", func(s *Stats) uint64 { return s.Store.ValuesNotFinite }),
		of.Counter("values.too_often", "{value}", "Values of clients that were refused, because they were written more often than their rate.", func(s *Stats) uint64 { return s.Store.ValuesTooOften }),
		of.Counter("refused.untold", "{event}", "Events about refused writes that were left out, because the client caused so many.", func(s *Stats) uint64 { return s.Store.RefusedUntold }),
		of.Counter("repairs", "{request}", "Repair requests answered.", func(s *Stats) uint64 { return s.Repairs }),
		of.InOut("repair.io", "By", "Bytes of repair requests, and of their answers.",
			func(s *Stats) (in, out uint64) { return s.RepairAsked, s.RepairBytes }),
		of.Counter("repair.states", "{state}", "States, or views of them, that answers to repair requests had in whole.", func(s *Stats) uint64 { return s.Store.RepairWhole }),
		of.Counter("repairs.coalesced", "{request}", "Repair requests that waited because their edge had been answered just before, repetitions of them included.",
			func(s *Stats) uint64 { return s.RepairsCoalesced }),
		of.Counter("repairs.coalesced.io", "By", "Their bytes.", func(s *Stats) uint64 { return s.CoalescedBytes }),
		of.CounterBy("busy", "{message}", "Publishes and writes answered busy, by what was full.", "reason",
			func(s *Stats, observe func(string, uint64)) {
				observe("answers", s.Store.Busy)
				observe("spaces", s.SpacesRefused)
			}),
		of.Gauge("inbox.io", "By", "Messages of the bus that wait for a worker.", func(s *Stats) float64 { return float64(s.InboxBytes) }),
		of.Gauge("inbox.messages", "{message}", "Their number.", func(s *Stats) float64 { return float64(s.InboxMessages) }),
		of.Counter("checksums", "{view}", "Checksums emitted, with which replicas compare what they have.", func(s *Stats) uint64 { return s.Store.Checksums }),
		of.Counter("restore.errors", "{state}", "Stored states that could not be read.", func(s *Stats) uint64 { return s.RestoreErrors }),
		of.Counter("eyes.refused", "{eye}", "Spaces that have no view left for the eye of all clients, each time a session joined.", func(s *Stats) uint64 { return s.Store.EyesRefused }),
		of.Counter("sessions.refused", "{session}", "Sessions beyond what a space may have.", func(s *Stats) uint64 { return s.Store.SessionsRefused }),
		of.Counter("sessions.lost", "{session}", "Sessions that no edge named for too long.", func(s *Stats) uint64 { return s.SessionsLost }),
		of.CounterBy("bus.lost", "{message}", "Messages for the bus that it refused, and from it that the relay dropped, by reason.",
			"reason", func(s *Stats, observe func(string, uint64)) {
				observe("outgoing", s.Lost)
				observe("inbox", s.InboxLost)
				observe("malformed", s.Malformed+s.Store.RepairMalformed)
				observe("not_held", s.NotHeld)
			}),
	}
}
