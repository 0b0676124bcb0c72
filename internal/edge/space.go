package edge

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/replication"
)

// A space is what one worker knows of a space: a replica, the sources that its
// sessions are linked to, and the sessions. It is the replica's observer.
type space struct {
	w       *Worker
	name    string
	shard   int
	replica *replication.Replica
	epoch   uint64 // of the replica, to notice a new one

	sessions []*session
	own      map[string]*ownState // by key; states that sessions of this worker offer
	writers  []*writer            // that have something to be settled
	written  map[*dnp.Source]int  // how many of them are of a state
	emptyAt  time.Time            // when the last session left
	shortage shortage
	levels   levels
	now      time.Time // of the last turn
}

// space returns the space with this name, and follows it from now on.
func (w *Worker) space(name string) *space {
	if s, ok := w.spaces[name]; ok {
		return s
	}
	s := &space{w: w, name: name, shard: cluster.Shard(name, w.edge.cfg.Shards), own: make(map[string]*ownState), written: make(map[*dnp.Source]int)}
	s.replica = replication.NewReplica(name, replication.ReplicaConfig{}, s)
	w.spaces[name] = s
	w.order = append(w.order, s)
	w.edge.feeds.follow(s)
	return s
}

// forgetSpaces drops the spaces that have had no session for some time.
func (w *Worker) forgetSpaces(now time.Time) {
	w.order = slices.DeleteFunc(w.order, func(s *space) bool {
		if len(s.sessions) > 0 || now.Before(s.emptyAt.Add(w.edge.cfg.Linger)) {
			return false
		}
		w.edge.feeds.unfollow(s)
		telemetry.Sum(&w.past, s.replica.Stats())
		delete(w.spaces, s.name)
		for st := range s.replica.All() {
			source(st).Remove()
			s.endLevels(st, func(*level) bool { return true })
		}
		return true
	})
}

// advance sends the requests that are due and returns when the next one is.
func (s *space) advance(now time.Time) time.Time {
	s.now = now
	s.noticeEpoch(now)
	if request, ok := s.replica.Advance(now); ok {
		s.w.edge.feeds.repair(s, request)
	}
	next := s.emptyAt.Add(s.w.edge.cfg.Linger)
	if len(s.sessions) > 0 {
		next = now.Add(time.Hour)
	}
	if due, ok := s.replica.NextTimeout(); ok {
		next = earlier(next, due)
	}
	next = earlier(next, s.advanceWriters(now))
	for _, session := range s.sessions {
		next = session.advanceOwn(now, next)
		next = session.advanceGroups(now, next)
	}
	return s.advanceLevels(now, s.advanceShortage(now, next))
}

// noticeEpoch asserts to a new holder what only this edge knows.
func (s *space) noticeEpoch(now time.Time) {
	epoch, _ := s.replica.Position()
	if epoch == s.epoch {
		return
	}
	s.epoch = epoch
	for _, session := range s.sessions {
		for _, own := range session.own {
			own.assert(now)
		}
		session.groupsAgain(now)
	}
	s.askAgain(now)
}

// askAgain makes every request due that the holder has not answered.
func (s *space) askAgain(now time.Time) {
	for _, wr := range s.writers {
		if !wr.repeat.due.IsZero() {
			wr.repeat.want(now)
		}
	}
	for _, session := range s.sessions {
		for _, own := range session.own {
			if !own.repeat.due.IsZero() {
				own.repeat.want(now)
			}
		}
		for _, d := range session.drops {
			d.repeat.want(now)
		}
	}
}

// enter adds a session and offers it what it may see.
func (s *space) enter(session *session) {
	s.sessions = append(s.sessions, session)
	s.offerAll(session)
}

func (s *space) offerAll(session *session) {
	for st := range s.replica.All() {
		s.offer(session, st)
	}
}

// leave removes a session.
func (s *space) leave(now time.Time, gone *session) {
	s.sessions = slices.DeleteFunc(s.sessions, func(x *session) bool { return x == gone })
	for _, wr := range gone.writers {
		wr.values = nil
	}
	s.writers = slices.DeleteFunc(s.writers, (*writer).idle)
	s.emptyAt, s.levels.ended = now, true
}

// offer links a session to a state if it belongs to its audience, or moves the link
// that it has to its level of detail. The owner of a state has a link to it already,
// its own.
func (s *space) offer(session *session, st *replication.State) {
	if !s.includes(st, session) {
		return
	}
	if own, ok := s.own[st.Desc.Key]; ok && own.session == session {
		return
	}
	if _, declined := session.declined[source(st)]; declined {
		return
	}
	if len(st.Data.(*fanout).levels)+len(st.Desc.Details) > 0 {
		if _, from, _ := session.linkTo(st); from != nil {
			to, l := s.sourceFor(session, st)
			s.move(session, from, to, l)
			return
		}
	}
	to, _ := s.sourceFor(session, st)
	err := session.conn.Link(to, !session.mayWrite(st))
	if err == dnp.ErrLinks {
		s.levels.ended = true
		session.short = true
		s.w.counts.LinksRefused++
	}
}

// includes reports whether a session belongs to the audience of a state. Groups are
// looked up only where they matter, because a client that joins is asked about for
// every state.
func (s *space) includes(st *replication.State, session *session) bool {
	a := &st.Desc.Audience
	if len(a.Groups) == 0 {
		return a.Includes(session.client, nil)
	}
	return a.Includes(session.client, s.replica.Groups(session.client))
}

// Added makes a source of a new state and offers it.
func (s *space) Added(st *replication.State) {
	st.Data = &fanout{full: s.newSource(st, st.Values)}
	for _, session := range s.sessions {
		s.offer(session, st)
	}
	s.writeBack(st, nil)
}

// Changed marks what changed, for all links at once.
func (s *space) Changed(st *replication.State, changed netstate.Mask) {
	f := st.Data.(*fanout)
	f.full.ChangedMask(changed)
	for _, l := range f.levels {
		l.touch(changed)
	}
	s.writeBack(st, changed)
}

// Described brings the links in line with who may see and write the state. A
// link whose message or write right changed is made anew, because DNP tells a
// client those things only once.
func (s *space) Described(st *replication.State) {
	src := source(st)
	described := !slices.Equal(src.Message(), st.Desc.Message)
	for _, session := range s.sessions {
		if described {
			delete(session.declined, src)
		}
		link, linked, _ := session.linkTo(st)
		if linked == nil {
			continue
		}
		included := s.includes(st, session)
		if !included || described || link.ReadOnly == session.mayWrite(st) {
			s.unlink(session, st, !included)
			if _, l := s.sourceFor(session, st); l != nil {
				l.all() // the new link must not begin with older values
			}
		}
	}
	f := st.Data.(*fanout)
	describe(f.full, st)
	for _, l := range f.levels {
		describe(l.source, st)
	}
	for _, session := range s.sessions {
		s.offer(session, st)
	}
}

// describe tells a source what is new about its state.
func describe(src *dnp.Source, st *replication.State) {
	src.SetDescription(st.Desc.Message, st.Desc.Farewell)
	src.SetPriority(st.Desc.Priority)
}

// Removed takes all links to a state down.
func (s *space) Removed(st *replication.State) {
	src := source(st)
	if own, ok := s.own[st.Desc.Key]; ok && own.number == st.Number {
		own.assert(s.now) // the holder took its client for gone
	}
	s.forgetWriters(src)
	for _, session := range s.sessions {
		delete(session.declined, src)
	}
	src.Remove()
	s.endLevels(st, func(*level) bool { return true })
	s.shortage.ended = true
}

// Groups brings the links of a client in line with its groups.
func (s *space) Groups(client string, groups []string) {
	for _, session := range s.sessions {
		if session.client != client {
			continue
		}
		for st := range s.replica.All() {
			if st.Desc.Audience.Includes(client, groups) {
				s.offer(session, st)
			} else {
				s.unlink(session, st, true)
			}
		}
	}
}

// source returns what the links to a state are bound to of those who are told
// everything. It names the state where sessions remember something about it.
func source(st *replication.State) *dnp.Source { return st.Data.(*fanout).full }
