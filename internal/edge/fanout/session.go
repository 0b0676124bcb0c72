package fanout

import (
	"strconv"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/command"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/interest"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
)

// A Session is the presence of one client in a space. It ends with its connection.
type Session struct {
	peer
	space     *space
	rights    rights
	writes    writes
	ownStates ownStates
	messages  messages
	commands  commands
	recycling recycling

	kickReason  string                   // for the event left
	unaligned   bool                     // resumed, and the replica may have missed what the former edge knew
	sight       *interest.Sight          // what the client sees; nil if the space has no interests
	eyes        []*eye                   // of the sight that follow states
	sees        int                      // how many eyes the sight has
	watched     *watched                 // what game servers are told of the sight; nil for nothing
	lacksLinks  bool                     // not offered all states, because it has as many links as it may
	declined    map[*dnp.Source]struct{} // states that the client does not want
	unsubscribe func()                   // from the messages for this client
}

// Begin serves a client that has logged in: the client is offered what it may see, and the holder hears that it is
// there; then game servers do. From then on the session is the connection's Data.
func (s *Session) Begin(now time.Time, conn *dnp.Conn) {
	s.start(conn)
	s.rights.endOthers()
	s.begin(now, s.rights.known())
	s.space.near.see(now, s)
	s.space.offerAll(s)
}

// start binds the session to its connection.
func (s *Session) start(conn *dnp.Conn) {
	s.conn = conn
	conn.SetData(s)
	s.unsubscribe = s.Host.Subscribe(s.Subjects.To(s.spaceName, s.Claims.Client), func(now time.Time, m bus.Msg) {
		if conn.Data() == s && conn.Established() { // messages that are in the inbox already outlive both; another edge may answer them
			s.told(now, m)
		}
	})
	s.space.sessions = append(s.space.sessions, s)
	s.counts.Sessions++
}

// Resolve returns what a link of a connection that is restored is bound to, by the Ref of
// its source; nil if that has ended.
func (s *Session) Resolve(ref uint64) *dnp.Source {
	if ref&ownRef != 0 {
		return s.ownStates.restore(wire.LinkID(ref))
	}
	if st := s.replica.State(ref); st != nil {
		return source(st)
	}
	return nil
}

// Discard ends a session whose connection could not be restored, and which therefore
// never began.
func (s *Session) Discard() { s.ownStates.removeAll() }

// Resume serves a client whose session another edge served, with the connection that was
// restored; token is the highest token among the numbered messages to the client, and progress what the
// log has of its commands. Resume brings the links in line with what the client may see, and repeats what the client
// wrote and the holder did not acknowledge.
func (s *Session) Resume(now time.Time, conn *dnp.Conn, token uint64, progress command.Progress) {
	s.start(conn)
	s.messages.lastToken = token
	s.messages.expectQueued()
	received, _ := conn.NextNumbers()
	s.commands.resume(progress, received)
	s.resume(now)
	s.repeatGroups(now)
	for _, own := range s.ownStates.list {
		if link, ok := conn.LinkOf(own.source); ok {
			own.readOnly = link.ReadOnly
		}
		own.assertNow(now)
	}
	for _, h := range conn.Writes().Held() { // before align, which may bind links to other sources, or end them
		if src, ok := conn.SourceOf(h.Link); ok {
			own, _ := src.Data().(*ownState)
			s.writes.writer(src, own).restore(now, h)
		}
	}
	s.unaligned = true
	s.recycle(now)
	s.space.alignResumed(now)
}

// Handle handles an event of the session's connection.
func (s *Session) Handle(now time.Time, ev *dnp.Event) {
	switch ev.Kind {
	case dnp.EventClosed:
		s.closed(now, ev.Reason)
	case dnp.EventMessage:
		if ev.Reliable {
			s.commands.receive(now, ev)
		} else {
			s.messages.receive(now, ev)
		}
	case dnp.EventLinkOffered:
		s.ownStates.offered(now, ev)
	case dnp.EventLinkUp:
		s.linked(now, ev, replication.EventLinked)
	case dnp.EventLinkPresumed:
		s.linked(now, ev, replication.EventPresumed)
	case dnp.EventLinkDown:
		s.unlinked(now, ev)
	case dnp.EventUpdate:
		s.updated(now, ev)
	case dnp.EventSent:
		s.messages.sent(ev)
	case dnp.EventTooLarge:
		s.tooLarge(now, ev)
	case dnp.EventRecycle:
		s.recycleSoon(now, &s.counts.LinkIDsFew, "")
	case dnp.EventUsedUp:
		s.recycleSoon(now, &s.counts.LinkIDsUsedUp, reasonUsedUp)
	case dnp.EventLap:
		s.recycleSoon(now, &s.counts.Laps, reasonLap)
	}
}

// Deliver returns what game servers get of a reliable message of a durable session that its log has: the
// body, and the headers of a command. The caller must not change the body.
func (s *Session) Deliver(number uint64, data []byte) (body []byte, header map[string]string) {
	return s.commands.deliver(s.space.now, number, data)
}

// tooLarge answers the sender of a message that the client turned out not to take, and reports the first.
func (s *Session) tooLarge(now time.Time, ev *dnp.Event) {
	if s.messages.unsendable(ev) {
		s.emit(now, replication.Event{Type: replication.EventLimited})
	}
	s.commands.unsendable(ev.Token)
}

// closed ends the session. One that goes on at another edge ends without an event.
func (s *Session) closed(now time.Time, reason dnp.CloseReason) {
	s.conn.SetData(nil)
	s.commands.over = true
	s.unsubscribe()
	s.ownStates.removeAll()
	s.writes.discardAll()
	s.space.leave(now, s)
	s.counts.Sessions--
	if reason == dnp.CloseMoved {
		return
	}
	s.messages.clientLeft()
	s.space.depart(now, &s.peer, s.left(reason))
}

// linked reports a link that the client has, or may have. Of a state with an interest, only one that the client may have
// is always reported, because it shows a fault. Clients that walk about get the other links all the time.
func (s *Session) linked(now time.Time, ev *dnp.Event, typ replication.EventType) {
	st, ok := stateOf(ev.Source)
	if !ok {
		return
	}
	if r := sourcesOf(st).rule; typ == replication.EventLinked && r != nil && !r.asks() {
		return
	}
	s.emit(now, replication.Event{Type: typ, Key: st.Desc.Key, Link: uint16(ev.Link)})
}

// unlinked reports a link that the client refused, or ends a state that it took back.
func (s *Session) unlinked(now time.Time, ev *dnp.Event) {
	if own := s.ownStates.at(ev.Link); own != nil && own.source == ev.Source {
		s.ownStates.drop(now, own)
		return
	}
	if st, ok := stateOf(ev.Source); ok {
		s.decline(source(st))
		s.space.linkEnded()
		s.emit(now, replication.Event{Type: replication.EventRejected, Key: st.Desc.Key, Link: uint16(ev.Link)})
	}
}

// decline remembers that the client does not want a state, so that it is not offered again
// whenever something else about it changes. The sources of states that end are taken out,
// so there are no more than the space has states.
func (s *Session) decline(source *dnp.Source) {
	if s.declined == nil {
		s.declined = make(map[*dnp.Source]struct{})
	}
	s.declined[source] = struct{}{}
}

func (s *Session) updated(now time.Time, ev *dnp.Event) {
	if own, ok := ev.Source.Data().(*ownState); ok { // no check of rights: read-only clients have no states of their own
		s.writes.writer(own.source, own).update(now, ev)
		return
	}
	if st := ev.Source.Data().(*replication.State); s.rights.mayWrite(st) {
		s.writes.writer(source(st), nil).update(now, ev)
		return
	}
	s.counts.WritesForbidden++
	for index, _, ok := ev.Update.Next(); ok; index, _, ok = ev.Update.Next() {
		s.conn.Writes().Refuse(ev.Link, index)
		s.writes.refuse(uint32(ev.Number), ev.Link, index, wire.RefusedRights)
	}
}

// told handles a message on the client's subject: of a game server to the client, or a
// command to end the session.
func (s *Session) told(now time.Time, m bus.Msg) {
	switch m.Header[subject.HeaderControl] {
	case subject.ControlKick:
		if only := m.Header[subject.HeaderSession]; only != "" && only != s.ID {
			return
		}
		s.kickReason = strings.ToValidUTF8(string(m.Data[:min(len(m.Data), replication.KickReasonMax)]), "")
		s.conn.Close(dnp.CloseKicked)
		s.messages.answer(m.Reply, messageAnswer{})
	case subject.ControlReplaced:
		if s.rights.replaced(now, m) {
			s.conn.Close(dnp.CloseReplaced)
		}
	default:
		if m.Header[subject.HeaderAnswer] != "" {
			s.commands.told(m)
			return
		}
		s.messages.send(m)
	}
}

// advance ends a session whose time, LinkIds or numbers are over, makes the requests to the holder that are due, and
// returns when there is more to do. What the client writes waits until game servers know of the client.
func (s *Session) advance(now, next time.Time) time.Time {
	if next = s.advanceJoin(now, next); s.announced {
		next = s.writes.advance(now, next)
		next = s.ownStates.advance(now, next)
	}
	next = s.recycling.advance(now, next, s)
	next = s.commands.advance(now, next)
	return s.rights.advance(now, next)
}

func (s *Session) retell(now time.Time) {
	for _, own := range s.ownStates.list {
		own.assertNow(now)
	}
	s.repeatGroups(now)
}

// repeatAll makes every write, assert and drop due that the holder has not answered.
func (s *Session) repeatAll(now time.Time) {
	s.writes.repeatAll(now)
	s.ownStates.repeatAll(now)
}

// A session younger than replaceTime yields only to one that began later, because the two
// may begin without having heard of each other. An older session yields to any other that
// announces itself, whatever the clock of its edge says.
const replaceTime = 2 * time.Second

// rights are what a session may, as its token or the game's service said.
type rights struct {
	*peer
}

// known reports whether a token or the game's service said who the client is.
func (r *rights) known() bool { return !r.Claims.Expires.IsZero() }

// endOthers ends the older sessions of the client, wherever they are: a client is in a space once.
func (r *rights) endOthers() {
	if !r.known() {
		return
	}
	_ = r.Host.Publish(bus.Msg{ // an older session that does not hear it goes on beside this one
		Subject: r.Subjects.To(r.spaceName, r.Claims.Client),
		Header: map[string]string{
			subject.HeaderControl: subject.ControlReplaced, subject.HeaderSession: r.ID,
			subject.HeaderBegan: strconv.FormatInt(r.Began.UnixMicro(), 10),
		},
	})
}

// replaced reports whether the session that announces itself with m replaces this one.
func (r *rights) replaced(now time.Time, m bus.Msg) bool {
	other := m.Header[subject.HeaderSession]
	if other == r.ID || !r.known() {
		return false
	}
	began, err := strconv.ParseInt(m.Header[subject.HeaderBegan], 10, 64)
	mine := r.Began.UnixMicro()
	later := mine > began || mine == began && r.ID > other
	return err != nil || now.Sub(r.Began) >= replaceTime || !later
}

func (r *rights) mayWrite(st *replication.State) bool {
	return r.Claims.Write && st.Desc.Access.MayWrite(r.Claims.Client)
}

// advance ends a session whose time is over, and returns when there is more to do.
func (r *rights) advance(now, next time.Time) time.Time {
	at := r.Claims.Expires
	switch {
	case at.IsZero():
		return next
	case !now.Before(at):
		r.conn.Close(dnp.CloseExpired)
		return next
	}
	return earlier(next, at)
}
