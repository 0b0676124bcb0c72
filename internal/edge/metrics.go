package edge

import (
	"context"
	"sync"
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
	Spaces     int64  // followed, summed over the workers
	States     int64  // in the replicas of all workers
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
		s.States += int64(r.Len())
	}
	return s
}

// A snapshot is the counters of the edge at one moment, with metrics that point into it. The
// mutex is there because several goroutines may read metrics.
type snapshot struct {
	cache telemetry.Cache[Stats]
	mu    sync.Mutex
	Stats
}

// A counter is one of the counters of a snapshot, with its label in a metric.
type counter struct {
	label string
	value *uint64
}

func (s *snapshot) counters(name, unit, help, key string, list ...counter) telemetry.Metric {
	return telemetry.CounterBy(name, unit, help, key, func(observe func(string, uint64)) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.Stats = s.cache.Get()
		for _, c := range list {
			observe(c.label, *c.value)
		}
	})
}

// labelled returns the counters of an array whose index is of type T, by name.
func labelled[T interface {
	~uint8
	String() string
}](values []uint64) (list []counter) {
	for i := range values {
		list = append(list, counter{T(i).String(), &values[i]})
	}
	return list
}

// Metrics returns the metrics of this edge.
func (e *Edge) Metrics() []telemetry.Metric {
	s := &snapshot{cache: telemetry.Cache[Stats]{Read: e.Stats}}
	edge := func(name, unit, help string, value *uint64) telemetry.Metric {
		return s.counters("dnp.edge."+name, unit, help, "", counter{"", value})
	}
	direction := func(name, unit, help string, in, out *uint64) telemetry.Metric {
		return s.counters("dnp.edge."+name, unit, help, "direction", counter{"in", in}, counter{"out", out})
	}
	gauge := func(name, unit, help string, value *int64) telemetry.Metric {
		return telemetry.Gauge("dnp.edge."+name, unit, help, func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.Stats = s.cache.Get()
			return float64(*value)
		})
	}
	all := []telemetry.Metric{
		gauge("sessions", "{session}", "Sessions of clients.", &s.Sessions),
		telemetry.Gauge("dnp.edge.sessions.max", "{session}", "Sessions that this edge may have.",
			func() float64 { return float64(e.cfg.SessionsMax) }),
		gauge("spaces", "{space}", "Spaces followed, summed over the workers.", &s.Spaces),
		gauge("states", "{state}", "States in the replicas, summed over the workers.", &s.States),
		gauge("levels", "{level}", "Levels of detail of states, summed over the workers.", &s.Levels),
		direction("datagrams", "{datagram}", "Datagrams of clients.", &s.Protocol.DatagramsIn, &s.Protocol.DatagramsOut),
		direction("io", "By", "Bytes of datagrams, without headers.", &s.Protocol.BytesIn, &s.Protocol.BytesOut),
		direction("updates", "{update}", "Links in LinkUpdates.", &s.Protocol.UpdatesIn, &s.Protocol.UpdatesOut),
		direction("messages", "{message}", "Messages of applications.", &s.MessagesIn, &s.MessagesOut),
		edge("stateless", "{request}", "Connection requests that the edge answered without storing anything, because there were too many.", &s.Protocol.Stateless),
		edge("suspects", "{alarm}", "Sessions for which another host seemed to forge datagrams.", &s.Protocol.Alarms),
		edge("socket.waits", "{flush}", "Flushes that had to wait for the socket.", &s.Socket.WriteWaits),
		edge("socket.uncut", "{flush}", "Times that datagrams which could have left in one piece were sent one by one.", &s.Socket.Uncut),
		direction("socket.batches", "{batch}", "System calls that moved datagrams.", &s.Socket.BatchesIn, &s.Socket.BatchesOut),
		edge("updates.deferred", "{link}", "Links that began to wait for the budget of their client.", &s.Protocol.Deferred),
		edge("connects", "{session}", "Sessions that began.", &s.Protocol.Connects),
		edge("callouts", "{request}", "Requests to the game's service about who a client is.", &s.Callouts),
		edge("events", "{message}", "Events published for game servers.", &s.Events),
		gauge("inbox.io", "By", "Messages of the bus that wait for a worker.", &s.InboxBytes),
		gauge("inbox.tasks", "{task}", "Tasks that wait for a worker: messages of the bus, and requests of the edge.", &s.InboxTasks),
		edge("scrubs", "{link}", "Links whose values were sent again in the round over all links.", &s.Protocol.Scrubs),
		edge("inferred", "{command}", "Reliable commands taken as delivered because the peer went on behind them.", &s.Protocol.Inferred),
		edge("resends", "{command}", "Reliable commands sent again.", &s.Protocol.Resends),
		edge("refreshes", "{state}", "States whose values were sent again because they went quiet.", &s.Protocol.Refreshes),
		edge("batches", "{batch}", "Batches applied, summed over the workers.", &s.Replicas.Batches),
		edge("range.requests", "{request}", "Requests for batches that were missed.", &s.Replicas.RangeRequests),
		edge("epochs", "{epoch}", "Times that a space got another holder.", &s.Replicas.Epochs),
		edge("gaps", "{gap}", "Batches that came without their predecessor.", &s.Replicas.Gaps),
		edge("keyframe.requests", "{request}", "Requests for whole states.", &s.Replicas.KeyframeRequests),
		edge("divergence", "{state}", "States that differed from the holder's at an equal position.", &s.Replicas.Divergence),
		edge("writes.repeated", "{write}", "Client writes that the holder did not acknowledge in time.", &s.WritesRepeated),
		telemetry.Counter("dnp.edge.writes.refused", "{write}", "Client writes that were not allowed, by the edge or the holder.", func() uint64 {
			stats := s.cache.Get()
			return stats.WritesRefused + stats.WritesForbidden
		}),
		edge("writes.dropped", "{value}", "Values of clients beyond the bounds of what may be unacknowledged.", &s.WritesDropped),
		edge("links.refused", "{link}", "Links not offered because the client has as many as it may.", &s.LinksRefused),
		edge("offers.refused", "{state}", "States of clients that were refused.", &s.OffersRefused),
		edge("messages.refused", "{message}", "Messages to clients that were empty, too large or too many.", &s.MessagesRefused),
	}
	if e.cfg.Durable != nil {
		all = append(all, e.durableMetrics(s)...)
	}
	return append(all, s.drops()...)
}

// drops are the metrics with a reason.
func (s *snapshot) drops() []telemetry.Metric {
	by := func(name, unit, help string, list ...counter) telemetry.Metric {
		return s.counters("dnp.edge."+name, unit, help, "reason", list...)
	}
	return []telemetry.Metric{
		by("drops", "{datagram}", "Input that was ignored, and losses because of bounds, by reason.", labelled[dnp.DropReason](s.Protocol.Drops[:])...),
		by("logins", "{login}", "Logins of clients, by the reason for which they were refused; none = admitted.", labelled[auth.Reason](s.Logins[:])...),
		by("closes", "{session}", "Connections that ended, by reason.", labelled[dnp.CloseReason](s.Protocol.Closes[:])...),
		by("socket.drops", "{datagram}", "Datagrams that the system did not send or deliver, by reason.",
			append(labelled[udp.DropReason](s.Socket.Drops[:]), counter{"overflow", &s.Socket.Overflows})...),
		by("replica.drops", "{message}", "Messages of holders that were not applied, by reason.",
			counter{"malformed", &s.Replicas.Malformed}, counter{"malformed_head", &s.BadHeads},
			counter{"bad_record", &s.Replicas.BadRecords}, counter{"old_epoch", &s.Replicas.OldEpoch},
			counter{"duplicate", &s.Replicas.Duplicates}, counter{"buffer_full", &s.Replicas.BufferFull},
			counter{"unwanted_reply", &s.Replicas.UnwantedReplies}),
		by("bus.lost", "{message}", "Messages that the bus refused, and messages from it that did not fit, by kind.",
			counter{"event", &s.EventsLost}, counter{"message", &s.MessagesLost}, counter{"answer", &s.AnswersLost},
			counter{"repair", &s.RepairsLost}, counter{"inbox", &s.TasksLost}, counter{"link_end", &s.DropsForgotten}),
	}
}

// durableMetrics returns the metrics of durable sessions.
func (e *Edge) durableMetrics(s *snapshot) []telemetry.Metric {
	session := func(name, unit, help string, value *uint64) telemetry.Metric {
		return s.counters("dnp.session."+name, unit, help, "", counter{"", value})
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
		session("opened", "{session}", "Sessions that began here.", &s.Durable.SessionsOpened),
		session("adopted", "{session}", "Sessions that this edge took over from other edges.", &s.Durable.SessionsAdopted),
		session("handed", "{session}", "Sessions that this edge handed over to other edges, or to another worker.", &s.Durable.SessionsHanded),
		session("lost", "{session}", "Sessions that other edges took over although this edge had not handed them over.", &s.Durable.SessionsLost),
		session("elsewhere", "{session}", "Connections that ended without a farewell because another edge has the client's session.", &s.Durable.SessionsElsewhere),
		session("uncertain", "{session}", "Sessions that ended because the edge could not establish their history.", &s.Durable.SessionsUncertain),
		session("writes", "{write}", "Writes that the edge requested of the session log.", &s.Durable.LogWrites),
		session("stalls", "{stall}", "Times that a worker was stopped for so long that other edges may have taken its sessions over.", &s.Durable.Stalls),
		session("return_paths.unknown", "{datagram}", "Datagrams dropped with --answer-only, because their client has sent none yet, or because the edge on its return path is not reachable.",
			&s.Durable.PathsUnknown),
		s.counters("dnp.session.orphans", "{datagram}", "Orphan datagrams (from clients that the worker does not serve), by outcome.", "fate",
			counter{"held", &s.Durable.OrphansHeld}, counter{"forwarded", &s.Durable.OrphansForwarded}, counter{"dropped", &s.Durable.OrphansDropped}),
		session("return_paths.displaced", "{client}", "Clients without a session whose return path was forgotten because the table was full.", &s.Durable.PathsDisplaced),
	}
}
