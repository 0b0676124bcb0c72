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
func commandMetrics(of *telemetry.Group[Stats]) []telemetry.Metric {
	s := &of.All
	return []telemetry.Metric{
		of.Counter("commands", "{command}", "Commands of clients, passed on to game servers.", &s.Commands),
		of.Counter("commands.refused", "{command}", "Commands of clients that the edge refused: not allowed, malformed, or too many without an answer.", &s.CommandsRefused),
		of.Counter("commands.late", "{command}", "Commands of clients that no game server answered in time.", &s.CommandsLate),
		of.Counter("commands.answers", "{answer}", "Answers to commands that went to clients, with those of the edge.", &s.CommandAnswers),
	}
}

// sightMetrics returns the metrics of interest by distance.
func sightMetrics(of *telemetry.Group[Stats]) []telemetry.Metric {
	s := &of.All
	return []telemetry.Metric{
		of.Gauge("sessions.seeing", "{session}", "Sessions with eyes, in spaces that have states with an interest.", &s.Seeing),
		of.Gauge("links.asleep", "{link}", "Links of clients that are sent nothing, because their states are beyond all bands of distance.", &s.Protocol.Silent),
		of.Counter("looks", "{look}", "Looks at what is near the eyes of a session.", &s.Looks),
		of.Counter("bands.changes", "{change}", "States that came into another band of distance of a session.", &s.BandMoves),
		of.Counter("sightings", "{state}", "States that game servers were told to be in the sight of a client, or no longer, because an interest asks for events.", &s.Sightings),
		of.Counter("sightings.waits", "{wait}", "Times that news of the sight of a client waited for 250 ms, because there were too many.", &s.SightingsWaits),
	}
}

// Metrics returns the metrics of this edge.
func (e *Edge) Metrics() []telemetry.Metric {
	cache := &telemetry.Cache[Stats]{Read: e.Stats}
	of := telemetry.NewGroup("dnp.edge.", cache.Get)
	s := &of.All
	all := []telemetry.Metric{
		of.Gauge("sessions", "{session}", "Sessions of clients that this edge serves.", &s.Sessions),
		of.Gauge("sessions.max", "{session}", "Sessions that this edge may have.", &e.cfg.SessionsMax),
		of.Gauge("spaces", "{space}", "Spaces that the workers follow because they have clients in them, summed over the workers.", &s.Spaces),
		of.Gauge("states", "{state}", "States in the replicas, summed over the workers.", &s.States),
		of.Gauge("levels", "{level}", "Levels of detail of states, summed over the workers.", &s.Levels),
		of.InOut("datagrams", "{datagram}", "Datagrams from and to clients.", &s.Protocol.DatagramsIn, &s.Protocol.DatagramsOut),
		of.InOut("io", "By", "Bytes of datagrams from and to clients, without headers.", &s.Protocol.BytesIn, &s.Protocol.BytesOut),
		of.InOut("updates", "{update}", "Links whose changed values were sent to clients, counted once in each datagram.", &s.Protocol.UpdatesIn, &s.Protocol.UpdatesOut),
		of.InOut("messages", "{message}", "Messages from clients to game servers, and from game servers to clients.", &s.MessagesIn, &s.MessagesOut),
		of.Counter("stateless", "{request}", "Connection requests and logins that the edge answered without storing or checking anything, because there were too many.", &s.Protocol.Stateless),
		of.Counter("suspects", "{alarm}", "Sessions for which another host seemed to forge datagrams.", &s.Protocol.Alarms),
		of.Counter("socket.waits", "{flush}", "Flushes that had to wait for the socket.", &s.Socket.WriteWaits),
		of.Counter("socket.uncut", "{flush}", "Times that datagrams which could have left in one piece were sent one by one.", &s.Socket.Uncut),
		of.InOut("socket.batches", "{batch}", "System calls that moved datagrams of clients.", &s.Socket.BatchesIn, &s.Socket.BatchesOut),
		of.Counter("updates.deferred", "{link}", "Links that began to wait for the budget of their client.", &s.Protocol.Deferred),
		of.Counter("connects", "{session}", "Sessions of clients that began.", &s.Protocol.Connects),
		of.Counter("callouts", "{request}", "Requests to the game's service about who a client is.", &s.Callouts),
		of.Counter("events", "{message}", "Events that this edge published for game servers.", &s.Events),
		of.Gauge("inbox.io", "By", "Bytes of messages of the bus that wait for a worker.", &s.InboxBytes),
		of.Gauge("inbox.tasks", "{task}", "Tasks that wait for a worker: messages of the bus, and requests of the edge.", &s.InboxTasks),
		of.Counter("scrubs", "{link}", "Links whose values were sent again in the round over all links.", &s.Protocol.Scrubs),
		of.Counter("inferred", "{command}", "Reliable commands taken as delivered because the peer went on behind them.", &s.Protocol.Inferred),
		of.Counter("crowded", "{time}", "Times that a session got a lower rate, because datagrams to its client waited on the path.", &s.Protocol.Crowded),
		of.Counter("resends", "{command}", "Reliable commands that were sent to clients again, because no acknowledgement came.", &s.Protocol.Resends),
		of.Counter("ack_repeats", "{acknowledgement}", "Acknowledgements sent again to clients whose path loses datagrams.", &s.Protocol.AckRepeats),
		of.Counter("refreshes", "{state}", "States whose values were sent again because they went quiet.", &s.Protocol.Refreshes),
		of.Counter("batches", "{batch}", "Batches of changes that replicas applied, summed over the workers.", &s.Replicas.Batches),
		of.Counter("epochs", "{epoch}", "Times that a space which this edge follows got another holder, summed over the workers.", &s.Replicas.Epochs),
		of.Counter("gaps", "{gap}", "Batches of changes that came without their predecessor, so that a replica asked for what it missed.", &s.Replicas.Gaps),
		of.Counter("writes.repeated", "{write}", "Client writes that the holder did not acknowledge in time.", &s.WritesRepeated),
		of.Counter("writes.refused", "{write}", "Client writes that were not allowed, by the edge or the holder.", &s.WritesRefused, &s.WritesForbidden),
		of.Counter("writes.dropped", "{value}", "Values of clients beyond the bounds of what may be unacknowledged.", &s.WritesDropped),
		of.Counter("links.refused", "{link}", "Links not offered because the client has as many as it may, or its LinkIds are used up.", &s.LinksRefused),
		of.Counter("link_ids.few", "{session}", "Sessions with nine tenths of their LinkIds used up.", &s.LinkIDsFew),
		of.Counter("link_ids.used_up", "{session}", "Sessions without a LinkId left, which get no more states.", &s.LinkIDsUsedUp),
		of.Counter("laps", "{session}", "Sessions whose clients would soon process messages of the lap before, so that they need another connection.", &s.Laps),
		of.Counter("offers.refused", "{state}", "States that clients offered and this edge or a relay refused.", &s.OffersRefused),
		of.Counter("messages.refused", "{message}", "Messages to clients that were empty, too large or too many.", &s.MessagesRefused),
		of.Counter("clients.limited", "{session}", "Sessions whose clients turned out not to take messages above 1,357 bytes.", &s.ClientsLimited),
	}
	if e.cfg.Durable != nil {
		all = append(all, e.durableMetrics(cache)...)
	}
	all = append(append(append(append(append(all, e.look.Metric()), e.repairMetrics(of)...), commandMetrics(of)...), sightMetrics(of)...), e.carriedMetrics(cache)...)
	return append(all, drops(of)...)
}

// repairMetrics are the metrics of what replicas ask holders for.
func (e *Edge) repairMetrics(of *telemetry.Group[Stats]) []telemetry.Metric {
	s := &of.All
	return []telemetry.Metric{
		of.Counter("range.requests", "{request}", "Requests of replicas to relays for batches that they missed.", &s.Replicas.RangeRequests),
		of.Counter("keyframe.requests", "{request}", "Requests of replicas to relays for whole states.", &s.Replicas.KeyframeRequests),
		of.Counter("state.requests", "{request}", "Requests of replicas to relays for single states, and for the checksums by which those are found.", &s.Replicas.StateRequests),
		of.Counter("audits", "{request}", "Requests to relays for the checksums with which replicas are audited from time to time.", &s.Replicas.AuditRequests),
		telemetry.Counter("dnp.edge.repairs.shared", "{request}", "Repair requests that were not sent, because another worker's answer served.", e.repairs.shared.Load),
		of.InOut("repair.io", "By", "Bytes of answers to repair requests, and of the requests, summed over the workers: those that share an answer count it each.", &s.Replicas.AnsweredBytes, &s.Replicas.AskedBytes),
		of.Counter("repaired", "{state}", "States, or views of them, that a repair brought or changed.", &s.Replicas.Keyframed),
		of.Counter("divergence", "{state}", "States, or groups of them, that differed from the holder's at an equal position.", &s.Replicas.Divergence),
	}
}

// drops are the metrics with a reason.
func drops(of *telemetry.Group[Stats]) []telemetry.Metric {
	s := &of.All
	by := func(name, unit, help string, parts ...telemetry.Parts) telemetry.Metric {
		return of.CounterBy(name, unit, help, "reason", parts...)
	}
	return []telemetry.Metric{
		by("drops", "{datagram}", "Input that was ignored, and losses because of bounds, by reason.", telemetry.Named[dnp.DropReason](s.Protocol.Drops[:])),
		by("logins", "{login}", "Logins of clients, by the reason for which they were refused; none = admitted.", telemetry.Named[auth.Reason](s.Logins[:])),
		by("closes", "{session}", "Connections of clients that ended, by reason.", telemetry.Named[dnp.CloseReason](s.Protocol.Closes[:])),
		by("socket.drops", "{datagram}", "Datagrams that the system did not send or deliver, by reason.",
			telemetry.Named[udp.DropReason](s.Socket.Drops[:]), telemetry.Parts{"overflow": &s.Socket.Overflows}),
		by("replica.drops", "{message}", "Messages of holders that were not applied, by reason.", telemetry.Parts{
			"malformed": &s.Replicas.Malformed, "malformed_head": &s.BadHeads, "bad_record": &s.Replicas.BadRecords, "old_epoch": &s.Replicas.OldEpoch,
			"duplicate": &s.Replicas.Duplicates, "buffer_full": &s.Replicas.BufferFull, "unwanted_reply": &s.Replicas.UnwantedReplies,
		}),
		by("bus.lost", "{message}", "Messages that the bus refused, and messages from it that did not fit, by kind.", telemetry.Parts{
			"event": &s.EventsLost, "message": &s.MessagesLost, "answer": &s.AnswersLost, "repair": &s.RepairsLost, "inbox": &s.TasksLost, "link_end": &s.DropsForgotten,
		}),
	}
}

func (e *Edge) durableMetrics(cache *telemetry.Cache[Stats]) []telemetry.Metric {
	of := telemetry.NewGroup("dnp.session.", func() takeover.Counts { return cache.Get().Durable })
	c := &of.All
	return []telemetry.Metric{
		telemetry.Gauge("dnp.session.durable", "{session}", "Durable sessions that this edge serves or considers.",
			func() float64 { return float64(e.DurableSessions()) }),
		telemetry.Gauge("dnp.session.draining", "", "1 while the edge hands its sessions over and after that, else 0.", func() float64 {
			if e.draining.Load() {
				return 1
			}
			return 0
		}),
		of.Counter("opened", "{session}", "Durable sessions that began at this edge.", &c.SessionsOpened),
		of.Counter("adopted", "{session}", "Sessions that this edge took over from other edges.", &c.SessionsAdopted),
		of.Counter("ways.sought", "{search}", "Searches for the edge by which a balancer lets answers reach a client that says nothing.", &c.WaysSought),
		of.Counter("handed", "{session}", "Sessions that this edge handed over to other edges, or to another worker.", &c.SessionsHanded),
		of.Counter("queued.lost", "{message}", "Reliable messages to clients that were not sent yet and for which the hand-over of their session had no room.", &c.QueuedLost),
		of.Counter("lost", "{session}", "Sessions that other edges took over although this edge had not handed them over.", &c.SessionsLost),
		of.Counter("elsewhere", "{session}", "Connections that ended without a farewell because another edge has the client's session.", &c.SessionsElsewhere),
		of.Counter("uncertain", "{session}", "Sessions that ended because the edge could not establish their history.", &c.SessionsUncertain),
		of.Counter("writes", "{write}", "Writes that the edge requested of the session log.", &c.LogWrites),
		of.Counter("stalls", "{stall}", "Times that a worker was stopped for so long that other edges may have taken its sessions over.", &c.Stalls),
		of.Counter("return_paths.unknown", "{datagram}", "Datagrams dropped with --answer-only, because their client has sent none yet, or because the edge on its return path is not reachable.", &c.PathsUnknown),
		of.CounterBy("orphans", "{datagram}", "Orphan datagrams (from clients that the worker does not serve), by outcome.", "fate", telemetry.Parts{"held": &c.OrphansHeld, "forwarded": &c.OrphansForwarded, "dropped": &c.OrphansDropped}),
		of.Counter("return_paths.displaced", "{client}", "Clients without a session whose return path was forgotten because the table was full.", &c.PathsDisplaced),
	}
}
