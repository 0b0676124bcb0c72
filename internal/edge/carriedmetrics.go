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
	type counts struct {
		carrier.Counts
		impostors, arrivalsLost uint64
	}
	of := telemetry.NewGroup("dnp.carrier.", func() counts {
		s := workers.Get()
		return counts{e.hub.Stats(), s.Impostors, s.ArrivalsLost}
	})
	c := &of.All
	return []telemetry.Metric{
		telemetry.GaugeBy("dnp.carrier.connections", "{connection}", "Connections of carried clients, which do not speak UDP with the edge.", "kind", func(observe func(string, float64)) {
			s := e.hub.Stats()
			for k := carrier.WebSocket; int(k) < carrier.Kinds; k++ {
				observe(k.String(), float64(s.Conns[k]))
			}
		}),
		of.Gauge("connections.max", "{connection}", "Connections of carried clients that this edge may have.", &e.cfg.Carriers.ConnsMax),
		of.Counter("opened", "{connection}", "Connections that carried clients (by WebSocket, WebTransport or an adapter) made.", &c.Opened),
		of.Counter("resumed", "{connection}", "Connections of carried clients with the token of an earlier one, at this edge or another.", &c.Resumed),
		of.CounterBy("closes", "{connection}", "Connections of carried clients (by WebSocket, WebTransport or an adapter) that ended, by reason; lost = the client or the network ended it.", "reason",
			telemetry.Named[carrier.Reason](c.Ended[:])),
		of.CounterBy("refusals", "{connection}", "Connections of carried clients that were refused, by reason.", "reason", telemetry.Named[carrier.Reason](c.Refused[:])),
		of.Counter("handshakes.displaced", "{connection}", "Connections without a request that were closed because there were too many.", &c.Displaced),
		of.Counter("waits", "{connection}", "Times that a carried client took nothing for a while, so that its values waited.", &c.Full),
		of.CounterBy("drops", "{datagram}", "Datagrams of carried clients that were dropped, by reason; forged = by UDP in the name of such a client.", "reason",
			telemetry.Parts{"forged": &c.impostors, "inbox": &c.arrivalsLost, "out": &c.OutLost}),
	}
}
