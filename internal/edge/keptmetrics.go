package edge

import "github.com/dnprelay/dnprelay/internal/telemetry"

// keptMetrics returns what is shown of sessions that a log knows.
func (e *Edge) keptMetrics(s *telemetry.Cache[Stats]) []telemetry.Metric {
	count := func(name, unit, help string, read func(*Stats) uint64) telemetry.Metric {
		return telemetry.Counter("dnp.session."+name, unit, help, func() uint64 { stats := s.Get(); return read(&stats) })
	}
	return []telemetry.Metric{
		telemetry.Gauge("dnp.session.kept", "{session}", "Sessions in the log that this edge has or looks at.",
			func() float64 { return float64(e.Kept()) }),
		telemetry.Gauge("dnp.session.draining", "", "1 from when the edge begins to hand its sessions over, else 0.", func() float64 {
			if e.draining.Load() {
				return 1
			}
			return 0
		}),
		count("opened", "{session}", "Sessions that began here.", func(s *Stats) uint64 { return s.SessionsOpened }),
		count("adopted", "{session}", "Sessions that were taken over from other edges.", func(s *Stats) uint64 { return s.SessionsAdopted }),
		count("handed", "{session}", "Sessions that were handed over to other edges.", func(s *Stats) uint64 { return s.SessionsHanded }),
		count("lost", "{session}", "Sessions that other edges took over without being asked.", func(s *Stats) uint64 { return s.SessionsLost }),
		count("elsewhere", "{session}", "Connections that ended in silence because another edge has the client's session.",
			func(s *Stats) uint64 { return s.SessionsElsewhere }),
		count("uncertain", "{session}", "Sessions that ended because their history could not be established.",
			func(s *Stats) uint64 { return s.SessionsUncertain }),
		count("writes", "{write}", "Writes that were asked of the session log.", func(s *Stats) uint64 { return s.LogWrites }),
		count("stalls", "{stall}", "Times that a worker stood still for so long that its sessions may have been taken over.",
			func(s *Stats) uint64 { return s.Stalls }),
		count("unheard", "{datagram}", "Datagrams dropped with --answer-only, because nothing came from their client yet, or the edge that it came over cannot be reached.",
			func(s *Stats) uint64 { return s.PathsUnknown }),
		telemetry.CounterBy("dnp.session.strays", "{datagram}", "Datagrams of clients that the worker does not serve, by what became of them.", "fate",
			func(observe func(string, uint64)) {
				stats := s.Get()
				observe("held", stats.OrphansHeld)
				observe("forwarded", stats.OrphansForwarded)
				observe("dropped", stats.OrphansDropped)
				observe("displaced", stats.PathsDisplaced) // what is for their client may leave by an address that it does not know
			}),
	}
}
