package edge

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/edge/takeover"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// A Durable is what durable sessions need, those that outlive their edge; see
// sessionlog/DESIGN.md and takeover/DESIGN.md.
type Durable struct {
	// Log stores the logs of all sessions, in so many log Shards. Secret makes the names
	// of the logs. All edges of a deployment must have the same.
	Log    sessionlog.Log
	Shards int
	Secret []byte

	// From stores reliable messages of clients for the game servers.
	From From

	// Affinity says which edge serves which session. nil means that only the log says so.
	Affinity cluster.Affinity

	// DrainTimeout is how long Run may take to hand sessions over when it is to end, and
	// DrainLinger for how long it then goes on to forward datagrams. 0 means 55 s, and 3 s
	// if there is a Forwarder.
	DrainTimeout, DrainLinger time.Duration

	// Forward carries datagrams to the edges that serve their clients. nil means that an
	// edge takes over each session whose datagrams come to it.
	Forward Forwarder

	// AnswerOnly says that a balancer tracks connections: an edge that takes a session over
	// must not send to the client before a datagram of the client comes. It needs a
	// Forwarder.
	AnswerOnly bool
}

// From is the port to the store of clients' reliable messages for game servers.
type From interface {
	// Begin returns the feed of a session. delivered is called, from any goroutine, when
	// the message with this number and all before it can no longer get lost; it does
	// not block.
	Begin(space, client, session string, delivered func(number uint64)) Feed
}

// A Feed is the messages of one session.
type Feed = takeover.Feed

func (d *Durable) setDefaults() {
	if d.DrainTimeout == 0 {
		d.DrainTimeout = 55 * time.Second
	}
	if d.DrainLinger == 0 {
		d.DrainLinger = 3 * time.Second
	}
}

func (d *Durable) validate() error {
	var errs []error
	if d.Log == nil || d.Shards < 1 || len(d.Secret) == 0 {
		errs = append(errs, errors.New("edge: durable sessions need a log, its shards and a secret"))
	}
	if d.From == nil {
		errs = append(errs, errors.New("edge: durable sessions need a store for their messages"))
	}
	return errors.Join(errs...)
}

// makeDurable keeps the sessions of a worker in the log.
func (w *Worker) makeDurable(d *Durable) {
	seed := w.edge.cfg.Seed
	w.takeover = takeover.New(takeover.Config{
		Host: &takeoverHost{w, d}, Node: w.edge.cfg.Node, Worker: w.index, Listener: w.listener, Endpoint: w.ep,
		Rand: rand.New(rand.NewPCG(seed(), seed())), Secret: d.Secret, Shards: d.Shards,
		Affinity: d.Affinity != nil, Forwards: d.Forward != nil, AnswerOnly: d.AnswerOnly,
	})
	if d.Forward != nil {
		w.out = &returning{w.out, w.takeover}
	}
}

// startDurable takes over the sessions of an earlier process of this node, and subscribes to
// later claims of other edges.
func (e *Edge) startDurable() {
	if e.cfg.Durable.Affinity == nil {
		return
	}
	e.cfg.Durable.Affinity.OnReplaced(func(name string, by cluster.Served) {
		for _, w := range e.workers {
			w.post(0, func(w *Worker, _ time.Time) { w.takeover.Replaced(name, by.Epoch) })
		}
	})
	e.takeOver(e.cfg.Node)
}

// takeOver has the first worker take over the sessions of a dead edge.
func (e *Edge) takeOver(node string) {
	if len(e.workers) > 0 {
		w := e.workers[0]
		w.must(func(time.Time) { w.takeover.EdgeGone(node) })
	}
}

// closeTime is how long the log has to store the ends of sessions that no edge took.
const closeTime = 2 * time.Second

// drain hands every session of the edge over, closes those that no edge takes, and goes on
// to forward datagrams for a while.
func (e *Edge) drain() {
	d := e.cfg.Durable
	e.cfg.Log.Info("handing sessions over", "sessions", e.DurableSessions())
	e.BeginDrain()
	var hope takeover.Hope
	e.wait(d.DrainTimeout-closeTime, func() bool {
		gossip, candidates := e.view.Load().Candidates()
		return e.DurableSessions() == 0 || !hope.Update(time.Now(), gossip, candidates)
	})
	if n := e.DurableSessions(); n > 0 {
		e.cfg.Log.Warn("closing sessions: no edge takes them", "sessions", n)
		for _, w := range e.workers {
			w.must(func(time.Time) { w.takeover.CloseRest() })
		}
		e.wait(closeTime, func() bool { return e.DurableSessions() == 0 })
	}
	e.leaving.Store(true)
	if d.Forward != nil {
		e.wait(d.DrainLinger, func() bool { return false })
	}
}

// wait waits until done, which it asks a hundred times a second, but not for longer than d.
func (e *Edge) wait(d time.Duration, done func() bool) {
	end := time.Now().Add(d)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() && time.Now().Before(end) {
		<-tick.C
	}
}

// BeginDrain has the workers hand their sessions over, for a caller that turns them. It is
// done when Kept is 0.
func (e *Edge) BeginDrain() {
	e.draining.Store(true)
	for _, w := range e.workers {
		w.must(w.takeover.Drain)
	}
}

// DurableSessions returns how many durable sessions the edge has, looks at, or gave to an edge
// that has not consented: that edge may be leaving, too.
func (e *Edge) DurableSessions() (n int32) {
	for _, w := range e.workers {
		n += w.durable.Load()
	}
	return n
}

// Serves reports whether the worker owns the session of a client, for a caller that turns
// it.
func (w *Worker) Serves(client netip.AddrPort) bool { return w.takeover.Serves(client) }

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
