package edge

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/replication"
)

// resolve finds what a link of a session that is taken over is bound to.
func (s *session) resolve(ref uint64) *dnp.Source {
	if ref&ownRef != 0 {
		return s.restoreOwn(wire.LinkID(ref))
	}
	if st := s.space.replica.State(ref); st != nil {
		return source(st)
	}
	return nil
}

// restoreOwn makes a state that the client offers anew, from what the holder has of it.
func (s *session) restoreOwn(link wire.LinkID) *dnp.Source {
	if own, ok := s.ownAt(link); ok {
		return own.source
	}
	st := s.space.replica.ByKey(ownKey(s.client, link))
	if st == nil {
		return nil // the holder never heard of it
	}
	layout := st.Values.Layout()
	state := netstate.NewState(layout)
	for i := range layout.Len() {
		state.Set(i, st.Values.Value(i))
	}
	own := &ownState{session: s, link: link, key: st.Desc.Key, message: slices.Clone(st.Desc.Message)}
	own.newSource(state)
	own.keep()
	return own.source
}

// resume brings a session up to date that was taken over: its rights, the states that it
// should see, and what the client wrote that nobody acknowledged.
func (s *session) resume(now time.Time, c *auth.Claims) {
	s.may = rights{known: !c.Expires.IsZero(), readOnly: !c.Write, expires: c.Expires, groups: c.Groups}
	s.space.w.expects(c.Expires)
	s.groupsAgain(now)
	for _, own := range s.own {
		if link, ok := s.conn.LinkOf(own.source); ok {
			own.readOnly = link.ReadOnly
		}
		own.assert(now)
	}
	sp := s.space
	sp.sessions = append(sp.sessions, s)
	for st := range sp.replica.All() {
		sp.bringInLine(s, st)
	}
	for _, h := range s.conn.Held() {
		if src, ok := s.conn.SourceOf(h.Link); ok {
			own, _ := src.Data().(*ownState)
			s.writer(src, own).again(now, h)
		}
	}
}

// bringInLine makes the link of a session to a state what it should be.
func (s *space) bringInLine(session *session, st *replication.State) {
	link, linked, _ := session.linkTo(st)
	if linked != nil && (!s.includes(st, session) || link.ReadOnly == session.mayWrite(st)) {
		s.unlink(session, st, !s.includes(st, session))
	}
	s.offer(session, st)
}
