package fanout

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/interest"
	"github.com/dnprelay/dnprelay/replication"
)

// Bounds of what game servers are told about who sees what. The numbers are arbitrary: a client that runs through a
// crowd is told of within a second, and all clients of a worker together cost the bus a thousand messages a second.
const (
	// sightingsInterval is how long an edge collects the changes of a client. It is longer than the time between two
	// looks, so no event tells of a state that the publisher takes out of the grid and puts back.
	sightingsInterval = 250 * time.Millisecond

	sightingsMax      = 256  // clients of a space that are told of in an interval; the others wait
	sightingsKeysMax  = 512  // keys of one client in an interval; the others wait
	sightingsBytesMax = 7000 // of these keys, and one more, in JSON: no event is above 8 KiB, as consoles show them
)

// sightings tell game servers which states with an interest come into the sight of clients, and go out of it, if the
// interest asks for it. Whatever waits is a change between what was told and what is, so a state that comes and goes
// meanwhile costs no message, and no more waits than the space has states.
type sightings struct {
	space *space
	fresh []*Session // that got something to tell since the last advance
	queue []*Session // that have something to tell, by dueAt
	ends  time.Time  // of the interval in which clients are counted
	count int
}

// A watched has the states that a session sees and whose interest asks for events.
type watched struct {
	byState map[*replication.State]*sighting
	changed []*sighting // that may differ from what was told
	anew    bool        // what another edge told of the session does not count
	dueAt   time.Time
	queued  bool
}

// A sighting is a state that a session sees, or is told to see.
type sighting struct {
	st         *replication.State
	seen, told bool
	place      int // in watched.changed, from 1 on; 0: not in it
}

// asks reports whether game servers want to know who sees the states of a rule, which may be nil.
func (r *rule) asks() bool { return r != nil && r.says != nil && r.says.Events }

// note notes in which band a session has a state; Beyond, too, if it does not belong to the audience. Without a rule
// that asks for events it costs two comparisons. Of a rule that did not come yet it is not known whether it asks; its
// states are out of sight.
func (n *sightings) note(session *Session, st *replication.State, band interest.Band) {
	r := sourcesOf(st).rule
	switch {
	case session.watched == nil && (!r.asks() || band == interest.Beyond):
	case r.asks() || r != nil && r.says == nil:
		if session.watch().note(st, band != interest.Beyond) {
			n.want(session)
		}
	default:
		session.watched.forget(st) // the publisher took the interest away, or asks no more, and knows it
	}
}

// begin has game servers told what a session sees that another edge served.
func (n *sightings) begin(session *Session) {
	for _, r := range n.space.near.rules {
		if r.asks() {
			session.watch().anew = true
			n.want(session)
			return
		}
	}
}

func (n *sightings) want(session *Session) {
	if w := session.watched; !w.queued {
		w.queued = true
		n.fresh = append(n.fresh, session)
	}
}

// leave forgets a session that ended, of which no event is to come.
func (n *sightings) leave(session *Session) {
	if session.watched == nil {
		return
	}
	if session.watched.queued {
		is := func(x *Session) bool { return x == session }
		n.fresh, n.queue = slices.DeleteFunc(n.fresh, is), slices.DeleteFunc(n.queue, is)
	}
	session.watched = nil
}

// advance publishes what is due, and returns when there is more.
func (n *sightings) advance(now, next time.Time) time.Time {
	for i, session := range n.fresh {
		n.fresh[i] = nil
		session.watched.dueAt = now.Add(sightingsInterval)
		n.queue = append(n.queue, session)
	}
	n.fresh = n.fresh[:0]
	if !now.Before(n.ends) {
		n.count = 0
	}
	due := 0
	for due < len(n.queue) && n.count < sightingsMax && !n.queue[due].watched.dueAt.After(now) {
		if n.count == 0 {
			n.ends = now.Add(sightingsInterval)
		}
		n.count++
		due++
	}
	for _, session := range n.queue[:due] {
		session.watched.queued = false
		n.publish(now, session)
	}
	n.queue = slices.Delete(n.queue, 0, due)
	return n.next(now, next)
}

// next returns when advance has more to do. Clients that are due wait for the next interval.
func (n *sightings) next(now, next time.Time) time.Time {
	if len(n.queue) == 0 {
		return next
	}
	at := n.queue[0].watched.dueAt
	if at.After(now) {
		return earlier(next, at)
	}
	for _, session := range n.queue {
		if w := session.watched; !w.dueAt.After(now) && w.dueAt.Before(n.ends) {
			w.dueAt = n.ends
			n.space.counts.SightingsWaits++
		}
	}
	return earlier(next, n.ends)
}

// publish tells what changed in the sight of a session.
func (n *sightings) publish(now time.Time, session *Session) {
	w := session.watched
	sees := replication.Event{Type: replication.EventSees, Anew: w.anew}
	unsees := replication.Event{Type: replication.EventUnsees}
	for bytes := 0; len(w.changed) > 0 && len(sees.Keys)+len(unsees.Keys) < sightingsKeysMax && bytes < sightingsBytesMax; {
		x := w.changed[0]
		if x.seen != x.told {
			ev := &unsees
			if x.seen {
				ev = &sees
			}
			ev.Keys = append(ev.Keys, x.st.Desc.Key)
			bytes += len(x.st.Desc.Key) + len(`"",`)
		}
		w.settle(x)
	}
	if len(w.changed) > 0 {
		n.want(session)
		n.space.counts.SightingsWaits++
	}
	n.space.counts.Sightings += uint64(len(sees.Keys) + len(unsees.Keys))
	slices.Sort(sees.Keys)
	slices.Sort(unsees.Keys)
	if len(sees.Keys) > 0 || sees.Anew {
		session.emit(now, sees)
	}
	if len(unsees.Keys) > 0 {
		session.emit(now, unsees)
	}
	w.anew = false
}

// watch returns what game servers are told of a session.
func (s *Session) watch() *watched {
	if s.watched == nil {
		s.watched = &watched{byState: make(map[*replication.State]*sighting)}
	}
	return s.watched
}

// note notes whether the session sees a state, and reports whether that may have to be told.
func (w *watched) note(st *replication.State, seen bool) bool {
	x := w.byState[st]
	if x == nil {
		if !seen {
			return false
		}
		x = &sighting{st: st}
		w.byState[st] = x
	}
	if x.seen == seen {
		return false
	}
	x.seen = seen
	if x.place == 0 {
		w.changed = append(w.changed, x)
		x.place = len(w.changed)
	}
	return true
}

// settle takes note that game servers know of a sighting as it is.
func (w *watched) settle(x *sighting) {
	w.unlist(x)
	if x.told = x.seen; !x.seen {
		delete(w.byState, x.st)
	}
}

// forget forgets a state of which game servers are told no more.
func (w *watched) forget(st *replication.State) {
	if x := w.byState[st]; x != nil {
		w.unlist(x)
		delete(w.byState, st)
	}
}

// unlist takes a sighting from those that changed.
func (w *watched) unlist(x *sighting) {
	if x.place == 0 {
		return
	}
	last := len(w.changed) - 1
	moved := w.changed[last]
	w.changed[x.place-1], moved.place = moved, x.place
	w.changed[last] = nil
	w.changed, x.place = w.changed[:last], 0
}
