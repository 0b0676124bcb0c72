package fanout

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/interest"
	"github.com/dnprelay/dnprelay/replication"
)

// reofferInterval is the least time between two attempts to offer states to clients that
// had as many links as they may have. Each attempt costs a search per state.
const reofferInterval = time.Second

// A space is what one worker knows of a space: a replica, the sources that its sessions
// are linked to, and the sessions. It is the replica's observer.
type space struct {
	spaceInfo
	sessions   []*Session
	departures []*departure         // sessions that left; not all have heard of it
	ownByKey   map[string]*ownState // states that sessions of this worker offer
	lost       lostStates
	levels     levels
	near       interests
	sightings  sightings
	emptyAt    time.Time // when a session left last, or the space was needed last
	now        time.Time // of the latest advance
	changed    bool      // values of a state, since then

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
	s.alignResumed(now)
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
	next = s.advanceDepartures(now, next)
	batch := s.changed
	s.changed = false
	next = s.near.advance(now, next, batch)
	next = s.sightings.advance(now, next)
	next = s.advanceReoffer(now, next)
	return s.levels.advance(now, next, batch, s.replica)
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
	s.epoch, s.lost.epoch = epoch, now
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
// former edge of a session knew, and nothing of that may be taken from the client. A session sees only from then
// on, and its first look is before the links that it has are judged.
func (s *space) alignResumed(now time.Time) {
	if !s.replica.Complete() {
		return
	}
	for _, session := range s.sessions {
		if session.unaligned {
			session.unaligned = false
			s.near.see(now, session)
			s.near.advance(now, now, true)
			s.align(session)
			s.sightings.begin(session)
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
	band := s.near.band(session, st)
	gone := !included || band == interest.Beyond
	session.conn.Unlink(src, gone)
	s.linkEnded()
	if gone {
		return
	}
	if _, l := s.ensureSource(session, st, band); l != nil {
		l.copyAll() // the new link must not begin with older values
	}
}

func (s *space) leave(now time.Time, session *Session) {
	s.sessions = slices.DeleteFunc(s.sessions, func(x *Session) bool { return x == session })
	s.near.unsee(session)
	s.sightings.leave(session)
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
	if session.unaligned && st.Desc.Interest != "" {
		return // its bands are not known yet
	}
	s.offerIn(session, st, s.near.band(session, st))
}

// offerIn is offer for a session that has the state in this band. Beyond all bands, a link that the session
// has is put to rest.
func (s *space) offerIn(session *Session, st *replication.State, band interest.Band) {
	if !s.includes(st, session) {
		s.sightings.note(session, st, interest.Beyond)
		return
	}
	if own, ok := s.ownByKey[st.Desc.Key]; ok && own.owner == &session.peer {
		return
	}
	s.sightings.note(session, st, band)
	if _, declined := session.declined[source(st)]; declined {
		return
	}
	if band == interest.Beyond {
		s.rest(session, st)
		return
	}
	to, l := s.ensureSource(session, st, band)
	if len(sourcesOf(st).levels)+len(st.Desc.Details) > 0 {
		if _, from, _ := linkTo(session.conn, st); from != nil {
			s.move(session, from, to, l)
			return
		}
	}
	if s.link(session, st, to) == dnp.ErrLinks {
		s.levels.sweepWanted = true
		session.lacksLinks = true
		s.counts.LinksRefused++
	}
}

// link links a session to a source. A client that has as many links as it may gives one up that sleeps.
func (s *space) link(session *Session, st *replication.State, to *dnp.Source) error {
	readOnly := !session.rights.mayWrite(st)
	err := session.conn.Link(to, readOnly)
	if err == dnp.ErrLinks && s.Endpoint.EndSilent(session.conn) {
		s.linkEnded()
		err = session.conn.Link(to, readOnly)
	}
	return err
}

// rest puts the link of a session to a state that is beyond all bands to sleep, or ends it, as the interest
// says. One whose interest is not known sleeps.
func (s *space) rest(session *Session, st *replication.State) {
	_, from, l := linkTo(session.conn, st)
	r := sourcesOf(st).rule
	switch {
	case from == nil:
	case r != nil && r.says != nil && r.says.Unlink:
		session.conn.Unlink(from, true)
		s.linkEnded()
	case l == nil || !l.asleep:
		l = s.levels.ensure(st, levelKind{asleep: true})
		s.move(session, from, l.source, l)
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

// ensureSource returns what the link of a session to a state in this band is to be bound to, and the
// level if that is not the source with everything. It makes the level if there is none.
func (s *space) ensureSource(session *Session, st *replication.State, band interest.Band) (*dnp.Source, *level) {
	k, ok := s.levelFor(session, st, band)
	if !ok {
		return source(st), nil
	}
	l := s.levels.ensure(st, k)
	return l.source, l
}

// levelFor returns the level that a session gets of a state in this band, or false for everything. What the state
// says about clients and groups replaces what the band says, but for the weight: the nearest band weighs what the
// priority says, the second half of that, the third a third.
func (s *space) levelFor(session *Session, st *replication.State, band interest.Band) (k levelKind, ok bool) {
	divisor := uint8(1)
	var near replication.Band
	if r := sourcesOf(st).rule; r != nil && r.says != nil {
		i := min(int(band), len(r.says.Bands)-1) // until the next look the band may be one of an interest with more bands
		near, divisor = r.says.Bands[i], uint8(i+1)
	}
	if len(st.Desc.Details) > 0 {
		if d, ok := st.Desc.Detail(session.Claims.Client, s.replica.Groups(session.Claims.Client)); ok {
			return detailed(d.Precision, d.Rate, divisor), true
		}
	}
	k = detailed(near.Precision, near.Rate, divisor)
	return k, k != levelKind{factor: 1, divisor: 1}
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
	st.Data = &sources{full: s.levels.newSource(st, st.Values, levelKind{})}
	s.near.put(st)
	if st.Desc.Interest == "" { // else no session has seen it yet
		for _, session := range s.sessions {
			s.offer(session, st)
		}
	}
	s.ownByKey[st.Desc.Key].writeBack(st, nil)
}

// Changed marks what changed, for all links at once.
func (s *space) Changed(st *replication.State, changed netstate.Mask) {
	s.changed = true
	f := sourcesOf(st)
	f.full.ChangedMask(changed)
	if len(f.levels) > 0 {
		s.levels.touch(f, changed)
	}
	if f.object != nil || f.followed != nil {
		s.near.changed(st, f, changed)
	}
	s.ownByKey[st.Desc.Key].writeBack(st, changed)
}

// Described brings the links in line with the message of the state, and with the rights to
// see and write it.
func (s *space) Described(st *replication.State) {
	s.near.put(st)
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
	if epoch, _ := s.replica.Position(); !s.lost.removed(s.now, epoch != s.epoch, st) {
		s.counts.DropsForgotten++
	}
	for _, session := range s.sessions {
		session.writes.discard(src)
		delete(session.declined, src)
		if session.watched != nil {
			session.watched.forget(st)
		}
	}
	s.near.remove(st)
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
				s.sightings.note(session, st, interest.Beyond)
			}
		}
	}
}

// Interest brings the links to states with an interest in line with what it says.
func (s *space) Interest(name string, says *replication.Interest) { s.near.renamed(name, says) }

// Eyes gives clients their eyes. Their links follow with the next look.
func (s *space) Eyes(client string) { s.near.looked(client) }
