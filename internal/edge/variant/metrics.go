package variant

import (
	"github.com/dnprelay/dnprelay/internal/edge/variant/protocol"
	"github.com/dnprelay/dnprelay/internal/telemetry"
)

// Metrics returns the metrics of an Adapter.
func (a *Adapter) Metrics() []telemetry.Metric {
	of := telemetry.Group[Counts]{Prefix: "dnp.variant.", Read: a.Stats}
	return []telemetry.Metric{
		telemetry.GaugeBy("dnp.variant.peers", "{peer}", "Clients that speak Variants, also those that log in, by carrier.", "kind", func(observe func(string, float64)) {
			s := a.Stats()
			observe("websocket", float64(s.WebSocket))
			observe("udp", float64(s.UDP))
		}),
		of.Counter("joined", "{peer}", "Clients that speak Variants and have joined.", func(c *Counts) uint64 { return c.Joined }),
		of.CounterBy("ended", "{peer}", "Clients that speak Variants and have ended, by reason; gone = the client or the network ended it.", "reason",
			func(c *Counts, observe func(string, uint64)) {
				for _, r := range protocol.Reasons {
					observe(r.Name(), c.Ended[r])
				}
			}),
		of.InOut("messages", "{message}", "Messages from and to clients that speak Variants.", func(c *Counts) (in, out uint64) { return c.In, c.Out }),
		of.Counter("values", "{value}", "Values that were sent to clients that speak Variants.", func(c *Counts) uint64 { return c.Values }),
		of.Counter("repeats", "{message}", "Messages that were sent again by UDP, because they were not acknowledged.", func(c *Counts) uint64 { return c.Repeats }),
		of.CounterBy("drops", "{message}", "Messages and values that were dropped, by reason; numbered ones come again.", "reason",
			func(c *Counts, observe func(string, uint64)) {
				telemetry.Named[protocol.Drop](observe, c.Drops[:])
			}),
		of.CounterBy("datagrams.dropped", "{datagram}", "Datagrams to the port for Variants that belong to no session, by reason.", "reason",
			func(c *Counts, observe func(string, uint64)) {
				telemetry.Named[datagramDrop](observe, c.Datagrams[:])
			}),
	}
}
