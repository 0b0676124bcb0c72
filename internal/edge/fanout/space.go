package fanout

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/replication"
)

// reofferInterval is the least time between two attempts to offer states to clients that
// had as many links as they may have. Each attempt costs a search per state.
const reofferInterval = time.Second

// A space is what one worker knows of a space: a replica, the sources that its sessions
// are linked to, and the sessions. It is the replica's observer.
type space struct {
	spaceInfo
	sessions []*Session
	ownByKey map[string]*ownState // states that sessions of this worker offer
	levels   levels
	emptyAt  time.Time // when a session left last, or the space was needed last
	now      time.Time // of the latest advance

	// Which states clients lack for want of links is not stored: when links have ended,
	// all states are offered to those clients again.
	reoffer   bool // a link ended since the last attempt
	reofferAt time.Time

	history history // for people who ask why a client has what it has
}

// advance sends the requests that are due and returns when the next one is.
func (s *space) advance(now time.Time) time.Time {
	s.now = now
	s.history.begin(now)
	s.noticeEpoch(now)
	if request, ok := s.replica.Advance(now); ok {
		s.repair(request)
	}
	s.alignResumed()
	next := s.emptyAt.Add(s.Linger)
	if len(s.sessions) > 0 {
		next = now.Add(time.Hour)
	}
	if due, ok := s.replica.NextTimeout(); ok {
		next = earlier(next, due)
	}
	for _, session := range s.sessions {
		next = session.advance(now, next)
	}
	next = s.advanceReoffer(now, next)
	return s.levels.advance(now, next, s.replica)
}

func (s *space) repair(request []byte) {
	asked, err := s.Host.Repair(s.now, s.spaceName, s.shard, request)
	if err != nil {
		s.counts.RepairsLost++ // the replica asks again
		return
	}
	s.replica.Shared(asked)
}

// noticeEpoch has a new holder told what only this edge knows.
func (s *space) noticeEpoch(now time.Time) {
	epoch, _ := s.replica.Position()
	if epoch == s.epoch {
		return
	}
	s.epoch, s.oldHolder = epoch, false
	for _, session := range s.sessions {
		session.retell(now)
	}
	s.repeatAll(now)
}

func (s *space) repeatAll(now time.Time) {
	for _, session := range s.sessions {
		session.repeatAll(now)
	}
}

// alignResumed aligns the sessions that were resumed. A replica that is not complete may lack what the
// former edge of a session knew, and nothing of that may be taken from the client.
func (s *space) alignResumed() {
	if !s.replica.Complete() {
		return
	}
	for _, session := range s.sessions {
		if session.unaligned {
			session.unaligned = false
			s.align(session)
		}
	}
}

// align makes the links of a session what they should be.
func (s *space) align(session *Session) {
	for st := range s.replica.All() {
		s.unlinkWrong(session, st, false)
		s.offer(session, st)
	}
}

// unlinkWrong ends the link of a session to a state, if there is one, when the client may no
// longer see the state, or when offer has to make the link anew: because its message or its
// right to write is another, which DNP tells a client only once.
func (s *space) unlinkWrong(session *Session, st *replication.State, newMessage bool) {
	link, src, _ := linkTo(session.conn, st)
	if src == nil {
		return
	}
	included := s.includes(st, session)
	wrongRight := link.ReadOnly == session.rights.mayWrite(st)
	if included && !newMessage && !wrongRight {
		return
	}
	session.conn.Unlink(src, !included)
	s.linkEnded()
	if !included {
		return
	}
	if _, l := s.ensureSource(session, st); l != nil {
		l.copyAll() // the new link must not begin with older values
	}
}

func (s *space) leave(now time.Time, session *Session) {
	s.sessions = slices.DeleteFunc(s.sessions, func(x *Session) bool { return x == session })
	s.emptyAt = now
	s.levels.sweepWanted = true
}

func (s *space) offerAll(session *Session) {
	for st := range s.replica.All() {
		s.offer(session, st)
	}
}

// offer links a session to a state if it belongs to its audience, or moves the link that it
// has to its level of detail. It does nothing to a link that is right, so it can be called
// again. The owner of a state has a link to it already, its own.
func (s *space) offer(session *Session, st *replication.State) {
	if !s.includes(st, session) {
		return
	}
	if own, ok := s.ownByKey[st.Desc.Key]; ok && own.owner == &session.peer {
		return
	}
	if _, declined := session.declined[source(st)]; declined {
		return
	}
	to, l := s.ensureSource(session, st)
	if len(sourcesOf(st).levels)+len(st.Desc.Details) > 0 {
		if _, from, _ := linkTo(session.conn, st); from != nil {
			s.move(session, from, to, l)
			return
		}
	}
	if session.conn.Link(to, !session.rights.mayWrite(st)) == dnp.ErrLinks {
		s.levels.sweepWanted = true
		session.lacksLinks = true
		s.counts.LinksRefused++
	}
}

// includes reports whether a session belongs to the audience of a state. Groups are
// looked up only where they matter, because every state asks for each client that joins.
func (s *space) includes(st *replication.State, session *Session) bool {
	a := &st.Desc.Audience
	if len(a.Groups) == 0 {
		return a.Includes(session.Claims.Client, nil)
	}
	return a.Includes(session.Claims.Client, s.replica.Groups(session.Claims.Client))
}

// ensureSource returns what the link of a session to a state is to be bound to, and the level
// if that is not the source with everything. It makes the level if there is none.
func (s *space) ensureSource(session *Session, st *replication.State) (*dnp.Source, *level) {
	if len(st.Desc.Details) == 0 {
		return source(st), nil
	}
	d, ok := st.Desc.Detail(session.Claims.Client, s.replica.Groups(session.Claims.Client))
	if !ok {
		return source(st), nil
	}
	l := s.levels.ensure(st, d)
	return l.source, l
}

// move binds the link of a session to another source of the state. The level is brought up
// to date before, because a client must not see older values than it has.
func (s *space) move(session *Session, from, to *dnp.Source, l *level) {
	if from == to {
		return
	}
	if l != nil {
		l.copyAll()
	}
	if session.conn.Relink(from, to) == nil {
		s.levels.sweepWanted = true
	}
}

// linkEnded notes that a client has room for another link, and that a level may have lost
// its last one.
func (s *space) linkEnded() {
	s.reoffer = true
	s.levels.sweepWanted = true
}

// advanceReoffer offers everything again to clients that lack links, if that may help, and
// returns when it has to be done.
func (s *space) advanceReoffer(now, next time.Time) time.Time {
	if !s.reoffer {
		return next
	}
	if now.Before(s.reofferAt) {
		return earlier(next, s.reofferAt)
	}
	s.reoffer, s.reofferAt = false, now.Add(reofferInterval)
	for _, session := range s.sessions {
		if session.lacksLinks {
			session.lacksLinks = false
			s.offerAll(session)
		}
	}
	return next
}

// Added makes a source of a new state and offers it.
func (s *space) Added(st *replication.State) {
	st.Data = &sources{full: s.levels.newSource(st, st.Values)}
	for _, session := range s.sessions {
		s.offer(session, st)
	}
	s.ownByKey[st.Desc.Key].writeBack(st, nil)
}

// Changed marks what changed, for all links at once.
func (s *space) Changed(st *replication.State, changed netstate.Mask) {
	f := sourcesOf(st)
	f.full.ChangedMask(changed)
	for _, l := range f.levels {
		l.touch(changed, &s.levels)
	}
	s.ownByKey[st.Desc.Key].writeBack(st, changed)
}

// Described brings the links in line with the message of the state, and with the rights to
// see and write it.
func (s *space) Described(st *replication.State) {
	src := source(st)
	message := s.linkMessage(st.Desc)
	newMessage := !slices.Equal(src.Message(), message)
	for _, session := range s.sessions {
		if newMessage {
			delete(session.declined, src)
		}
		s.unlinkWrong(session, st, newMessage)
	}
	sourcesOf(st).describe(st.Desc, message)
	for _, session := range s.sessions {
		s.offer(session, st)
	}
}

// Removed ends all links to a state.
func (s *space) Removed(st *replication.State) {
	src := source(st)
	s.history.removed(st.Desc.Key, s.now)
	if own, ok := s.ownByKey[st.Desc.Key]; ok && own.number == st.Number {
		own.assertNow(s.now) // the holder believed that the client had left
	}
	for _, session := range s.sessions {
		session.writes.discard(src)
		delete(session.declined, src)
	}
	s.levels.remove(st)
	s.reoffer = true
}

// Groups brings the links of a client in line with its groups.
func (s *space) Groups(client string, groups []string) {
	for _, session := range s.sessions {
		if session.Claims.Client != client {
			continue
		}
		for st := range s.replica.All() {
			if st.Desc.Audience.Includes(client, groups) {
				s.offer(session, st)
			} else {
				s.unlinkWrong(session, st, false)
			}
		}
	}
}

// Interest does nothing: the edge shows states with an interest to all clients of their audience.
func (s *space) Interest(string, *replication.Interest) {}

// Eyes does nothing either.
func (s *space) Eyes(string) {}
