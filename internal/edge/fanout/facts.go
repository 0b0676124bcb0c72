package fanout

import (
	"math"
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/interest"
	"github.com/dnprelay/dnprelay/internal/inspect"
	"github.com/dnprelay/dnprelay/replication"
)

// removedMax is how many states that ended a space remembers, so that people learn that a state
// was removed and not that it never was.
const removedMax = 64

// A history is what a space remembers only for people.
type history struct {
	began time.Time // when the space was advanced first
	heard time.Time // when a head of the holder came last
	ended []ending  // the last removedMax states that ended, oldest first
}

type ending struct {
	key string
	at  time.Time
}

func (h *history) begin(now time.Time) {
	if h.began.IsZero() {
		h.began = now
	}
}

func (h *history) removed(key string, at time.Time) {
	if len(h.ended) >= removedMax {
		h.ended = append(h.ended[:0], h.ended[1:]...)
	}
	h.ended = append(h.ended, ending{key, at})
}

// removal returns when a state ended last.
func (h *history) removal(key string) (at time.Time, ok bool) {
	for i := len(h.ended) - 1; i >= 0; i-- {
		if h.ended[i].key == key {
			return h.ended[i].at, true
		}
	}
	return at, false
}

// unheard returns for how long the holder has said nothing.
func (h *history) unheard(now time.Time) time.Duration {
	if h.heard.IsZero() {
		return since(now, h.began)
	}
	return since(now, h.heard)
}

// since returns the time from at until now; 0 if at is zero.
func since(now, at time.Time) time.Duration {
	if at.IsZero() {
		return 0
	}
	return max(0, now.Sub(at))
}

// An Inquiry finds the sessions of a client in a space and what the worker knows about them and
// one state, in steps that are done on several turns of the worker. It changes nothing.
type Inquiry struct {
	scan
	client, key string
	found       []*Session // no more than inspect.SessionsMax
	all         []*inspect.EdgeFacts
}

// Inquire begins to look for the sessions of a client in a space.
func (s *Spaces) Inquire(name, client, key string) *Inquiry {
	return &Inquiry{scan: s.scan(name), client: client, key: key}
}

// Step does a part of the work, and reports whether all of it is done.
func (i *Inquiry) Step(now time.Time) (done bool) {
	left := stepCost
	more := i.next(&left, func(s *Session) {
		if s.Claims.Client == i.client && len(i.found) < inspect.SessionsMax {
			i.found = append(i.found, s)
		}
	})
	if more {
		return false
	}
	for _, s := range i.found {
		if s.conn.Data() == s {
			i.all = append(i.all, s.space.facts(now, s, i.key))
		}
	}
	return true
}

// Facts returns what was found, for each session of the client, when Step says that all is done. Lists in them
// belong to the replica, and are valid in the same turn.
func (i *Inquiry) Facts() []*inspect.EdgeFacts { return i.all }

// A scan looks at all sessions of a space, a few at a time, from the last to the first: when a
// session ends, those behind it move to the front, so a scan may see one again and misses none.
type scan struct {
	space *space // nil if the space is not followed
	left  int
}

func (s *Spaces) scan(name string) scan {
	sp := s.byName[name]
	if sp == nil {
		return scan{}
	}
	return scan{sp, len(sp.sessions)}
}

// next looks at sessions until the work of a step is done, and reports whether there are more.
func (c *scan) next(left *int, look func(*Session)) (more bool) {
	if c.space == nil {
		return false
	}
	for c.left = min(c.left, len(c.space.sessions)); *left > 0 && c.left > 0; *left -= sessionCost {
		c.left--
		look(c.space.sessions[c.left])
	}
	return c.left > 0
}

// The work of one step, so that the turn of a worker takes no longer than 0.2 ms for it, in units
// of a link that is counted (BenchmarkInquiry, BenchmarkListing).
const (
	stepCost    = 12_288
	sessionCost = 32  // to compare the name of a client
	offerCost   = 300 // to give a client to a page
	entryCost   = 400 // to describe a client, besides its links
)

func (s *space) facts(now time.Time, session *Session, key string) *inspect.EdgeFacts {
	f := &inspect.EdgeFacts{
		Edge: s.Node, Session: session.ID, Age: inspect.Millis(since(now, session.Began)),
		Unheard: inspect.Millis(s.history.unheard(now)), Followed: inspect.Millis(since(now, s.history.began)),
		Whole: s.replica.Complete(), Unaligned: session.unaligned,
	}
	f.Epoch, f.Seq = s.replica.Position()
	survey := s.Endpoint.Survey(now, session.conn)
	f.Path, f.Links = pathFacts(&survey), linkCounts(&survey)
	if at, ok := s.history.removal(key); ok {
		ago := inspect.Millis(since(now, at))
		f.Removed = &ago
	}
	own, owned := s.ownByKey[key]
	f.Own = owned && own.owner == &session.peer
	st := s.replica.ByKey(key)
	switch {
	case f.Own:
		f.Link = session.linkFacts(now, own.source, own.source)
	case st == nil:
		return f
	default:
		_, src, level := linkTo(session.conn, st)
		f.State = s.stateFacts(now, session, st, level)
		f.Link = session.linkFacts(now, src, source(st))
		_, f.Declined = session.declined[source(st)]
		f.NoRoom = f.Link == nil && f.State.Included && session.lacksLinks
	}
	return f
}

// stateFacts returns what a state says about a client that is shown a level of it, or everything.
func (s *space) stateFacts(now time.Time, session *Session, st *replication.State, l *level) *inspect.StateFacts {
	d, client := st.Desc, session.Claims.Client
	member := s.replica.Groups(client)
	f := &inspect.StateFacts{
		Audience: audiences[d.Audience.Kind], Groups: d.Audience.Groups, Member: member, Included: d.Audience.Includes(client, member),
		Priority: max(1, int(d.Priority)), Values: st.Values.Layout().Len(),
	}
	for _, c := range d.Audience.Clients {
		f.Named = f.Named || c == client
	}
	band := s.near.band(session, st)
	f.Sight = s.near.facts(session, st, band, l != nil && l.asleep)
	if k, ok := s.levelFor(session, st, band); ok && band != interest.Beyond && (k.factor > 1 || k.period > 0) {
		f.Level = &inspect.Level{Precision: k.factor}
		if k.period > 0 {
			f.Level.Rate = rounded(float32(time.Second) / float32(k.period))
		}
		if l != nil {
			f.Level.Lacks = l.behind()
			f.Level.Next = inspect.Millis(max(0, time.Duration(l.dueAt-now.UnixNano())))
		}
	}
	return f
}

// facts returns how near a state with an interest is to a session.
func (n *interests) facts(session *Session, st *replication.State, band interest.Band, asleep bool) *inspect.Sight {
	src := sourcesOf(st)
	if src.rule == nil {
		return nil
	}
	f := &inspect.Sight{Asleep: asleep, Eyes: session.sees}
	if !replication.IsInline(src.rule.name) {
		f.Interest = src.rule.name
	}
	if src.object == nil {
		return f
	}
	bands := src.rule.says.Bands
	f.Bands = len(bands)
	last := f.Bands - 1
	if band != interest.Beyond {
		last = min(int(band), last)
		f.Band = last + 1
	}
	f.Within = bands[last].Within
	if session.sight != nil {
		if d := n.bander.Distance(session.sight, src.object); !math.IsInf(d, 0) {
			f.Distance = &d
		}
	}
	return f
}

var audiences = map[replication.AudienceKind]string{
	replication.AudienceNone: "none", replication.AudienceAll: "all", replication.AudienceListed: "listed", replication.AudienceAllBut: "all_but",
}

// behind returns how many values of a level differ from the state's.
func (l *level) behind() (n int) {
	sourcesOf(l.st).settle()
	for i, ok := l.lacks.Next(0); ok; i, ok = l.lacks.Next(i + 1) {
		if string(l.values.Value(i)) != string(l.st.Values.Value(i)) {
			n++
		}
	}
	return n
}

var phases = map[dnp.LinkPhase]string{dnp.LinkQueued: "queued", dnp.LinkOffered: "offered", dnp.LinkPresumed: "presumed", dnp.LinkUp: "up"}

// linkFacts returns what the connection knows about a link; nil without one. Writes are kept
// under another source than the link if the client sees the state in less detail.
func (s *Session) linkFacts(now time.Time, src, written *dnp.Source) *inspect.LinkFacts {
	if src == nil {
		return nil
	}
	l, ok := s.Endpoint.SurveyLink(now, s.conn, src)
	if !ok {
		return nil
	}
	f := &inspect.LinkFacts{
		ID: uint16(l.ID), Phase: phases[l.Phase], ReadOnly: l.ReadOnly, Proven: l.Proven, Ahead: l.Ahead,
		Held: l.Held, Newest: l.Newest, Lacks: l.Lacks, Waits: l.Waits, Waiting: inspect.Millis(l.Waiting),
		Quiet: maybe(l.Quiet), Refresh: maybe(l.Refresh), Scrub: maybe(l.Scrub),
	}
	if w, ok := s.writes.bySource[written]; ok {
		f.Writes = len(w.values)
	}
	return f
}

// maybe returns nil for a time that never comes.
func maybe(d time.Duration) *inspect.Millis {
	if d < 0 {
		return nil
	}
	m := inspect.Millis(d)
	return &m
}

func pathFacts(s *dnp.ConnSurvey) inspect.PathFacts {
	return inspect.PathFacts{
		Heard: inspect.Millis(s.Heard), Loss: rounded(s.Loss), RTT: inspect.Millis(s.RoundTrip), Rate: s.Rate,
		Slowed: rounded(s.Slowed), Used: rounded(s.Used), Away: s.Blocked,
	}
}

// rounded returns a share with three decimals.
func rounded(x float32) float64 { return float64(int(1000*x+0.5)) / 1000 }

func linkCounts(s *dnp.ConnSurvey) *inspect.Links {
	return &inspect.Links{
		Up: s.Up, Offered: s.Offered, Queued: s.Queued, Own: s.Own, Max: s.LinksMax, IDsLeft: s.IDsLeft,
		Waiting: s.Waiting, Oldest: inspect.Millis(s.OldestWait),
	}
}

// A Listing makes one page of the sessions in a space, in steps that are done on several turns of
// the worker. Sessions that end meanwhile are left out.
type Listing struct {
	scan
	page     *inspect.Page[*Session]
	query    inspect.Query
	nearby   nearby
	chosen   []*Session // of the page, that were not surveyed; nil before all names were compared
	describe func(c *inspect.Client, addr netip.AddrPort)
	list     inspect.List[inspect.Client]
}

// List begins a page of the sessions in a space. describe adds what only the worker knows about a
// client at an address.
func (s *Spaces) List(name string, q inspect.Query, describe func(c *inspect.Client, addr netip.AddrPort)) *Listing {
	l := &Listing{scan: s.scan(name), page: inspect.NewPage[*Session](q), query: q, describe: describe}
	l.nearby = nearby{space: l.space, query: &l.query}
	return l
}

// Step does a part of the work, and reports whether the page is complete.
func (l *Listing) Step(now time.Time) (done bool) {
	left := stepCost
	if l.query.Selects() {
		l.nearby.aim()
	}
	if l.chosen == nil {
		more := l.next(&left, func(s *Session) {
			if l.query.Selects() {
				is, cost := l.nearby.selects(s)
				if left -= cost; !is {
					return
				}
			}
			left -= offerCost
			l.page.Offer(inspect.ClientName(s.Claims.Client, s.ID), s)
		})
		if more {
			return false
		}
		l.chosen, l.list.Next = l.page.Values(), l.page.Next()
	}
	for ; len(l.chosen) > 0 && left > 0; l.chosen = l.chosen[1:] {
		s := l.chosen[0]
		if s.conn.Data() != s {
			continue // it has ended
		}
		left -= entryCost + s.Endpoint.SurveyCost(s.conn)
		c := s.entry(now, l.describe)
		if l.query.Selects() {
			x, cost := l.nearby.look(s)
			left -= cost
			c.Near = &x
		}
		l.list.Entries = append(l.list.Entries, c)
	}
	return len(l.chosen) == 0
}

// Nowhere returns why no client is near the place of the query, or sees its state; empty if there may be some.
func (l *Listing) Nowhere() string { return l.nearby.nowhere }

// Page returns the page when Step says that it is complete.
func (l *Listing) Page() inspect.List[inspect.Client] { return l.list }

func (s *Session) entry(now time.Time, describe func(*inspect.Client, netip.AddrPort)) inspect.Client {
	survey := s.Endpoint.Survey(now, s.conn)
	c := inspect.Client{
		Client: s.Claims.Client, Session: s.ID, Edge: s.Node, Age: inspect.Millis(since(now, s.Began)),
		Links: *linkCounts(&survey), Path: pathFacts(&survey), Declined: len(s.declined), Writes: len(s.writes.list),
	}
	describe(&c, s.conn.Addr())
	return c
}
