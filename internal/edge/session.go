package edge

import (
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/internal/edge/takeover"
	"github.com/dnprelay/dnprelay/replication"
)

// A session is the presence of one client in a space.
type session struct {
	space  *space
	conn   *dnp.Conn
	id     string // unique for ever
	client string // the client's name
	began  time.Time
	may    rights

	own     []*ownState // states that the client offers
	drops   []*drop     // of states that it took back
	writers map[*dnp.Source]*writer
	written int    // bytes in writers
	writes  uint32 // numbered by this edge, if a log knows the session

	short    bool                     // not offered all states, for want of links
	declined map[*dnp.Source]struct{} // states that the client does not want

	replies   map[uint64]string // reply subjects of messages that have no number yet, by token
	lastToken uint64

	unsubscribe func() // from the messages for this client

	durable *takeover.Session // nil if the session ends with this edge
}

// connected begins the session of a peer that proved its address.
func (w *Worker) connected(now time.Time, conn *dnp.Conn) {
	if w.takeover != nil {
		claims := w.identity(conn)
		conn.SetData(nil)
		w.takeover.Connected(now, conn, w.edge.cfg.NewID(), claims)
		return
	}
	claims := w.identity(conn)
	s := newSession(w.space(claims.Space), conn, w.edge.cfg.NewID(), claims.Client, now)
	w.begun(s)
	s.give(now, claims)
	s.emit(now, replication.Event{Type: replication.EventJoined, Edge: w.edge.cfg.Node})
	s.space.enter(s)
}

func newSession(sp *space, conn *dnp.Conn, id, client string, began time.Time) *session {
	return &session{
		space: sp, conn: conn, id: id, client: client, began: began,
		writers: make(map[*dnp.Source]*writer), replies: make(map[uint64]string),
	}
}

// begun makes a session known to the edge and to those who have messages for it.
func (w *Worker) begun(s *session) {
	s.conn.SetData(s)
	w.edge.roll.enter(s.conn.Addr().Addr())
	s.unsubscribe = w.edge.feeds.client(s)
	w.counts.Sessions++
}

// closed ends the session. One that lives on elsewhere ends without a word.
func (s *session) closed(now time.Time, reason dnp.CloseReason) {
	s.conn.SetData(nil)
	s.edge().roll.leave(s.conn.Addr().Addr())
	s.unsubscribe()
	for len(s.own) > 0 {
		s.own[0].forget() // the holder does the same when it hears that the session left
	}
	s.space.leave(now, s)
	s.space.w.counts.Sessions--
	if reason == dnp.CloseMoved {
		return
	}
	s.answerWaiting()
	s.emit(now, replication.Event{Type: replication.EventLeft, Edge: s.edge().cfg.Node, Reason: reason.String()})
}

// linked reports a link that came up.
func (s *session) linked(now time.Time, ev *dnp.Event) {
	if st, ok := stateOf(ev.Source); ok {
		s.emit(now, replication.Event{Type: replication.EventLinked, Key: st.Desc.Key, Link: uint16(ev.Link)})
	}
}

// unlinked reports a link that the client refused, or ends a state that it took
// back.
func (s *session) unlinked(now time.Time, ev *dnp.Event) {
	if own, ok := s.ownAt(ev.Link); ok && own.source == ev.Source {
		s.drop(now, own)
		return
	}
	if st, ok := stateOf(ev.Source); ok {
		s.decline(source(st))
		s.space.shortage.ended, s.space.levels.ended = true, true
		s.emit(now, replication.Event{Type: replication.EventRejected, Key: st.Desc.Key, Link: uint16(ev.Link)})
	}
}

// updated takes what the client wrote to a link.
func (s *session) updated(now time.Time, ev *dnp.Event) {
	if own, ok := ev.Source.Data().(*ownState); ok { // one that may not write has none
		s.writer(own.source, own).take(now, ev)
		return
	}
	st, ok := stateOf(ev.Source)
	if ok && s.mayWrite(st) {
		s.writer(source(st), nil).take(now, ev)
		return
	}
	s.space.w.counts.WritesForbidden++
	for index, _, ok := ev.Update.Next(); ok; index, _, ok = ev.Update.Next() {
		s.conn.Refuse(ev.Link, index)
	}
}

// emit publishes an event about this session.
func (s *session) emit(now time.Time, ev replication.Event) {
	ev.Space, ev.Client, ev.Session, ev.Time = s.space.name, s.client, s.id, now
	ev.Epoch, ev.Seq = s.space.replica.Position()
	s.space.w.emit(ev)
}

func (s *session) edge() *Edge { return s.space.w.edge }

// nextWrite numbers the write requests about states of this session. The holder takes
// no write whose number is below one of the same session, so the numbers of an edge
// that takes a session over begin above those of the edge before.
func (s *session) nextWrite() uint32 {
	if s.durable == nil {
		return s.space.w.nextWrite()
	}
	s.writes++
	return uint32(s.durable.Epoch())<<24 + s.writes
}

// stateOf returns the replicated state behind a source. It reports false for none
// and for a client's own state.
func stateOf(src *dnp.Source) (*replication.State, bool) {
	if src == nil {
		return nil, false
	}
	st, ok := src.Data().(*replication.State)
	return st, ok
}
