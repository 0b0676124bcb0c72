package edge

import (
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/udp"
	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/internal/telemetry"
)

// drops are the metrics that tell one reason from another.
func drops(s *telemetry.Cache[Stats]) []telemetry.Metric {
	by := func(name, unit, help string, read func(s *Stats, observe func(string, uint64))) telemetry.Metric {
		return telemetry.CounterBy("dnp.edge."+name, unit, help, "reason", func(observe func(string, uint64)) {
			stats := s.Get()
			read(&stats, observe)
		})
	}
	return []telemetry.Metric{
		by("drops", "{datagram}", "Input that was ignored, and what bounds cost, by reason.", protocolDrops),
		by("logins", "{login}", "Logins of clients, by why they were refused; none = let in.", logins),
		by("closes", "{session}", "Connections that ended, by reason.", closes),
		by("socket.drops", "{datagram}", "Datagrams that the system did not take or bring, by reason.", socketDrops),
		by("replica.drops", "{message}", "Messages of holders that were not applied, by reason.", replicaDrops),
		by("bus.lost", "{message}", "Messages for the bus that it did not take, and from it that did not fit, by what they were.", busLost),
	}
}

func protocolDrops(s *Stats, observe func(string, uint64)) {
	for i, n := range s.Protocol.Drops {
		observe(dnp.DropReason(i).String(), n)
	}
}

func logins(s *Stats, observe func(string, uint64)) {
	for i, n := range s.Logins {
		observe(auth.Reason(i).String(), n)
	}
}

func closes(s *Stats, observe func(string, uint64)) {
	for i, n := range s.Protocol.Closes {
		observe(dnp.CloseReason(i).String(), n)
	}
}

func socketDrops(s *Stats, observe func(string, uint64)) {
	for i, n := range s.Socket.Drops {
		observe(udp.DropReason(i).String(), n)
	}
	observe("overflow", s.Socket.Overflows)
}

func replicaDrops(s *Stats, observe func(string, uint64)) {
	observe("malformed", s.Replicas.Malformed)
	observe("malformed_head", s.BadHeads)
	observe("bad_record", s.Replicas.BadRecords)
	observe("old_epoch", s.Replicas.OldEpoch)
	observe("duplicate", s.Replicas.Duplicates)
	observe("buffer_full", s.Replicas.BufferFull)
	observe("unwanted_reply", s.Replicas.UnwantedReplies)
}

func busLost(s *Stats, observe func(string, uint64)) {
	observe("event", s.EventsLost)
	observe("message", s.MessagesLost)
	observe("answer", s.AnswersLost)
	observe("repair", s.RepairsLost)
	observe("inbox", s.TasksLost)
	observe("link_end", s.DropsForgotten)
}
