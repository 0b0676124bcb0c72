package edge

import (
	"net/netip"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// spacePatience is how long a session that was found waits for the states of its space.
// Without them its links would end, and its client would see every state go and come. A
// client that has something to say gives up after three seconds; one that only listens
// can wait.
const spacePatience = 10 * time.Second

// found looks at a session that may be taken over.
func (k *keeper) found(now time.Time, x *kept, a sessionlog.Action) {
	about, ok := parseAbout(a.Info.About)
	e := k.w.edge
	switch {
	case !ok:
		e.cfg.Log.Warn("a session cannot be taken over: its description cannot be read", "log", x.name)
		k.drop(x)
		return
	case about.Listener != k.w.listener: // nobody knew which it is
		k.drop(x)
		k.w.edge.adoptAt(about.Listener, x.name)
		return
	case x.unsure && a.Node != e.cfg.Node && e.roster.alive(a.Node) && k.leaveTo(now, x, a):
		return
	}
	if x.addr = a.Info.Addr; k.byAddr[x.addr] != nil && k.byAddr[x.addr] != x {
		k.drop(x)
		return
	}
	k.heard(x)
	k.enter(x)
	x.about, x.until = about, now.Add(spacePatience)
	sp := k.w.space(about.Space)
	if len(sp.sessions) == 0 {
		sp.emptyAt = now // it is needed soon
	}
	k.waiting = append(k.waiting, x)
}

// leaveTo leaves a session to the edge that has it.
func (k *keeper) leaveTo(now time.Time, x *kept, a sessionlog.Action) bool {
	if !x.addr.IsValid() {
		k.drop(x)
		return true
	}
	if !k.forwardHeld(now, x.addr, a.Node) {
		return false
	}
	k.drop(x)
	return true
}

// drop forgets a session that was looked at.
func (k *keeper) drop(x *kept) {
	x.dropped = true
	k.forget(x)
}

// advanceWaiting claims the sessions whose spaces are there.
func (k *keeper) advanceWaiting(now, next time.Time) time.Time {
	k.waiting = slices.DeleteFunc(k.waiting, func(x *kept) bool {
		switch sp := k.w.space(x.about.Space); {
		case x.dropped || x.core.Phase() != sessionlog.Found:
			return true
		case sp.replica.Complete():
			x.core.Claim()
			k.wake(x)
			return true
		case !now.Before(x.until):
			k.drop(x)
			return true
		}
		next = earlier(next, x.until)
		return false
	})
	return next
}

// adopted goes on with a session that is this edge's from here on.
func (k *keeper) adopted(now time.Time, x *kept) {
	w := k.w
	s := newSession(w.space(x.about.Space), nil, x.about.ID, x.about.Client, time.UnixMicro(x.about.Began))
	s.kept = x
	s.conn = x.core.Restore(now, w.ep, s.resolve)
	if s.conn == nil {
		for len(s.own) > 0 {
			s.own[0].forget()
		}
		return // the next action says why
	}
	w.counts.SessionsAdopted++
	x.session = s
	s.lastToken = x.core.Token()
	s.expectQueued()
	x.follow()
	w.begun(s)
	s.resume(now, x.about.claims())
	k.claim(x)
	k.letIn(now, x.addr)
	x.answerAsker()
}

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

// Keeps reports whether the worker owns the session of a client, for a caller that turns
// it.
func (w *Worker) Keeps(client netip.AddrPort) bool {
	x := w.keeper.byAddr[client]
	return x != nil && x.core.Phase() == sessionlog.Owning
}

// adopt takes over a session by the name of its log. from is how its client's datagrams come,
// and asker the subject of who waits to hear that it has a new owner; it may be empty.
func (w *Worker) adopt(name string, from way, asker string) {
	k := w.keeper
	if k == nil {
		return
	}
	x := k.adopt(name, netip.AddrPort{}, false)
	x.asker = asker
	if x.core.Phase() == sessionlog.Owning { // it was not told of its end yet
		x.again = &from
		x.core.Revalidate()
		k.wake(x)
		return
	}
	if !from.unheard {
		k.setWay(x, from)
	}
}

// takeAgain takes over a session that another edge gave to this one while it still took it for
// its own.
func (k *keeper) takeAgain(x *kept) {
	if x.again == nil {
		return
	}
	next := k.adopt(x.name, netip.AddrPort{}, true)
	next.asker = x.asker
	k.setWay(next, *x.again)
	x.again = nil
}

// answerAsker tells the edge that gave a session to this one that it may forget it.
func (x *kept) answerAsker() {
	x.k.w.edge.reply(x.asker, answerDone)
	x.asker = ""
}
