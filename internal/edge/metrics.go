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

	Impostors    uint64 // datagrams by UDP in the name of carried clients
	ArrivalsLost uint64 // datagrams of carried clients that did not fit into an inbox
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
	c := Counts{Counts: *w.spaces.Counts(), Stats: w.judge.Stats, TasksLost: w.tasks.Lost(), Impostors: w.impostors}
	if w.arrivals != nil {
		c.ArrivalsLost = w.arrivals.Lost()
	}
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

// commandMetrics returns the metrics of commands of clients.
func commandMetrics(of telemetry.Group[Stats]) []telemetry.Metric {
	return []telemetry.Metric{
		of.Counter("commands", "{command}", "Commands of clients, passed on to game servers.", func(s *Stats) uint64 { return s.Commands }),
		of.Counter("commands.refused", "{command}", "Commands of clients that the edge refused: not allowed, malformed, or too many without an answer.",
			func(s *Stats) uint64 { return s.CommandsRefused }),
		of.Counter("commands.late", "{command}", "Commands of clients that no game server answered in time.", func(s *Stats) uint64 { return s.CommandsLate }),
		of.Counter("commands.answers", "{answer}", "Answers to commands that went to clients, with those of the edge.",
			func(s *Stats) uint64 { return s.CommandAnswers }),
	}
}

// sightMetrics returns the metrics of interest by distance.
func sightMetrics(of telemetry.Group[Stats]) []telemetry.Metric {
	return []telemetry.Metric{
		of.Gauge("sessions.seeing", "{session}", "Sessions with eyes, in spaces that have states with an interest.", func(s *Stats) float64 { return float64(s.Seeing) }),
		of.Gauge("links.asleep", "{link}", "Links of clients that are sent nothing, because their states are beyond all bands of distance.", func(s *Stats) float64 { return float64(s.Protocol.Silent) }),
		of.Counter("looks", "{look}", "Looks at what is near the eyes of a session.", func(s *Stats) uint64 { return s.Looks }),
		of.Counter("bands.changes", "{change}", "States that came into another band of distance of a session.", func(s *Stats) uint64 { return s.BandMoves }),
		of.Counter("sightings", "{state}", "States that game servers were told to be in the sight of a client, or no longer, because an interest asks for events.", func(s *Stats) uint64 { return s.Sightings }),
		of.Counter("sightings.waits", "{wait}", "Times that news of the sight of a client waited for 250 ms, because there were too many.", func(s *Stats) uint64 { return s.SightingsWaits }),
	}
}

// Metrics returns the metrics of this edge.
func (e *Edge) Metrics() []telemetry.Metric {
	cache := &telemetry.Cache[Stats]{Read: e.Stats}
	of := telemetry.Group[Stats]{Prefix: "dnp.edge.", Read: cache.Get}
	all := []telemetry.Metric{
		of.Gauge("sessions", "{session}", "Sessions of clients that this edge serves.", func(s *Stats) float64 { return float64(s.Sessions) }),
		of.Gauge("sessions.max", "{session}", "Sessions that this edge may have.", func(*Stats) float64 { return float64(e.cfg.SessionsMax) }),
		of.Gauge("spaces", "{space}", "Spaces that the workers follow because they have clients in them, summed over the workers.", func(s *Stats) float64 { return float64(s.Spaces) }),
		of.Gauge("states", "{state}", "States in the replicas, summed over the workers.", func(s *Stats) float64 { return float64(s.States) }),
		of.Gauge("levels", "{level}", "Levels of detail of states, summed over the workers.", func(s *Stats) float64 { return float64(s.Levels) }),
		of.InOut("datagrams", "{datagram}", "Datagrams from and to clients.",
			func(s *Stats) (in, out uint64) { return s.Protocol.DatagramsIn, s.Protocol.DatagramsOut }),
		of.InOut("io", "By", "Bytes of datagrams from and to clients, without headers.",
			func(s *Stats) (in, out uint64) { return s.Protocol.BytesIn, s.Protocol.BytesOut }),
		of.InOut("updates", "{update}", "Links whose changed values were sent to clients, counted once in each datagram.",
			func(s *Stats) (in, out uint64) { return s.Protocol.UpdatesIn, s.Protocol.UpdatesOut }),
		of.InOut("messages", "{message}", "Messages from clients to game servers, and from game servers to clients.",
			func(s *Stats) (in, out uint64) { return s.MessagesIn, s.MessagesOut }),
		of.Counter("stateless", "{request}", "Connection requests and logins that the edge answered without storing or checking anything, because there were too many.",
			func(s *Stats) uint64 { return s.Protocol.Stateless }),
		of.Counter("suspects", "{alarm}", "Sessions for which another host seemed to forge datagrams.",
			func(s *Stats) uint64 { return s.Protocol.Alarms }),
		of.Counter("socket.waits", "{flush}", "Flushes that had to wait for the socket.", func(s *Stats) uint64 { return s.Socket.WriteWaits }),
		of.Counter("socket.uncut", "{flush}", "Times that datagrams which could have left in one piece were sent one by one.",
			func(s *Stats) uint64 { return s.Socket.Uncut }),
		of.InOut("socket.batches", "{batch}", "System calls that moved datagrams of clients.",
			func(s *Stats) (in, out uint64) { return s.Socket.BatchesIn, s.Socket.BatchesOut }),
		of.Counter("updates.deferred", "{link}", "Links that began to wait for the budget of their client.",
			func(s *Stats) uint64 { return s.Protocol.Deferred }),
		of.Counter("connects", "{session}", "Sessions of clients that began.", func(s *Stats) uint64 { return s.Protocol.Connects }),
		of.Counter("callouts", "{request}", "Requests to the game's service about who a client is.", func(s *Stats) uint64 { return s.Callouts }),
		of.Counter("events", "{message}", "Events that this edge published for game servers.", func(s *Stats) uint64 { return s.Events }),
		of.Gauge("inbox.io", "By", "Bytes of messages of the bus that wait for a worker.", func(s *Stats) float64 { return float64(s.InboxBytes) }),
		of.Gauge("inbox.tasks", "{task}", "Tasks that wait for a worker: messages of the bus, and requests of the edge.", func(s *Stats) float64 { return float64(s.InboxTasks) }),
		of.Counter("scrubs", "{link}", "Links whose values were sent again in the round over all links.",
			func(s *Stats) uint64 { return s.Protocol.Scrubs }),
		of.Counter("inferred", "{command}", "Reliable commands taken as delivered because the peer went on behind them.",
			func(s *Stats) uint64 { return s.Protocol.Inferred }),
		of.Counter("crowded", "{time}", "Times that a session got a lower rate, because datagrams to its client waited on the path.", func(s *Stats) uint64 { return s.Protocol.Crowded }),
		of.Counter("resends", "{command}", "Reliable commands that were sent to clients again, because no acknowledgement came.", func(s *Stats) uint64 { return s.Protocol.Resends }),
		of.Counter("ack_repeats", "{acknowledgement}", "Acknowledgements sent again to clients whose path loses datagrams.", func(s *Stats) uint64 { return s.Protocol.AckRepeats }),
		of.Counter("refreshes", "{state}", "States whose values were sent again because they went quiet.",
			func(s *Stats) uint64 { return s.Protocol.Refreshes }),
		of.Counter("batches", "{batch}", "Batches of changes that replicas applied, summed over the workers.", func(s *Stats) uint64 { return s.Replicas.Batches }),
		of.Counter("epochs", "{epoch}", "Times that a space which this edge follows got another holder, summed over the workers.", func(s *Stats) uint64 { return s.Replicas.Epochs }),
		of.Counter("gaps", "{gap}", "Batches of changes that came without their predecessor, so that a replica asked for what it missed.", func(s *Stats) uint64 { return s.Replicas.Gaps }),
		of.Counter("writes.repeated", "{write}", "Client writes that the holder did not acknowledge in time.",
			func(s *Stats) uint64 { return s.WritesRepeated }),
		of.Counter("writes.refused", "{write}", "Client writes that were not allowed, by the edge or the holder.",
			func(s *Stats) uint64 { return s.WritesRefused + s.WritesForbidden }),
		of.Counter("writes.dropped", "{value}", "Values of clients beyond the bounds of what may be unacknowledged.",
			func(s *Stats) uint64 { return s.WritesDropped }),
		of.Counter("links.refused", "{link}", "Links not offered because the client has as many as it may, or its LinkIds are used up.",
			func(s *Stats) uint64 { return s.LinksRefused }),
		of.Counter("link_ids.few", "{session}", "Sessions with nine tenths of their LinkIds used up.", func(s *Stats) uint64 { return s.LinkIDsFew }),
		of.Counter("link_ids.used_up", "{session}", "Sessions without a LinkId left, which get no more states.", func(s *Stats) uint64 { return s.LinkIDsUsedUp }),
		of.Counter("laps", "{session}", "Sessions whose clients would soon process messages of the lap before, so that they need another connection.", func(s *Stats) uint64 { return s.Laps }),
		of.Counter("offers.refused", "{state}", "States that clients offered and this edge or a relay refused.", func(s *Stats) uint64 { return s.OffersRefused }),
		of.Counter("messages.refused", "{message}", "Messages to clients that were empty, too large or too many.",
			func(s *Stats) uint64 { return s.MessagesRefused }),
		of.Counter("clients.limited", "{session}", "Sessions whose clients turned out not to take messages above 1,357 bytes.",
			func(s *Stats) uint64 { return s.ClientsLimited }),
	}
	if e.cfg.Durable != nil {
		all = append(all, e.durableMetrics(cache)...)
	}
	all = append(append(append(append(append(all, e.look.Metric()), e.repairMetrics(of)...), commandMetrics(of)...), sightMetrics(of)...), e.carriedMetrics(cache)...)
	return append(all, drops(of)...)
}

// repairMetrics are the metrics of what replicas ask holders for.
func (e *Edge) repairMetrics(of telemetry.Group[Stats]) []telemetry.Metric {
	return []telemetry.Metric{
		of.Counter("range.requests", "{request}", "Requests of replicas to relays for batches that they missed.", func(s *Stats) uint64 { return s.Replicas.RangeRequests }),
		of.Counter("keyframe.requests", "{request}", "Requests of replicas to relays for whole states.", func(s *Stats) uint64 { return s.Replicas.KeyframeRequests }),
		of.Counter("state.requests", "{request}", "Requests of replicas to relays for single states, and for the checksums by which those are found.", func(s *Stats) uint64 { return s.Replicas.StateRequests }),
		of.Counter("audits", "{request}", "Requests to relays for the checksums with which replicas are audited from time to time.", func(s *Stats) uint64 { return s.Replicas.AuditRequests }),
		of.Counter("repairs.shared", "{request}", "Repair requests that were not sent, because another worker's answer served.", func(*Stats) uint64 { return e.repairs.shared.Load() }),
		of.InOut("repair.io", "By", "Bytes of answers to repair requests, and of the requests, summed over the workers: those that share an answer count it each.",
			func(s *Stats) (in, out uint64) { return s.Replicas.AnsweredBytes, s.Replicas.AskedBytes }),
		of.Counter("repaired", "{state}", "States, or views of them, that a repair brought or changed.", func(s *Stats) uint64 { return s.Replicas.Keyframed }),
		of.Counter("divergence", "{state}", "States, or groups of them, that differed from the holder's at an equal position.",
			func(s *Stats) uint64 { return s.Replicas.Divergence }),
	}
}

// drops are the metrics with a reason.
func drops(of telemetry.Group[Stats]) []telemetry.Metric {
	by := func(name, unit, help string, read func(s *Stats, observe func(string, uint64))) telemetry.Metric {
		return of.CounterBy(name, unit, help, "reason", read)
	}
	return []telemetry.Metric{
		by("drops", "{datagram}", "Input that was ignored, and losses because of bounds, by reason.",
			func(s *Stats, observe func(string, uint64)) {
				telemetry.Named[dnp.DropReason](observe, s.Protocol.Drops[:])
			}),
		by("logins", "{login}", "Logins of clients, by the reason for which they were refused; none = admitted.",
			func(s *Stats, observe func(string, uint64)) { telemetry.Named[auth.Reason](observe, s.Logins[:]) }),
		by("closes", "{session}", "Connections of clients that ended, by reason.",
			func(s *Stats, observe func(string, uint64)) {
				telemetry.Named[dnp.CloseReason](observe, s.Protocol.Closes[:])
			}),
		by("socket.drops", "{datagram}", "Datagrams that the system did not send or deliver, by reason.",
			func(s *Stats, observe func(string, uint64)) {
				telemetry.Named[udp.DropReason](observe, s.Socket.Drops[:])
				observe("overflow", s.Socket.Overflows)
			}),
		by("replica.drops", "{message}", "Messages of holders that were not applied, by reason.", replicaDrops),
		by("bus.lost", "{message}", "Messages that the bus refused, and messages from it that did not fit, by kind.", busLost),
	}
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

func (e *Edge) durableMetrics(cache *telemetry.Cache[Stats]) []telemetry.Metric {
	of := telemetry.Group[takeover.Counts]{Prefix: "dnp.session.", Read: func() takeover.Counts { return cache.Get().Durable }}
	return []telemetry.Metric{
		telemetry.Gauge("dnp.session.durable", "{session}", "Durable sessions that this edge serves or considers.",
			func() float64 { return float64(e.DurableSessions()) }),
		telemetry.Gauge("dnp.session.draining", "", "1 while the edge hands its sessions over and after that, else 0.", func() float64 {
			if e.draining.Load() {
				return 1
			}
			return 0
		}),
		of.Counter("opened", "{session}", "Durable sessions that began at this edge.", func(c *takeover.Counts) uint64 { return c.SessionsOpened }),
		of.Counter("adopted", "{session}", "Sessions that this edge took over from other edges.", func(c *takeover.Counts) uint64 { return c.SessionsAdopted }),
		of.Counter("ways.sought", "{search}", "Searches for the edge by which a balancer lets answers reach a client that says nothing.",
			func(c *takeover.Counts) uint64 { return c.WaysSought }),
		of.Counter("handed", "{session}", "Sessions that this edge handed over to other edges, or to another worker.", func(c *takeover.Counts) uint64 { return c.SessionsHanded }),
		of.Counter("queued.lost", "{message}", "Reliable messages to clients that were not sent yet and for which the hand-over of their session had no room.",
			func(c *takeover.Counts) uint64 { return c.QueuedLost }),
		of.Counter("lost", "{session}", "Sessions that other edges took over although this edge had not handed them over.", func(c *takeover.Counts) uint64 { return c.SessionsLost }),
		of.Counter("elsewhere", "{session}", "Connections that ended without a farewell because another edge has the client's session.",
			func(c *takeover.Counts) uint64 { return c.SessionsElsewhere }),
		of.Counter("uncertain", "{session}", "Sessions that ended because the edge could not establish their history.",
			func(c *takeover.Counts) uint64 { return c.SessionsUncertain }),
		of.Counter("writes", "{write}", "Writes that the edge requested of the session log.", func(c *takeover.Counts) uint64 { return c.LogWrites }),
		of.Counter("stalls", "{stall}", "Times that a worker was stopped for so long that other edges may have taken its sessions over.",
			func(c *takeover.Counts) uint64 { return c.Stalls }),
		of.Counter("return_paths.unknown", "{datagram}", "Datagrams dropped with --answer-only, because their client has sent none yet, or because the edge on its return path is not reachable.",
			func(c *takeover.Counts) uint64 { return c.PathsUnknown }),
		of.CounterBy("orphans", "{datagram}", "Orphan datagrams (from clients that the worker does not serve), by outcome.", "fate",
			func(c *takeover.Counts, observe func(string, uint64)) {
				observe("held", c.OrphansHeld)
				observe("forwarded", c.OrphansForwarded)
				observe("dropped", c.OrphansDropped)
			}),
		of.Counter("return_paths.displaced", "{client}", "Clients without a session whose return path was forgotten because the table was full.",
			func(c *takeover.Counts) uint64 { return c.PathsDisplaced }),
	}
}
