package takeover

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/forward"
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

	// Vouched says in whose name only the client itself can send; nil means of none. The path to such a client is the way by
	// which it came last, unless its answer to the next question says otherwise.
	Vouched func(client netip.AddrPort) bool

	Rand *rand.Rand // makes the marks by which the edge knows its own writes

	Locations *Locations // of the edge
	Ports
}

// Counts are the counters of a Takeover.
type Counts struct {
	SessionsOpened    uint64
	SessionsAdopted   uint64 // taken over
	WaysSought        uint64 // to clients, by all edges
	SessionsHanded    uint64 // to other edges and workers
	QueuedLost        uint64 // reliable messages to clients for which a hand-over had no room
	SessionsLost      uint64 // because another edge took them over
	SessionsElsewhere uint64 // that began here while another edge had them
	SessionsUncertain uint64 // ended because their history cannot be established
	LogWrites         uint64
	Stalls            uint64 // times that a worker was stopped for so long that its sessions may be elsewhere
	OrphansHeld       uint64 // datagrams that waited until the worker knew which edge serves their client
	OrphansForwarded  uint64 // that went to another edge or worker
	OrphansDropped    uint64 // for want of room, or forwarded too often; not those whose time ran out
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

// noWay is in place of the edge over which a datagram came that does not show the way. It is no name of an edge.
const noWay = "*"

// A base is what the parts of a Takeover share: the sessions of a worker, those that it is
// taking over, datagrams that wait, and return paths.
type base struct {
	cfg       Config
	host      Host
	locations *Locations
	log       sessionlog.Config

	// All sessions, and those whose client is known.
	byName map[string]*Session
	byAddr map[netip.AddrPort]*Session

	awake  []*Session // to be advanced in this turn
	due    *heap.Heap[*Session]
	turned time.Time // when the last turn began

	orphans orphans
	paths   paths
	came    string // the edge over which the datagram came that is being handled; empty for directly
	detours int    // sessions whose path is not the direct one, or that have other ways

	awaiting []*Session  // that wait for their spaces, oldest first
	reads    tokenBucket // of logs, for clients that no edge claims
	joins    tokenBucket // of questions about clients that seem to begin a session
	others   tokenBucket // of questions about other clients

	reach   reach
	silent  time.Time // since when the log answers nothing; zero if it answers
	leaving bool      // the worker hands its sessions over
	counts  Counts
}

// Count returns how many durable sessions the worker has, looks at, or gave to an edge that
// has not consented: that edge may be leaving, too.
func (b *base) Count() int { return len(b.byName) }

// Counts returns the counters.
func (b *base) Counts() Counts { return b.counts }

// Serves reports whether the worker owns the session of a client.
func (b *base) Serves(client netip.AddrPort) bool {
	s := b.byAddr[client]
	return s != nil && s.Log.Phase() == sessionlog.Owning
}

func (b *base) name(client netip.AddrPort) string {
	return sessionlog.Key(b.cfg.Secret, client, b.cfg.Listener)
}

func (b *base) client(addr netip.AddrPort) forward.Client {
	return forward.Client{Addr: addr, Listener: b.cfg.Listener}
}

// hintElsewhere remembers that another edge serves a client, if that edge is known.
func (b *base) hintElsewhere(now time.Time, client netip.AddrPort, node string) {
	if node != "" && node != b.cfg.Node && client.IsValid() {
		b.locations.hint(now, b.client(client), node)
	}
}

// enter makes a session known by its name and client.
func (b *base) enter(s *Session) {
	b.byName[s.name] = s
	if s.client.IsValid() {
		b.byAddr[s.client] = s
	}
	b.locations.enter(s.name, b.client(s.client), b.cfg.Worker)
}

// publishClaim publishes that this edge serves a session.
func (b *base) publishClaim(s *Session) {
	b.locations.own(s.name, b.client(s.client), b.cfg.Worker, s.Log.Epoch())
	if b.cfg.Affinity != nil {
		b.cfg.Affinity.Claim(s.name, s.Log.Epoch())
	}
}

// release publishes that this edge has ended a session.
func (b *base) release(s *Session) {
	s.endFeed()
	if b.cfg.Affinity != nil {
		b.cfg.Affinity.Release(s.name, s.Log.Epoch())
	}
}

// find asks the affinity which edge serves a session.
func (b *base) find(name string, answer answerFunc) { b.cfg.Affinity.Find(name, b.later(answer)) }

// try asks the affinity whether this edge may take over a session that seen serves.
func (b *base) try(name string, seen cluster.Served, answer answerFunc) {
	b.cfg.Affinity.Try(name, seen, b.later(answer))
}

// An answerFunc handles an answer of the affinity on a turn of the worker.
type answerFunc func(now time.Time, s cluster.Served, err error)

func (b *base) later(answer answerFunc) func(cluster.Served, error) {
	return func(s cluster.Served, err error) { b.host.Must(func(now time.Time) { answer(now, s, err) }) }
}

// forget drops a session that is over at this worker.
func (b *base) forget(s *Session) {
	s.departure = gone
	b.due.Remove(s)
	if b.byName[s.name] == s {
		delete(b.byName, s.name)
		b.locations.leave(s.name, b.cfg.Worker)
	}
	edge := s.path.Edge
	b.detour(s, func() { s.path, s.others, s.search = Path{}, otherWays{}, search{} })
	if b.byAddr[s.client] == s {
		delete(b.byAddr, s.client)
		b.notePath(b.turned, s.client, edge) // its refusal has to find the way back; turned is the time of this turn
	}
}

// wake has the session advanced in this turn.
func (b *base) wake(s *Session) {
	if !s.queued {
		s.queued = true
		b.awake = append(b.awake, s)
	}
}

// plan has the session advanced at a time; zero for never.
func (b *base) plan(s *Session, at time.Time) {
	if s.due = at; at.IsZero() {
		b.due.Remove(s)
		return
	}
	b.due.Set(s)
}

// revalidate has the log show who owns a session before the session answers, because another edge
// may own it.
func (b *base) revalidate(s *Session) {
	s.Log.Revalidate()
	b.wake(s)
}

// revalidateAll revalidates all sessions, after this process was stopped or cut off.
func (b *base) revalidateAll() {
	for _, name := range slices.Sorted(maps.Keys(b.byName)) {
		s := b.byName[name]
		b.revalidate(s)
		s.search.silent = s.search.silent || s.stays() || s.adopting() // a balancer may have moved the flow meanwhile
	}
}

// refreshInterval is the time between two sessions of an edge that write their logs again. A server that lost its logs
// gets three requests for each. An operator waits for a second with each 2,000 sessions before he replaces the next server.
const refreshInterval = time.Second / 2000

// Refresh has sessions write their logs again, because a server lost them: those that lost names.
func (b *base) Refresh(now time.Time, lost func(log string) bool) {
	at := now
	for _, name := range slices.Sorted(maps.Keys(b.byName)) {
		if lost(name) {
			at = at.Add(refreshInterval * time.Duration(b.host.Workers()))
			b.byName[name].Log.Refresh(at)
			b.wake(b.byName[name])
		}
	}
}

// direct reports whether all clients are known to come directly.
func (b *base) direct() bool { return b.detours == 0 && len(b.paths.byAddr) == 0 }

// noteWay notes over which edge a datagram of a client came. Of a carried client, two kinds do not show the way: one that was
// forwarded twice, because the edge that forwarded it last has no connection to the client, and one that may have waited at
// the edge by which the client came until a moment ago.
func (b *base) noteWay(now time.Time, client netip.AddrPort, o orphan) {
	var s *Session
	if o.edge != "" && b.vouched(client) {
		s = b.byAddr[client]
	}
	twice := o.hops > 1
	if s == nil || !twice && (o.edge != s.left || !now.Before(s.leftUntil)) {
		b.notePath(now, client, o.edge)
		return
	}
	if (twice || o.edge != s.path.Edge) && s.stays() { // the client may have left its path, too
		b.seek(now, s)
	}
	b.came, s.search.heard = noWay, now
}

// vouched reports whether only the client itself can send in its name.
func (b *base) vouched(client netip.AddrPort) bool {
	return b.cfg.Vouched != nil && b.cfg.Vouched(client)
}

// notePath notes over which edge a datagram of a client came; empty for none.
func (b *base) notePath(now time.Time, client netip.AddrPort, edge string) {
	b.came = edge
	if edge == "" && b.direct() {
		return
	}
	s := b.byAddr[client]
	if s != nil {
		s.search.heard = now
	}
	switch {
	case s == nil:
		if b.paths.note(now, client, edge) {
			b.counts.PathsDisplaced++
		}
	case s.path.Unknown:
		b.setPath(s, Path{Edge: edge})
		b.wake(s)
	case s.path.Edge != edge && b.vouched(client):
		s.left, s.leftUntil = s.path.Edge, now.Add(lateTime)
		b.setPath(s, Path{Edge: edge})
		b.detour(s, func() { s.others = otherWays{}; s.search.end() })
		b.ask(s) // the datagram may have waited at an edge that was stopped, and the client be elsewhere since
		b.wake(s)
	case s.path.Edge != edge:
		b.detour(s, func() {
			if s.others.note(now, edge) {
				b.ask(s)
			}
		})
	}
}

// ask asks the client of a session by which way it is reached, if it has a connection.
func (b *base) ask(s *Session) {
	if c := s.Log.Conn(); c != nil {
		c.Ask()
	}
}

// confirm takes the answer of a client to a question, the datagram under way. If a search is due and has not begun,
// the question is one from before this edge was stopped, and the answer waited at its socket: the search begins all
// the same.
func (b *base) confirm(s *Session) {
	ways, due := s.others.list, s.search.silent && !s.search.searching()
	switch {
	case b.came == noWay:
	case s.path == Path{Edge: b.came}:
		b.detour(s, func() { s.others.list = nil; s.search.end() })
	case len(ways) == 0:
	case ways[len(ways)-1].answered: // the last is the way by which it came
		b.setPath(s, Path{Edge: b.came})
		b.detour(s, func() { s.others = otherWays{}; s.search.end() })
		b.wake(s)
	default:
		ways[len(ways)-1].answered = true
	}
	s.search.silent = s.search.silent || due
}

// setPath sets the return path to the client of a session.
func (b *base) setPath(s *Session, p Path) {
	s.search.silent = p.Unknown
	p.Unknown = p.Unknown && b.cfg.AnswerOnly
	b.detour(s, func() { s.path = p })
}

// detour changes the ways of a session.
func (b *base) detour(s *Session, change func()) {
	direct := func() bool { return s.path == Path{} && len(s.others.list) == 0 && !s.search.searching() }
	if !direct() {
		b.detours--
	}
	change()
	if !direct() {
		b.detours++
	}
}

// inferPath sets the return path to the client of a session that is taken over to the one by
// which its datagrams came, if any did. A path from before is a guess: the table may have it from a
// session that this edge lost, and the balancer has chosen another edge since.
func (b *base) inferPath(s *Session) {
	if x := b.orphans.byAddr[s.client]; x != nil {
		newest := x.list[len(x.list)-1]
		b.setPath(s, Path{Edge: newest.edge})
		s.search.silent = newest.hops > 1 && b.vouched(s.client)
	} else if p := b.paths.byAddr[s.client]; p != nil && s.path.Edge == "" {
		b.setPath(s, Path{Edge: p.edge})
		s.search.silent = true
	}
}

// hold keeps an orphan datagram. It reports whether it is the first of its client, and
// whether there was room.
func (b *base) hold(now time.Time, from netip.AddrPort, o orphan) (first, ok bool) {
	if first, ok = b.orphans.hold(now, from, o); ok {
		b.counts.OrphansHeld++
	} else {
		b.counts.OrphansDropped++
	}
	return first, ok
}

// forward sends a datagram to the edge that serves its client, or drops one that was forwarded
// too often. It reports false if that edge cannot be reached.
func (b *base) forward(node string, from netip.AddrPort, o orphan) bool {
	if b.cfg.Forward == nil {
		return false
	}
	if o.hops >= hopsMax {
		b.counts.OrphansDropped++
		return true
	}
	if !b.cfg.Forward.Forward(node, b.client(from), o.hops, o.data) {
		return false
	}
	b.counts.OrphansForwarded++
	return true
}

// forwardHeld sends the datagrams that wait to the edge that serves their client. It reports
// false if none waits, or that edge cannot be reached.
func (b *base) forwardHeld(now time.Time, from netip.AddrPort, node string) bool {
	waiting := b.orphans.byAddr[from]
	if waiting == nil || !b.forward(node, from, waiting.list[0]) {
		return false
	}
	for _, o := range b.orphans.remove(from)[1:] {
		b.forward(node, from, o)
	}
	b.hintElsewhere(now, from, node)
	return true
}

// receiveHeld gives the datagrams of a client that wait to the endpoint.
func (b *base) receiveHeld(now time.Time, from netip.AddrPort) {
	for _, o := range b.orphans.remove(from) {
		b.noteWay(now, from, o)
		b.host.Receive(now, from, o.data)
	}
}

func (b *base) pass(worker int, from netip.AddrPort, o orphan) {
	b.host.Pass(worker, from, o.data, o.edge, o.hops)
	b.counts.OrphansForwarded++
}

// reply answers the edge that gave a session to this one: it may forget the session. An edge
// that does not get the session does not answer: the giver waits for ConsentTime and takes the
// session back.
func (b *base) reply(s *Session) {
	b.host.Reply(s.asker)
	s.asker = ""
}

// A tokenBucket bounds how often something is done. The zero value is full.
type tokenBucket struct {
	used float64
	at   time.Time
}

// take takes a token. A bucket gets rate tokens per second, and holds burst of them, or one.
func (b *tokenBucket) take(now time.Time, rate, burst float64) bool {
	b.used = max(0, b.used-rate*max(0, now.Sub(b.at).Seconds()))
	b.at = now
	if b.used+1 > max(1, burst) {
		return false
	}
	b.used++
	return true
}

// A pace spreads work evenly over time.
type pace struct{ next time.Time } // when the next piece may be done

// take reports whether a piece of work may be done, one in each interval. What was not done
// for longer than turnInterval is not made up for.
func (p *pace) take(now time.Time, interval time.Duration) bool {
	if p.next.After(now) {
		return false
	}
	if now.Sub(p.next) > turnInterval {
		p.next = now
	}
	p.next = p.next.Add(interval)
	return true
}
