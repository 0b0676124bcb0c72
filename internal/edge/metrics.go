package edge

import (
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/udp"
	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/internal/telemetry"
)

// Metrics returns what this edge shows at /metrics.
func (e *Edge) Metrics() []telemetry.Metric {
	s := &telemetry.Cache[Stats]{Read: e.Stats}
	count := func(name, unit, help string, read func(*Stats) uint64) telemetry.Metric {
		return telemetry.Counter("dnp.edge."+name, unit, help, func() uint64 { stats := s.Get(); return read(&stats) })
	}
	gauge := func(name, unit, help string, read func(*Stats) int64) telemetry.Metric {
		return telemetry.Gauge("dnp.edge."+name, unit, help, func() float64 { stats := s.Get(); return float64(read(&stats)) })
	}
	all := []telemetry.Metric{
		gauge("sessions", "{session}", "Sessions of clients.", func(s *Stats) int64 { return s.Sessions }),
		gauge("spaces", "{space}", "Spaces followed, summed over the workers.", func(s *Stats) int64 { return int64(s.Spaces) }),
		gauge("states", "{state}", "States in the replicas, summed over the workers.", func(s *Stats) int64 { return int64(s.States) }),
		gauge("levels", "{level}", "Levels of detail of states, summed over the workers.", func(s *Stats) int64 { return s.Levels }),
		direction("datagrams", "{datagram}", "Datagrams of clients.", s,
			func(s *Stats) (in, out uint64) { return s.Protocol.DatagramsIn, s.Protocol.DatagramsOut }),
		direction("io", "By", "Bytes of datagrams, without headers.", s,
			func(s *Stats) (in, out uint64) { return s.Protocol.BytesIn, s.Protocol.BytesOut }),
		direction("updates", "{update}", "Links in LinkUpdates.", s,
			func(s *Stats) (in, out uint64) { return s.Protocol.UpdatesIn, s.Protocol.UpdatesOut }),
		direction("messages", "{message}", "Messages of applications.", s,
			func(s *Stats) (in, out uint64) { return s.MessagesIn, s.MessagesOut }),
		drops(s),
		logins(s),
		count("stateless", "{request}", "Connection requests answered without keeping anything, because there were too many.",
			func(s *Stats) uint64 { return s.Protocol.Stateless }),
		count("suspects", "{alarm}", "Sessions for which somebody else seemed to send datagrams.",
			func(s *Stats) uint64 { return s.Protocol.Alarms }),
		socketDrops(s),
		count("updates.deferred", "{link}", "Links that began to wait for the budget of their client.",
			func(s *Stats) uint64 { return s.Protocol.Deferred }),
		count("resends", "{command}", "Reliable commands sent again.", func(s *Stats) uint64 { return s.Protocol.Resends }),
		count("refreshes", "{state}", "States whose values were sent again because they went quiet.",
			func(s *Stats) uint64 { return s.Protocol.Refreshes }),
		count("gaps", "{gap}", "Batches that came without their predecessor.", func(s *Stats) uint64 { return s.Gaps }),
		count("keyframe.requests", "{request}", "Requests for whole states.", func(s *Stats) uint64 { return s.Keyframes }),
		count("divergence", "{state}", "States that differed from the holder's at an equal position.",
			func(s *Stats) uint64 { return s.Divergence }),
		count("writes.repeated", "{write}", "Client writes that the holder did not acknowledge in time.",
			func(s *Stats) uint64 { return s.WritesRepeated }),
		count("writes.refused", "{write}", "Client writes that were not allowed, by the edge or the holder.",
			func(s *Stats) uint64 { return s.WritesRefused + s.WritesForbidden }),
		count("writes.dropped", "{value}", "Values of clients that write more than is kept for them.",
			func(s *Stats) uint64 { return s.WritesDropped }),
		count("links.refused", "{link}", "Links not offered because the client has as many as it may.",
			func(s *Stats) uint64 { return s.LinksRefused }),
		count("offers.refused", "{state}", "States of clients that were refused.", func(s *Stats) uint64 { return s.OffersRefused }),
		count("messages.refused", "{message}", "Messages to clients that were empty, too large or too many.",
			func(s *Stats) uint64 { return s.MessagesRefused }),
		count("bus.lost", "{message}", "Messages for the bus that it did not take, and from it that did not fit.",
			func(s *Stats) uint64 {
				return s.EventsLost + s.MessagesLost + s.AnswersLost + s.RepairsLost + s.TasksLost + s.DropsForgotten
			}),
	}
	if e.cfg.Durable != nil {
		all = append(all, keptMetrics(s)...)
	}
	return all
}

func direction(name, unit, help string, s *telemetry.Cache[Stats], read func(*Stats) (in, out uint64)) telemetry.Metric {
	return telemetry.CounterBy("dnp.edge."+name, unit, help, "direction", func(observe func(string, uint64)) {
		stats := s.Get()
		in, out := read(&stats)
		observe("in", in)
		observe("out", out)
	})
}

func drops(s *telemetry.Cache[Stats]) telemetry.Metric {
	return telemetry.CounterBy("dnp.edge.drops", "{datagram}", "Input that was ignored, and what bounds cost, by reason.",
		"reason", func(observe func(string, uint64)) {
			for i, n := range s.Get().Protocol.Drops {
				observe(dnp.DropReason(i).String(), n)
			}
		})
}

func logins(s *telemetry.Cache[Stats]) telemetry.Metric {
	return telemetry.CounterBy("dnp.edge.logins", "{login}", "Logins of clients, by why they were refused; none = let in.",
		"reason", func(observe func(string, uint64)) {
			for i, n := range s.Get().Logins {
				observe(auth.Reason(i).String(), n)
			}
		})
}

func socketDrops(s *telemetry.Cache[Stats]) telemetry.Metric {
	return telemetry.CounterBy("dnp.edge.socket.drops", "{datagram}", "Datagrams that the system did not take or bring, by reason.",
		"reason", func(observe func(string, uint64)) {
			st := s.Get().Socket
			for i, n := range st.Drops {
				observe(udp.DropReason(i).String(), n)
			}
			observe("overflow", st.Overflows)
		})
}
