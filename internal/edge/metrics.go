package edge

import (
	"context"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/udp"
	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/internal/edge/fanout"
	"github.com/dnprelay/dnprelay/internal/edge/login"
	"github.com/dnprelay/dnprelay/internal/edge/takeover"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/replication"
)

// Counts are the counters of an edge besides those of its endpoints and sockets.
type Counts struct {
	fanout.Counts
	login.Stats
	TasksLost uint64          // messages that did not fit into an inbox
	Durable   takeover.Counts // of durable sessions
}

// Stats are the counters of an edge, summed over its workers.
type Stats struct {
	Counts
	Protocol   dnp.Stats
	Socket     udp.Stats
	Replicas   replication.ReplicaStats
	Spaces     int    // followed, summed over the workers
	States     int    // in the replicas of all workers
	InboxBytes int64  // of messages of the bus that wait for a worker
	InboxTasks int64  // that wait for a worker
	BadHeads   uint64 // heads that were malformed
}

// Stats asks every worker for its counters. It fails if ctx ends before all have answered.
func (e *Edge) Stats(ctx context.Context) (Stats, error) {
	answers := make(chan Stats, len(e.workers))
	for _, w := range e.workers {
		w.post(0, func(w *Worker, _ time.Time) { answers <- w.stats() })
	}
	var sum Stats
	for range e.workers {
		select {
		case s := <-answers:
			telemetry.Sum(&sum, &s)
		case <-ctx.Done():
			return sum, ctx.Err()
		}
	}
	sum.BadHeads = e.feeds.badHeads.Load()
	for _, s := range e.sockets {
		stats := s.Stats()
		telemetry.Sum(&sum.Socket, &stats)
	}
	return sum, nil
}

// Counts returns the counters of the worker, for a caller that turns it.
func (w *Worker) Counts() Counts {
	c := Counts{Counts: *w.spaces.Counts(), Stats: w.judge.Stats, TasksLost: w.tasks.Lost()}
	if w.takeover != nil {
		c.Durable = w.takeover.Counts()
	}
	return c
}

func (w *Worker) stats() Stats {
	s := Stats{Counts: w.Counts(), Protocol: *w.ep.Stats(), Replicas: w.past}
	s.InboxBytes, s.InboxTasks = w.tasks.Bytes(), int64(w.tasks.Len())
	for r := range w.spaces.Replicas {
		telemetry.Sum(&s.Replicas, r.Stats())
		s.Spaces++
		s.States += r.Len()
	}
	return s
}

// Metrics returns the metrics of this edge.
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
		telemetry.Gauge("dnp.edge.sessions.max", "{session}", "Sessions that this edge may have.",
			func() float64 { return float64(e.cfg.SessionsMax) }),
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
		count("stateless", "{request}", "Connection requests that the edge answered without storing anything, because there were too many.",
			func(s *Stats) uint64 { return s.Protocol.Stateless }),
		count("suspects", "{alarm}", "Sessions for which another host seemed to forge datagrams.",
			func(s *Stats) uint64 { return s.Protocol.Alarms }),
		count("socket.waits", "{flush}", "Flushes that had to wait for the socket.", func(s *Stats) uint64 { return s.Socket.WriteWaits }),
		count("socket.uncut", "{flush}", "Times that datagrams which could have left in one piece were sent one by one.",
			func(s *Stats) uint64 { return s.Socket.Uncut }),
		direction("socket.batches", "{batch}", "System calls that moved datagrams.", s,
			func(s *Stats) (in, out uint64) { return s.Socket.BatchesIn, s.Socket.BatchesOut }),
		count("updates.deferred", "{link}", "Links that began to wait for the budget of their client.",
			func(s *Stats) uint64 { return s.Protocol.Deferred }),
		count("connects", "{session}", "Sessions that began.", func(s *Stats) uint64 { return s.Protocol.Connects }),
		count("callouts", "{request}", "Requests to the game's service about who a client is.", func(s *Stats) uint64 { return s.Callouts }),
		count("events", "{message}", "Events published for game servers.", func(s *Stats) uint64 { return s.Events }),
		gauge("inbox.io", "By", "Messages of the bus that wait for a worker.", func(s *Stats) int64 { return s.InboxBytes }),
		gauge("inbox.tasks", "{task}", "Tasks that wait for a worker: messages of the bus, and requests of the edge.", func(s *Stats) int64 { return s.InboxTasks }),
		count("scrubs", "{link}", "Links whose values were sent again in the round over all links.",
			func(s *Stats) uint64 { return s.Protocol.Scrubs }),
		count("inferred", "{command}", "Reliable commands taken as delivered because the peer went on behind them.",
			func(s *Stats) uint64 { return s.Protocol.Inferred }),
		count("resends", "{command}", "Reliable commands sent again.", func(s *Stats) uint64 { return s.Protocol.Resends }),
		count("refreshes", "{state}", "States whose values were sent again because they went quiet.",
			func(s *Stats) uint64 { return s.Protocol.Refreshes }),
		count("batches", "{batch}", "Batches applied, summed over the workers.", func(s *Stats) uint64 { return s.Replicas.Batches }),
		count("range.requests", "{request}", "Requests for batches that were missed.", func(s *Stats) uint64 { return s.Replicas.RangeRequests }),
		count("epochs", "{epoch}", "Times that a space got another holder.", func(s *Stats) uint64 { return s.Replicas.Epochs }),
		count("gaps", "{gap}", "Batches that came without their predecessor.", func(s *Stats) uint64 { return s.Replicas.Gaps }),
		count("keyframe.requests", "{request}", "Requests for whole states.", func(s *Stats) uint64 { return s.Replicas.KeyframeRequests }),
		count("divergence", "{state}", "States that differed from the holder's at an equal position.",
			func(s *Stats) uint64 { return s.Replicas.Divergence }),
		count("writes.repeated", "{write}", "Client writes that the holder did not acknowledge in time.",
			func(s *Stats) uint64 { return s.WritesRepeated }),
		count("writes.refused", "{write}", "Client writes that were not allowed, by the edge or the holder.",
			func(s *Stats) uint64 { return s.WritesRefused + s.WritesForbidden }),
		count("writes.dropped", "{value}", "Values of clients beyond the bounds of what may be unacknowledged.",
			func(s *Stats) uint64 { return s.WritesDropped }),
		count("links.refused", "{link}", "Links not offered because the client has as many as it may.",
			func(s *Stats) uint64 { return s.LinksRefused }),
		count("offers.refused", "{state}", "States of clients that were refused.", func(s *Stats) uint64 { return s.OffersRefused }),
		count("messages.refused", "{message}", "Messages to clients that were empty, too large or too many.",
			func(s *Stats) uint64 { return s.MessagesRefused }),
	}
	if e.cfg.Durable != nil {
		all = append(all, e.durableMetrics(s)...)
	}
	return append(all, drops(s)...)
}

func direction(name, unit, help string, s *telemetry.Cache[Stats], read func(*Stats) (in, out uint64)) telemetry.Metric {
	return telemetry.CounterBy("dnp.edge."+name, unit, help, "direction", func(observe func(string, uint64)) {
		stats := s.Get()
		in, out := read(&stats)
		observe("in", in)
		observe("out", out)
	})
}

// drops are the metrics with a reason.
func drops(s *telemetry.Cache[Stats]) []telemetry.Metric {
	by := func(name, unit, help string, read func(s *Stats, observe func(string, uint64))) telemetry.Metric {
		return telemetry.CounterBy("dnp.edge."+name, unit, help, "reason", func(observe func(string, uint64)) {
			stats := s.Get()
			read(&stats, observe)
		})
	}
	return []telemetry.Metric{
		by("drops", "{datagram}", "Input that was ignored, and losses because of bounds, by reason.", protocolDrops),
		by("logins", "{login}", "Logins of clients, by the reason for which they were refused; none = admitted.", logins),
		by("closes", "{session}", "Connections that ended, by reason.", closes),
		by("socket.drops", "{datagram}", "Datagrams that the system did not send or deliver, by reason.", socketDrops),
		by("replica.drops", "{message}", "Messages of holders that were not applied, by reason.", replicaDrops),
		by("bus.lost", "{message}", "Messages that the bus refused, and messages from it that did not fit, by kind.", busLost),
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

// durableMetrics returns the metrics of durable sessions.
func (e *Edge) durableMetrics(s *telemetry.Cache[Stats]) []telemetry.Metric {
	count := func(name, unit, help string, read func(*Stats) uint64) telemetry.Metric {
		return telemetry.Counter("dnp.session."+name, unit, help, func() uint64 { stats := s.Get(); return read(&stats) })
	}
	return []telemetry.Metric{
		telemetry.Gauge("dnp.session.durable", "{session}", "Durable sessions that this edge serves or considers.",
			func() float64 { return float64(e.DurableSessions()) }),
		telemetry.Gauge("dnp.session.draining", "", "1 while the edge hands its sessions over and after that, else 0.", func() float64 {
			if e.draining.Load() {
				return 1
			}
			return 0
		}),
		count("opened", "{session}", "Sessions that began here.", func(s *Stats) uint64 { return s.Durable.SessionsOpened }),
		count("adopted", "{session}", "Sessions that this edge took over from other edges.", func(s *Stats) uint64 { return s.Durable.SessionsAdopted }),
		count("handed", "{session}", "Sessions that this edge handed over to other edges, or to another worker.", func(s *Stats) uint64 { return s.Durable.SessionsHanded }),
		count("lost", "{session}", "Sessions that other edges took over although this edge had not handed them over.", func(s *Stats) uint64 { return s.Durable.SessionsLost }),
		count("elsewhere", "{session}", "Connections that ended without a farewell because another edge has the client's session.",
			func(s *Stats) uint64 { return s.Durable.SessionsElsewhere }),
		count("uncertain", "{session}", "Sessions that ended because the edge could not establish their history.",
			func(s *Stats) uint64 { return s.Durable.SessionsUncertain }),
		count("writes", "{write}", "Writes that the edge requested of the session log.", func(s *Stats) uint64 { return s.Durable.LogWrites }),
		count("stalls", "{stall}", "Times that a worker was stopped for so long that other edges may have taken its sessions over.",
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
