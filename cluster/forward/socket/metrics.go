package socket

import (
	"github.com/dnprelay/dnprelay/cluster/forward"
	"github.com/dnprelay/dnprelay/dnp/udp"
	"github.com/dnprelay/dnprelay/internal/telemetry"
)

// Stats returns the counters of the router, as of the last heartbeat.
func (f *Forwarder) Stats() forward.Stats { return *f.stats.Load() }

// Metrics returns what an edge shows at /metrics about forwarding.
func (f *Forwarder) Metrics() []telemetry.Metric {
	of := telemetry.Group[forward.Stats]{Prefix: "dnp.forward.", Read: func() forward.Stats { return *f.stats.Load() }}
	return []telemetry.Metric{
		of.Gauge("peers", "{edge}", "Other edges that datagrams can be forwarded to.", func(s *forward.Stats) float64 { return float64(s.Peers) }),
		of.Gauge("suspects", "{edge}", "Other edges whose heartbeats are missing.", func(s *forward.Stats) float64 { return float64(s.Suspects) }),
		of.Gauge("routes", "{client}", "Clients of other edges whose highest epochs are remembered.", func(s *forward.Stats) float64 { return float64(s.Clients) }),
		of.CounterBy("datagrams", "{datagram}", "Datagrams between edges, by kind.", "kind",
			func(s *forward.Stats, observe func(string, uint64)) {
				observe("in_sent", s.In)
				observe("out_sent", s.Out)
				observe("in_taken", s.Owner)
				observe("out_taken", s.Client)
				observe("orphan", s.Orphans)
				observe("relayed", s.Relayed)
				observe("nack_sent", s.NacksOut)
				observe("nack_taken", s.NacksIn)
				observe("beat_sent", s.HeartbeatsOut)
				observe("beat_taken", s.HeartbeatsIn)
			}),
		of.CounterBy("drops", "{datagram}", "Datagrams that were not forwarded or not accepted, by reason.", "reason",
			func(s *forward.Stats, observe func(string, uint64)) {
				telemetry.Named[forward.DropReason](observe, s.Drops[:])
				observe("lost", f.queue.lost.Load())
			}),
		telemetry.CounterBy("dnp.forward.socket.drops", "{datagram}", "Datagrams that the operating system lost, by reason.", "reason",
			func(observe func(string, uint64)) {
				s := f.socket.Stats()
				telemetry.Named[udp.DropReason](observe, s.Drops[:])
				observe("overflow", s.Overflows)
			}),
		of.Counter("stalls", "{stall}", "Times that this process was stopped for longer than heartbeats allow.",
			func(s *forward.Stats) uint64 { return s.Stalls }),
	}
}
