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
	gauge := func(name, unit, help string, read func(*forward.Stats) int64) telemetry.Metric {
		return telemetry.Gauge("dnp.forward."+name, unit, help, func() float64 { return float64(read(f.stats.Load())) })
	}
	return []telemetry.Metric{
		gauge("peers", "{edge}", "Other edges that datagrams can be forwarded to.", func(s *forward.Stats) int64 { return s.Peers }),
		gauge("suspects", "{edge}", "Other edges whose heartbeats are missing.", func(s *forward.Stats) int64 { return s.Suspects }),
		gauge("routes", "{client}", "Clients of other edges whose highest epochs are remembered.", func(s *forward.Stats) int64 { return s.Clients }),
		telemetry.CounterBy("dnp.forward.datagrams", "{datagram}", "Datagrams between edges, by kind.", "kind",
			func(observe func(string, uint64)) {
				s := f.stats.Load()
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
		telemetry.CounterBy("dnp.forward.drops", "{datagram}", "Datagrams that were not forwarded or not accepted, by reason.", "reason",
			func(observe func(string, uint64)) {
				for i, n := range f.stats.Load().Drops {
					observe(forward.DropReason(i).String(), n)
				}
				observe("lost", f.queue.lost.Load())
			}),
		telemetry.CounterBy("dnp.forward.socket.drops", "{datagram}", "Datagrams that the operating system lost, by reason.", "reason",
			func(observe func(string, uint64)) {
				s := f.socket.Stats()
				for i, n := range s.Drops {
					observe(udp.DropReason(i).String(), n)
				}
				observe("overflow", s.Overflows)
			}),
		telemetry.Counter("dnp.forward.stalls", "{stall}", "Times that this process was stopped for longer than heartbeats allow.",
			func() uint64 { return f.stats.Load().Stalls }),
	}
}
