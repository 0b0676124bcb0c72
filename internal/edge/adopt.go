package edge

import (
	"net/netip"
	"slices"
	"time"

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
	k.w.spaces.Follow(now, about.Space)
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
		switch replica := k.w.spaces.Follow(now, x.about.Space); {
		case x.dropped || x.core.Phase() != sessionlog.Found:
			return true
		case replica.Complete():
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
	s := x.newSession()
	conn := x.core.Restore(now, w.ep, s.Resolve)
	if conn == nil {
		s.Discard()
		return // the next action says why
	}
	w.counts.SessionsAdopted++
	x.session = s
	x.follow()
	w.edge.sessions.enter(x.addr.Addr())
	s.Resume(now, conn, x.core.Token(), x.about.claims())
	k.claim(x)
	k.letIn(now, x.addr)
	x.answerAsker()
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
