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
	of := telemetry.NewGroup("dnp.relay.", func() Stats {
		s := cache.Get()
		s.Malformed += s.Store.RepairMalformed
		return s
	})
	s := &of.All
	return append(r.loadMetrics(),
		r.look.Metric(),
		of.Gauge("shards", "{shard}", "Shards that this relay serves.", &s.Shards),
		of.Gauge("shards.all", "{shard}", "Shards of the deployment, as this relay was told.", &r.cfg.Shards),
		of.Gauge("unstored", "{state}", "States that changed and are not in the durable store yet.", &s.Unstored),
		telemetry.Gauge("dnp.relay.durable.age", "s", "How long the oldest change that is not in the durable store has been waiting.",
			func() float64 { return cache.Get().DurableAge.Seconds() }),
		of.Counter("stored", "{state}", "States that this relay wrote to the durable store.", &s.Stored),
		of.Gauge("store.states", "{state}", "States that the durable store has of the shards that this relay serves, as of the last comparison of each shard.", &s.StoredStates),
		of.Gauge("store.unserved", "{state}", "States that the durable store has of the shards that this relay serves, and that it does not serve: a fault.", &s.Unserved),
		of.Counter("store.comparisons", "{comparison}", "Times that this relay compared the states that it serves of a shard with those in the durable store.", &s.Compared),
		of.Gauge("spaces", "{space}", "Spaces that this relay holds.", &s.Spaces),
		of.Gauge("states", "{state}", "States that this relay holds.", &s.Store.States),
		of.Counter("states.expired", "{state}", "States that this relay removed because their time to live was over.", &s.Store.Expired),
		of.Counter("publishes", "{message}", "Messages of publishers that this relay took.", &s.Publishes),
		of.Counter("publish.errors", "{error}", "Messages of publishers, and ops in them, that this relay answered with an error.", &s.Refused, &s.Store.PublishErrors),
		of.Counter("values", "{value}", "Values that changed and were published to edges.", &s.Store.ValuesChanged),
		of.Counter("values.filtered", "{value}", "Values that changed less than their precision, and so were not published to edges.", &s.Store.ValuesFiltered),
		of.Counter("batches", "{batch}", "Batches of changes that this relay published.", &s.Store.Batches),
		of.Counter("batch.io", "By", "Bytes of the batches of changes that this relay published.", &s.Store.BatchBytes),
		of.Counter("writes", "{write}", "Writes of clients that reached this relay.", &s.Store.Writes),
		of.Counter("writes.refused", "{write}", "Writes of clients that this relay refused.", &s.Store.WritesRefused),
		of.Counter("values.out_of_range", "{value}", "Values of clients that were refused, because they are below min or above max.", &s.Store.ValuesOutOfRange),
		of.Counter("values.not_finite", "{value}", "Values of clients that were refused, because they are NaN or infinite.", &s.Store.ValuesNotFinite),
		of.Counter("values.too_often", "{value}", "Values of clients that were refused, because they were written more often than their rate.", &s.Store.ValuesTooOften),
		of.Counter("refused.untold", "{event}", "Events about refused writes that were left out, because the client caused so many.", &s.Store.RefusedUntold),
		of.Counter("repairs", "{request}", "Repair requests of edges that this relay answered.", &s.Repairs),
		of.InOut("repair.io", "By", "Bytes of repair requests of edges, and of the answers of this relay.", &s.RepairAsked, &s.RepairBytes),
		of.Counter("repair.states", "{state}", "States, or views of them, that answers to repair requests had in whole.", &s.Store.RepairWhole),
		of.Counter("repairs.coalesced", "{request}", "Repair requests that waited because their edge had been answered just before, repetitions of them included.", &s.RepairsCoalesced),
		of.Counter("repairs.coalesced.io", "By", "Bytes of repair requests that waited because their edge had been answered just before, repetitions of them included.", &s.CoalescedBytes),
		of.CounterBy("busy", "{message}", "Publishes and writes answered busy, by what was full.", "reason", telemetry.Parts{"answers": &s.Store.Busy, "spaces": &s.SpacesRefused}),
		of.Gauge("inbox.io", "By", "Bytes of messages of the bus that wait for a worker.", &s.InboxBytes),
		of.Gauge("inbox.messages", "{message}", "Number of messages of the bus that wait for a worker.", &s.InboxMessages),
		of.Counter("checksums", "{view}", "Checksums that this relay published, with which replicas compare what they have.", &s.Store.Checksums),
		of.Counter("restore.errors", "{state}", "States in the durable store that this relay could not read.", &s.RestoreErrors),
		of.Counter("eyes.refused", "{eye}", "Spaces that have no view left for the eye of all clients, each time a session joined.", &s.Store.EyesRefused),
		of.Counter("sessions.refused", "{session}", "Sessions that a space did not take, because it has as many as it may.", &s.Store.SessionsRefused),
		of.Counter("sessions.lost", "{session}", "Sessions that a relay took for ended, because no edge named them for too long.", &s.SessionsLost),
		of.CounterBy("bus.lost", "{message}", "Messages for the bus that it refused, and from it that the relay dropped, by reason.",
			"reason", telemetry.Parts{"outgoing": &s.Lost, "inbox": &s.InboxLost, "malformed": &s.Malformed, "not_held": &s.NotHeld}),
	)
}
