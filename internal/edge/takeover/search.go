package takeover

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// A balancer may let only the answers of the edge through to which it sends the client. A client that only
// listens says nothing by which that edge could be known. So when the way to a client is unknown or may be
// lost, its session searches: the edge asks the client (dnp.Conn.Ask), and sends the question, its repeats, and
// whatever else is reliable, directly and by all other edges, until the answer shows the way.
const (
	searchTime   = 30 * time.Second       // a balancer notices within it that an edge is dead
	watchPause   = time.Second            // between two looks at a way that may end, and between two questions
	spreadPause  = 500 * time.Millisecond // in which spreadMost datagrams of a client go by all edges
	spreadMost   = 4                      // the oldest commands; what is newer waits for them
	searchersMax = 16                     // edges by which one datagram goes; in a larger cluster others take turns
)

// A search looks for the way to the client of a session, and looks after a way that may end.
type search struct {
	silent bool      // nothing showed the way since this edge began to take the session over or was stopped, or the edge on it was lost
	until  time.Time // when to stop; zero while it does not search
	heard  time.Time // when a datagram came last while not all sessions came directly
	look   time.Time // when to look again
	turn   int       // of the edges of a cluster with more than searchersMax

	spread      int // datagrams since spreadSince that went by all edges
	spreadSince time.Time
}

func (s *search) searching() bool { return !s.until.IsZero() }

// begin begins the search, or goes on with it for searchTime.
func (s *search) begin(now time.Time) { s.until, s.look = now.Add(searchTime), now.Add(watchPause) }

// end ends the search.
func (s *search) end() { s.until, s.silent = time.Time{}, false }

// take reports whether one more datagram may go by all edges.
func (s *search) take(now time.Time) bool {
	if now.Sub(s.spreadSince) >= spreadPause {
		s.spread, s.spreadSince = 0, now
	}
	s.spread++
	return s.spread <= spreadMost
}

// seek begins to search for the way to the client of a session.
func (b *base) seek(now time.Time, s *Session) {
	v, able := b.host.View(), b.cfg.Forward != nil && !b.cfg.AnswerOnly
	known := len(v.edges) > 0 || v.alone
	s.search.silent = s.search.silent && able && !known // EdgesKnown goes on
	if !able || !known || s.search.searching() {
		return
	}
	b.counts.WaysSought++
	b.detour(s, func() { s.search.begin(now) })
	b.ask(s)
	b.wake(s)
}

// EdgesKnown searches for the ways to clients that were silent while this edge knew of no other.
func (b *base) EdgesKnown(now time.Time) {
	for _, name := range slices.Sorted(maps.Keys(b.byName)) {
		if s := b.byName[name]; s.search.silent && s.stays() {
			b.seek(now, s)
		}
	}
}

// EdgeLost searches for the ways to the clients that were reached by an edge that is gone or does not answer. A
// session that is being taken over begins its search when it is served.
func (b *base) EdgeLost(now time.Time, node string) {
	if b.detours == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(b.byName)) {
		switch s := b.byName[name]; {
		case s.path.Edge != node:
		case s.stays():
			b.seek(now, s)
		case s.adopting():
			s.search.silent = true
		}
	}
}

// DirectOpened notes that a client made a connection to this edge: no datagram of it is newer. A client that
// resumes may have a session.
func (b *base) DirectOpened(now time.Time, client netip.AddrPort, resumes bool) {
	b.notePath(now, client, "")
	if _, ok := b.cfg.Endpoint.Conn(client); !ok && resumes && b.byAddr[client] == nil {
		b.announce(now, client)
	}
}

// announce tells the edge that has the session of a client where the client is connected. A client that only listens says
// nothing by which that edge could learn it. It gets what the client itself could send, because every edge
// takes that: a sign of life.
func (b *base) announce(now time.Time, client netip.AddrPort) {
	sign := orphan{data: b.cfg.Endpoint.SignOfLife()}
	switch kind, worker, node := b.locations.locate(now, b.client(client)); {
	case kind == placeHere && worker != b.cfg.Worker:
		b.pass(worker, client, sign)
	case kind == placeElsewhere:
		b.forward(node, client, sign)
	case kind == placeUnknown && b.cfg.Affinity != nil && b.mayAsk(now, sign.data):
		b.find(b.name(client), func(now time.Time, s cluster.Served, err error) {
			if err == nil && s.Alive && s.Node != b.cfg.Node && b.forward(s.Node, client, sign) {
				b.hintElsewhere(now, client, s.Node)
			}
		})
	}
}

// DirectLost searches for the way to a client whose connection to this edge ended.
func (b *base) DirectLost(now time.Time, client netip.AddrPort) {
	if s := b.byAddr[client]; s != nil && s.path == (Path{}) && s.stays() {
		b.seek(now, s)
	}
}

// Directly reports whether the client of a session comes to this edge, as far as is known.
func (b *base) Directly(client netip.AddrPort) bool {
	s := b.byAddr[client]
	return s == nil || s.path == (Path{})
}

// Nowhere reports whether no edge has a session of this client.
func (b *base) Nowhere(now time.Time, client netip.AddrPort) bool {
	if s := b.byAddr[client]; s != nil {
		return s.Log.Phase() == sessionlog.Over && s.About.ID == "" // the log said so just now
	}
	kind, _, _ := b.locations.locate(now, b.client(client))
	return kind == placeNowhere
}

// watch looks after the way to the client of a session, and returns when to look again; zero for never.
// While the edge of the path drains, it asks a client that is silent: the answer makes the balancer choose
// another edge as long as this one still reaches the client.
func (b *base) watch(now time.Time, s *Session) time.Time {
	w := &s.search
	switch {
	case !w.searching() && s.path.Edge == "" || !s.stays():
		return time.Time{}
	case w.look.IsZero(): // the way has just become known
		w.look, w.heard = now.Add(watchPause), now
		return w.look
	case w.look.After(now):
		return w.look
	}
	w.look = now.Add(watchPause)
	member, known := b.host.View().roster.Member(s.path.Edge)
	switch {
	case w.searching() && !w.until.After(now):
		b.detour(s, w.end)
	case w.searching():
		w.turn++
		b.ask(s) // if the question was answered, but only once
	case !known || member.Phase == cluster.PhaseStarting:
		b.seek(now, s)
	case member.Phase < cluster.PhaseDraining:
	case now.Sub(w.heard) >= watchPause:
		b.ask(s)
	default:
		w.look = w.heard.Add(watchPause)
	}
	return w.look
}

// bySearch sends a datagram of a session that searches directly and by other edges, but not by its ways, if it is
// among the first.
func (t *Takeover) bySearch(s *Session, epoch uint64, p []byte) {
	if !s.search.searching() || !s.search.take(t.turned) {
		return
	}
	if s.path.Edge != "" && !s.others.has(t.turned, "") {
		t.host.Direct(s.client, p)
	}
	edges := t.host.View().edges
	for i := range min(len(edges), searchersMax) {
		if node := edges[(s.search.turn*searchersMax+i)%len(edges)]; node != s.path.Edge && !s.others.has(t.turned, node) {
			t.cfg.Forward.Return(node, t.client(s.client), epoch, p)
		}
	}
}
