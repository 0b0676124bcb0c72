package variant

import (
	"github.com/dnprelay/dnprelay/internal/edge/variant/protocol"
	"github.com/dnprelay/dnprelay/internal/telemetry"
)

// Metrics returns the metrics of an Adapter.
func (a *Adapter) Metrics() []telemetry.Metric {
	of := telemetry.NewGroup("dnp.variant.", a.Stats)
	c := &of.All
	return []telemetry.Metric{
		telemetry.GaugeBy("dnp.variant.peers", "{peer}", "Clients that speak Variants, also those that log in, by carrier.", "kind", func(observe func(string, float64)) {
			s := a.Stats()
			observe("websocket", float64(s.WebSocket))
			observe("udp", float64(s.UDP))
		}),
		of.Counter("joined", "{peer}", "Clients that speak Variants and have joined.", &c.Joined),
		telemetry.CounterBy("dnp.variant.ended", "{peer}", "Clients that speak Variants and have ended, by reason; gone = the client or the network ended it.", "reason",
			func(observe func(string, uint64)) {
				all := a.Stats().Ended
				for _, r := range protocol.Reasons {
					observe(r.Name(), all[r])
				}
			}),
		of.InOut("messages", "{message}", "Messages from and to clients that speak Variants.", &c.In, &c.Out),
		of.Counter("values", "{value}", "Values that were sent to clients that speak Variants.", &c.Values),
		of.Counter("repeats", "{message}", "Messages that were sent again by UDP, because they were not acknowledged.", &c.Repeats),
		of.CounterBy("drops", "{message}", "Messages and values that were dropped, by reason; numbered ones come again.", "reason",
			telemetry.Named[protocol.Drop](c.Drops[:])),
		of.CounterBy("datagrams.dropped", "{datagram}", "Datagrams to the port for Variants that belong to no session, by reason.", "reason",
			telemetry.Named[datagramDrop](c.Datagrams[:])),
	}
}
