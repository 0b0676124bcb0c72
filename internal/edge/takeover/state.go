package takeover

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/internal/turn/heap"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// Config is what a Takeover is made of.
type Config struct {
	Host     Host
	Node     string        // the name of this edge
	Worker   int           // the number of this worker in the edge
	Listener uint16        // the port that its clients talk to
	Endpoint *dnp.Endpoint // of the worker
	Rand     *rand.Rand    // makes the marks by which the edge knows its own writes

	// Secret makes the names of logs. Shards is the number of log shards.
	Secret []byte
	Shards int

	// Affinity says that there is an affinity; otherwise only the log says which edge
	// serves which session.
	Affinity bool

	// Forwards says that datagrams can be forwarded to other edges. AnswerOnly says that
	// nothing may be sent on an unknown path.
	Forwards, AnswerOnly bool
}

// Counts are the counters of a Takeover.
type Counts struct {
	SessionsOpened    uint64
	SessionsAdopted   uint64 // taken over
	SessionsHanded    uint64 // to other edges and workers
	SessionsLost      uint64 // because another edge took them over
	SessionsElsewhere uint64 // that began here while another edge had them
	SessionsUncertain uint64 // ended because their history cannot be established
	LogWrites         uint64
	Stalls            uint64 // times that a worker was stopped for so long that its sessions may be elsewhere
	OrphansHeld       uint64 // datagrams that waited until the worker knew which edge serves their client
	OrphansForwarded  uint64 // that went to another edge or worker
	OrphansDropped    uint64
	PathsDisplaced    uint64 // clients without a session whose return path was forgotten to make room
	PathsUnknown      uint64 // datagrams to clients dropped for want of a return path
}

// Bounds of a durable session. A checkpoint has what is not delivered, the long message
// that is coming in and the backlog, and must fit into one message of NATS with the
// commands of its write.
const (
	undeliveredMax = 192 << 10
	blockBytesMax  = 128 << 10

	// LongMessageMax bounds the long messages of a client.
	LongMessageMax = 192 << 10
)

// hopsMax is how often a datagram of a client may be forwarded. Two, because the first edge
// may know an owner that has just handed the session over.
const hopsMax = 2

// A Takeover is the durable sessions of one worker, which owns it.
type Takeover struct {
	cfg  Config
	host Host
	log  sessionlog.Config

	// All sessions, and those whose client is known.
	byName map[string]*Session
	byAddr map[netip.AddrPort]*Session

	awake    []*Session // to be advanced in this turn
	due      *heap.Heap[*Session]
	awaiting []*Session // in the phase AwaitingSpace, oldest first
	batches  *sessionlog.Batches[*Session]
	turned   time.Time // when the last turn began
	silent   time.Time // since when the log answers nothing; zero if it answers
	logAway  bool

	orphans orphans
	paths   paths
	detours int    // sessions whose path is not the direct one
	reads   budget // of logs, for clients that no edge claims

	superseded []*supersededClaim // the next to look at first, with some that are settled
	looks      budget             // at superseded claims
	inherited  inheritance

	draining  drain
	preparing []preparation

	counts Counts
}

// An inheritance is the orphaned claims on sessions that this edge takes over although their
// clients say nothing.
type inheritance struct {
	queue []orphanedClaim
	lists []listing
	next  time.Time // when the next session may be taken over
}

// An orphanedClaim is the claim of a dead edge on a session.
type orphanedClaim struct{ name, node string }

// A listing of the claims of a dead edge that is due again.
type listing struct {
	node   string
	rounds int
	at     time.Time
}

// A drain is the handing over of all sessions of the worker.
type drain struct {
	on         bool
	closing    bool // what is left is closed
	candidates candidates
	queue      []string  // sessions of this round
	begin      time.Time // when the first session may go
	next       time.Time // when the next may go
	look       time.Time // when the next round begins
}

// A preparation is spaces whose states the worker is asked to have.
type preparation struct {
	spaces []string
	until  time.Time
	done   func(ok bool)
}

// New returns a Takeover without sessions.
func New(cfg Config) *Takeover {
	t := &Takeover{
		cfg: cfg, host: cfg.Host,
		log: sessionlog.Config{
			Node: cfg.Node, Rand: cfg.Rand, Format: func() uint8 { return cfg.Host.View().format() },
			UndeliveredBytesMax: undeliveredMax, BlockBytes: blockBytesMax,
		},
		byName: make(map[string]*Session), byAddr: make(map[netip.AddrPort]*Session),
		due:     heap.New(func(a, b *Session) bool { return a.due.Before(b.due) }, func(s *Session) *int { return &s.place }),
		batches: sessionlog.NewBatches[*Session](cfg.Shards),
		orphans: newOrphans(),
		paths:   newPaths(),
	}
	cfg.Host.BorrowLocations().grow()
	cfg.Host.ReturnLocations()
	return t
}

// Count returns how many durable sessions the worker has, looks at, or gave to an edge that
// has not consented: that edge may be leaving, too.
func (t *Takeover) Count() int { return len(t.byName) }

// Counts returns the counters.
func (t *Takeover) Counts() Counts { return t.counts }

// LogAway reports whether the log has answered nothing for so long that no session should
// begin.
func (t *Takeover) LogAway() bool { return t.logAway }

// Serves reports whether the worker owns the session of a client.
func (t *Takeover) Serves(client netip.AddrPort) bool {
	s := t.byAddr[client]
	return s != nil && s.log.Phase() == sessionlog.Owning
}

// name returns the name of the log of a client.
func (t *Takeover) name(client netip.AddrPort) string {
	return sessionlog.Key(t.cfg.Secret, client, t.cfg.Listener)
}

func (t *Takeover) client(addr netip.AddrPort) Client { return Client{addr, t.cfg.Listener} }

// present reports whether any worker of this edge has a session, looks at it, or gave it
// away without consent.
func (t *Takeover) present(name string) bool {
	defer t.host.ReturnLocations()
	return t.host.BorrowLocations().Present(name)
}

// elsewhere remembers that another edge serves a client, if that edge is known.
func (t *Takeover) elsewhere(now time.Time, client netip.AddrPort, node string) {
	if node != "" && node != t.cfg.Node && client.IsValid() {
		t.host.BorrowLocations().Hint(now, t.client(client), node)
		t.host.ReturnLocations()
	}
}

// nowhere remembers that no edge has a session of a client.
func (t *Takeover) nowhere(now time.Time, client netip.AddrPort) {
	t.host.BorrowLocations().Hint(now, t.client(client), "")
	t.host.ReturnLocations()
}

// enter makes a session known by its name and client.
func (t *Takeover) enter(s *Session) {
	t.byName[s.name] = s
	if s.client.IsValid() {
		t.byAddr[s.client] = s
	}
	t.host.BorrowLocations().Enter(s.name, t.client(s.client), t.cfg.Worker)
	t.host.ReturnLocations()
}

// claim publishes that this edge serves a session.
func (t *Takeover) claim(s *Session) {
	t.host.BorrowLocations().Own(s.name, t.client(s.client), t.cfg.Worker, s.log.Epoch())
	t.host.ReturnLocations()
	if t.cfg.Affinity {
		t.host.Claim(s.name, s.log.Epoch())
	}
}

// release publishes that this edge has ended a session.
func (t *Takeover) release(s *Session) {
	s.endFeed()
	if t.cfg.Affinity {
		t.host.Release(s.name, s.log.Epoch())
	}
}

// settle ends that this worker looks after its claim on a session, and releases it.
func (t *Takeover) settle(name string) {
	l := t.host.BorrowLocations()
	c := l.superseded(name, t.cfg.Worker)
	l.settle(name, t.cfg.Worker)
	t.host.ReturnLocations()
	if c != nil {
		t.host.Release(c.name, c.epoch)
	}
}

// forget drops a session that is over at this worker.
func (t *Takeover) forget(s *Session) {
	s.phase = Over
	t.due.Remove(s)
	if t.byName[s.name] == s {
		delete(t.byName, s.name)
		t.host.BorrowLocations().Leave(s.name, t.cfg.Worker)
		t.host.ReturnLocations()
	}
	edge := s.path.Edge
	t.setPath(s, Path{})
	if t.byAddr[s.client] == s {
		delete(t.byAddr, s.client)
		t.notePath(t.turned, s.client, edge) // the client is yet to be told
	}
}

// wake has the session advanced in this turn.
func (t *Takeover) wake(s *Session) {
	if !s.queued {
		s.queued = true
		t.awake = append(t.awake, s)
	}
}

// plan has the session advanced at a time; zero for never.
func (t *Takeover) plan(s *Session, at time.Time) {
	if s.due = at; at.IsZero() {
		t.due.Remove(s)
		return
	}
	t.due.Set(s)
}

// revalidate makes a session read its log before it says anything, because another edge
// may own it.
func (t *Takeover) revalidate(s *Session) {
	s.log.Revalidate()
	if s.phase == Serving {
		s.phase = Revalidating
	}
	t.wake(s)
}

// revalidateAll revalidates all sessions, after this process was stopped.
func (t *Takeover) revalidateAll() {
	t.counts.Stalls++
	for _, name := range slices.Sorted(maps.Keys(t.byName)) {
		t.revalidate(t.byName[name])
	}
}

// direct reports whether all clients are known to come directly.
func (t *Takeover) direct() bool { return t.detours == 0 && len(t.paths.byAddr) == 0 }

// notePath notes over which edge a datagram of a client came; empty for none.
func (t *Takeover) notePath(now time.Time, client netip.AddrPort, edge string) {
	if edge == "" && t.direct() {
		return
	}
	if s := t.byAddr[client]; s != nil {
		t.setPath(s, Path{Edge: edge})
	} else if t.paths.note(now, client, edge) {
		t.counts.PathsDisplaced++
	}
}

// setPath sets the return path to the client of a session.
func (t *Takeover) setPath(s *Session, p Path) {
	p.Unknown = p.Unknown && t.cfg.AnswerOnly
	if s.path != (Path{}) {
		t.detours--
	}
	if s.path = p; p != (Path{}) {
		t.detours++
	}
}

// inferPath sets the return path to the client of a session that is taken over to the one by
// which its datagrams came, if any did.
func (t *Takeover) inferPath(s *Session) {
	if t.orphans.waiting(s.client) {
		t.setPath(s, Path{Edge: t.orphans.edge(s.client)})
	} else if p := t.paths.byAddr[s.client]; p != nil && s.path.Edge == "" {
		t.setPath(s, Path{Edge: p.edge})
	}
}

// hold keeps an orphan datagram. It reports whether it is the first of its client, and
// whether there was room.
func (t *Takeover) hold(now time.Time, from netip.AddrPort, o orphan) (first, ok bool) {
	if first, ok = t.orphans.hold(now, from, o); ok {
		t.counts.OrphansHeld++
	} else {
		t.counts.OrphansDropped++
	}
	return first, ok
}

// forward sends a datagram to the edge that serves its client. It reports false if that
// edge cannot be reached.
func (t *Takeover) forward(node string, from netip.AddrPort, o orphan) bool {
	if !t.cfg.Forwards {
		return false
	}
	if o.hops >= hopsMax {
		t.counts.OrphansDropped++
		return true // it was forwarded often enough
	}
	if !t.host.Forward(node, from, o.hops, o.data) {
		return false
	}
	t.counts.OrphansForwarded++
	return true
}

// forwardHeld sends the datagrams that wait to the edge that serves their client. It reports
// false if none waits, or that edge cannot be reached.
func (t *Takeover) forwardHeld(now time.Time, from netip.AddrPort, node string) bool {
	first, ok := t.orphans.first(from)
	if !ok || !t.forward(node, from, first) {
		return false
	}
	for _, o := range t.orphans.remove(from)[1:] {
		t.forward(node, from, o)
	}
	t.elsewhere(now, from, node)
	return true
}

// receiveHeld gives the datagrams of a client that wait to the endpoint.
func (t *Takeover) receiveHeld(now time.Time, from netip.AddrPort) {
	for _, o := range t.orphans.remove(from) {
		t.notePath(now, from, o.edge)
		t.host.Receive(now, from, o.data)
	}
}

// pass gives a datagram to another worker of this edge.
func (t *Takeover) pass(worker int, from netip.AddrPort, o orphan) {
	t.host.Pass(worker, from, o.data, o.edge, o.hops)
	t.counts.OrphansForwarded++
}

// reply answers the edge that gave a session to this one: it may forget the session.
func (t *Takeover) reply(s *Session) {
	t.host.Reply(s.asker, true)
	s.asker = ""
}

// A budget bounds how often something is done per second.
type budget struct {
	second int64
	spent  int
}

// spend reports whether it may be done once more.
func (b *budget) spend(now time.Time, most int) bool {
	if s := now.Unix(); s != b.second {
		*b = budget{second: s}
	}
	b.spent++
	return b.spent <= most
}
