package fanout

import (
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/wire"
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

	lacksLinks  bool                     // not offered all states, because it has as many links as it may
	declined    map[*dnp.Source]struct{} // states that the client does not want
	unsubscribe func()                   // from the messages for this client
}

// Begin serves a client that has logged in: the space hears that it joined, and the
// client is offered what it may see. From then on the session is the connection's Data.
func (s *Session) Begin(now time.Time, conn *dnp.Conn) {
	s.start(conn)
	s.rights.announce(now)
	s.emit(now, replication.Event{Type: replication.EventJoined, Edge: s.Node})
	s.space.offerAll(s)
}

// start binds the session to its connection.
func (s *Session) start(conn *dnp.Conn) {
	s.conn = conn
	conn.SetData(s)
	s.unsubscribe = s.Host.Subscribe(s.Subjects.To(s.spaceName, s.Claims.Client), func(now time.Time, m bus.Msg) {
		if conn.Data() == s { // messages that are in the inbox already outlive unsubscribe
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
// restored; token is the highest token among the numbered messages to the client. Resume
// brings the links in line with what the client may see, and repeats what the client
// wrote and the holder did not acknowledge.
func (s *Session) Resume(now time.Time, conn *dnp.Conn, token uint64) {
	s.start(conn)
	s.messages.lastToken = token
	s.messages.expectQueued()
	s.rights.repeatGroups(now)
	for _, own := range s.ownStates.list {
		if link, ok := conn.LinkOf(own.source); ok {
			own.readOnly = link.ReadOnly
		}
		own.assertNow(now)
	}
	for _, h := range conn.Held() { // before align, which may bind links to other sources, or end them
		if src, ok := conn.SourceOf(h.Link); ok {
			own, _ := src.Data().(*ownState)
			s.writes.writer(src, own).restore(now, h)
		}
	}
	s.space.align(s)
}

// Handle handles an event of the session's connection.
func (s *Session) Handle(now time.Time, ev *dnp.Event) {
	switch ev.Kind {
	case dnp.EventClosed:
		s.closed(now, ev.Reason)
	case dnp.EventMessage:
		if s.SessionEpoch == 0 || !ev.Reliable {
			s.messages.receive(ev)
		}
	case dnp.EventLinkOffered:
		s.ownStates.offered(now, ev)
	case dnp.EventLinkUp:
		s.linked(now, ev)
	case dnp.EventLinkDown:
		s.unlinked(now, ev)
	case dnp.EventUpdate:
		s.updated(now, ev)
	case dnp.EventSent:
		s.messages.sent(ev)
	case dnp.EventRecycle:
		s.emit(now, replication.Event{Type: replication.EventRecycle})
	}
}

// closed ends the session. One that goes on at another edge ends without an event.
func (s *Session) closed(now time.Time, reason dnp.CloseReason) {
	s.conn.SetData(nil)
	s.unsubscribe()
	s.ownStates.removeAll()
	s.writes.discardAll()
	s.space.leave(now, s)
	s.counts.Sessions--
	if reason == dnp.CloseMoved {
		return
	}
	s.messages.clientLeft()
	s.emit(now, replication.Event{Type: replication.EventLeft, Edge: s.Node, Reason: reason.String()})
}

// linked reports a link that came up.
func (s *Session) linked(now time.Time, ev *dnp.Event) {
	if st, ok := stateOf(ev.Source); ok {
		s.emit(now, replication.Event{Type: replication.EventLinked, Key: st.Desc.Key, Link: uint16(ev.Link)})
	}
}

// unlinked reports a link that the client refused, or ends a state that it took back.
func (s *Session) unlinked(now time.Time, ev *dnp.Event) {
	if own, ok := s.ownStates.at(ev.Link); ok && own.source == ev.Source {
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

// updated handles what the client wrote to a link.
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
		s.conn.Refuse(ev.Link, index)
	}
}

// told handles a message on the client's subject: of a game server to the client, or a
// command to end the session.
func (s *Session) told(now time.Time, m bus.Msg) {
	switch m.Header[subject.HeaderControl] {
	case subject.ControlKick:
		s.conn.Close(dnp.CloseKicked)
		s.messages.answer(m.Reply, messageAnswer{})
	case subject.ControlReplaced:
		if s.rights.replaced(now, m) {
			s.conn.Close(dnp.CloseReplaced)
		}
	default:
		s.messages.send(m)
	}
}

// advance makes the requests to the holder that are due and returns when the next one is.
func (s *Session) advance(now, next time.Time) time.Time {
	next = s.writes.advance(now, next)
	next = s.ownStates.advance(now, next)
	return s.rights.advance(now, next)
}

// retell has a new holder told what only this edge knows.
func (s *Session) retell(now time.Time) {
	for _, own := range s.ownStates.list {
		own.assertNow(now)
	}
	s.rights.repeatGroups(now)
}

// repeatAll makes every write, assert and drop due that the holder has not answered.
func (s *Session) repeatAll(now time.Time) {
	s.writes.repeatAll(now)
	s.ownStates.repeatAll(now)
}
