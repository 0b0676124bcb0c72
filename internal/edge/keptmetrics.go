package edge

import "github.com/dnprelay/dnprelay/internal/telemetry"

// keptMetrics returns what is shown of sessions that a log knows.
func (e *Edge) keptMetrics(s *telemetry.Cache[Stats]) []telemetry.Metric {
	count := func(name, unit, help string, read func(*Stats) uint64) telemetry.Metric {
		return telemetry.Counter("dnp.session."+name, unit, help, func() uint64 { stats := s.Get(); return read(&stats) })
	}
	return []telemetry.Metric{
		telemetry.Gauge("dnp.session.durable", "{session}", "Durable sessions that this edge serves or considers.",
			func() float64 { return float64(e.Kept()) }),
		telemetry.Gauge("dnp.session.draining", "", "1 from when the edge begins to hand its sessions over, else 0.", func() float64 {
			if e.draining.Load() {
				return 1
			}
			return 0
		}),
		count("opened", "{session}", "Sessions that began here.", func(s *Stats) uint64 { return s.Durable.SessionsOpened }),
		count("adopted", "{session}", "Sessions that were taken over from other edges.", func(s *Stats) uint64 { return s.Durable.SessionsAdopted }),
		count("handed", "{session}", "Sessions that were handed over to other edges.", func(s *Stats) uint64 { return s.Durable.SessionsHanded }),
		count("lost", "{session}", "Sessions that other edges took over without being asked.", func(s *Stats) uint64 { return s.Durable.SessionsLost }),
		count("elsewhere", "{session}", "Connections that ended in silence because another edge has the client's session.",
			func(s *Stats) uint64 { return s.Durable.SessionsElsewhere }),
		count("uncertain", "{session}", "Sessions that ended because their history could not be established.",
			func(s *Stats) uint64 { return s.Durable.SessionsUncertain }),
		count("writes", "{write}", "Writes that were asked of the session log.", func(s *Stats) uint64 { return s.Durable.LogWrites }),
		count("stalls", "{stall}", "Times that a worker stood still for so long that its sessions may have been taken over.",
			func(s *Stats) uint64 { return s.Durable.Stalls }),
		count("return_paths.unknown", "{datagram}", "Datagrams dropped with --answer-only, because their client has sent none yet, or because the edge on its return path is not reachable.",
			func(s *Stats) uint64 { return s.Durable.PathsUnknown }),
		telemetry.CounterBy("dnp.session.orphans", "{datagram}", "Orphan datagrams (from clients that the worker does not serve), by outcome.", "fate",
			func(observe func(string, uint64)) {
				stats := s.Get()
				observe("held", stats.Durable.OrphansHeld)
				observe("forwarded", stats.Durable.OrphansForwarded)
				observe("dropped", stats.Durable.OrphansDropped)
			}),
		count("return_paths.displaced", "{client}", "Clients without a session whose return path was forgotten because the table was full.",
			func(s *Stats) uint64 { return s.Durable.PathsDisplaced }),
	}
}
