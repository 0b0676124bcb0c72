package edge

import (
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/dnprelay/dnprelay/internal/telemetry"
)

// carriedMetrics returns the metrics of clients that do not speak UDP; none if there is no listener for them.
func (e *Edge) carriedMetrics(workers *telemetry.Cache[Stats]) []telemetry.Metric {
	if e.hub == nil {
		return nil
	}
	of := telemetry.Group[carrier.Counts]{Prefix: "dnp.carrier.", Read: e.hub.Stats}
	return []telemetry.Metric{
		telemetry.GaugeBy("dnp.carrier.connections", "{connection}", "Connections of carried clients, which do not speak UDP with the edge.", "kind", func(observe func(string, float64)) {
			s := e.hub.Stats()
			for k := carrier.WebSocket; int(k) < carrier.Kinds; k++ {
				observe(k.String(), float64(s.Conns[k]))
			}
		}),
		telemetry.Gauge("dnp.carrier.connections.max", "{connection}", "Connections of carried clients that this edge may have.", func() float64 { return float64(e.cfg.Carriers.ConnsMax) }),
		of.Counter("opened", "{connection}", "Connections that carried clients (by WebSocket, WebTransport or an adapter) made.", func(c *carrier.Counts) uint64 { return c.Opened }),
		of.Counter("resumed", "{connection}", "Connections of carried clients with the token of an earlier one, at this edge or another.", func(c *carrier.Counts) uint64 { return c.Resumed }),
		of.CounterBy("closes", "{connection}", "Connections of carried clients (by WebSocket, WebTransport or an adapter) that ended, by reason; lost = the client or the network ended it.", "reason",
			func(c *carrier.Counts, observe func(string, uint64)) {
				telemetry.Named[carrier.Reason](observe, c.Ended[:])
			}),
		of.CounterBy("refusals", "{connection}", "Connections of carried clients that were refused, by reason.", "reason",
			func(c *carrier.Counts, observe func(string, uint64)) {
				telemetry.Named[carrier.Reason](observe, c.Refused[:])
			}),
		of.Counter("handshakes.displaced", "{connection}", "Connections without a request that were closed because there were too many.", func(c *carrier.Counts) uint64 { return c.Displaced }),
		of.Counter("waits", "{connection}", "Times that a carried client took nothing for a while, so that its values waited.", func(c *carrier.Counts) uint64 { return c.Full }),
		telemetry.CounterBy("dnp.carrier.drops", "{datagram}", "Datagrams of carried clients that were dropped, by reason; forged = by UDP in the name of such a client.", "reason",
			func(observe func(string, uint64)) {
				s := workers.Get()
				observe("forged", s.Impostors)
				observe("inbox", s.ArrivalsLost)
				observe("out", e.hub.Stats().OutLost)
			}),
	}
}
