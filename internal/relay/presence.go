package relay

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
)

// Events are at most once, so the relay also asks which sessions are in a space: edges name
// their sessions, and a session that no edge names for a while has left, because its edge
// died or its event got lost.
const (
	askInterval      = 10 * time.Second // of spaces with sessions
	askEmptyInterval = time.Minute      // of spaces without
	askMentioned     = time.Second      // of spaces in which a session is mentioned that is not known
	missedMax        = 4                // questions without being named, after which a session has left
)

// reasonLost is the reason of a session that left without an event of its edge.
const reasonLost = "lost"

// A presence is what a relay knows of the sessions of a space.
type presence struct {
	named map[string]*named // by session; as many as the store accepts
	due   time.Time         // when to ask

	left ring // sessions that left last; they do not come back
	lost ring // sessions that no edge named for too long, and of which game servers heard that they left
}

// A ring has the last sessions to which something happened, ringMax at most.
type ring struct {
	list []string
	n    int // sessions so far
}

const ringMax = 1024

func (r *ring) has(session string) bool { return slices.Contains(r.list, session) }

func (r *ring) put(session string) {
	switch {
	case r.has(session):
		return
	case len(r.list) < ringMax:
		r.list = append(r.list, session)
	default:
		r.list[r.n%ringMax] = session
	}
	r.n++
}

// drop takes a session out and reports whether it was there.
func (r *ring) drop(session string) bool {
	i := slices.Index(r.list, session)
	if i >= 0 {
		r.list[i] = ""
	}
	return i >= 0
}

// A named is one session.
type named struct {
	client string
	edge   unique.Handle[string] // that named it last; empty if game servers may not have heard of the session
	missed int                   // questions since an edge named it last
}

// presence learns from the events of edges which clients came, and which go although the edge got no answer
// to what it asked.
func (r *Relay) presence(m bus.Msg) {
	if !bytes.Contains(m.Data, []byte(`"joined"`)) && !bytes.Contains(m.Data, []byte(`"left"`)) {
		return // most events say what clients wrote, and parsing them costs time
	}
	var ev struct{ Type, Client, Session, Edge, Reason string }
	if json.Unmarshal(m.Data, &ev) != nil {
		return // anything may be published as an event
	}
	// Permissions are about subjects, so the space that the body names means nothing.
	space := strings.TrimPrefix(m.Subject, r.cfg.Subjects.Event("")+".")
	switch replication.EventType(ev.Type) {
	case replication.EventJoined:
		r.joined(space, ev.Client, ev.Session, ev.Edge)
	case replication.EventLeft:
		r.tell(space, ev.Client, ev.Session, func(w *Worker, _ time.Time, _ *ownership, _ bus.Msg) {
			if sp, ok := w.spaces[space]; ok && ev.Reason != reasonLost { // a relay says that, and the edge may be back
				w.part(sp, ev.Client, ev.Session)
				sp.present.left.put(ev.Session)
				w.plan(sp)
			}
		})
	}
}

// joined tells the worker of a space that an edge named a session.
func (r *Relay) joined(space, client, session, edge string) {
	r.tell(space, client, session, func(w *Worker, now time.Time, o *ownership, _ bus.Msg) {
		if sp, ok := w.space(now, o, space); ok {
			w.join(now, sp, client, session, edge)
			w.plan(sp)
		}
	})
}

// tell has the worker of a space handle news of a session, unless a name is invalid.
func (r *Relay) tell(space, client, session string, handle handler) {
	if validSpace(space) && subject.ValidToken(client) && subject.ValidToken(session) {
		shard := cluster.Shard(space, r.cfg.Shards)
		r.worker(shard).post(shard, handle, bus.Msg{})
	}
}

// join notes that an edge named a session. It reports false for one of another client, and for one that left: an event, or the
// answer to a question, can be read behind the word that it left, because they come by different subscriptions.
func (w *Worker) join(now time.Time, sp *space, client, session, edge string) bool {
	n := sp.present.named[session]
	if n == nil && sp.present.left.has(session) || n != nil && n.client != client || !subject.ValidToken(session) {
		return false
	}
	sp.store.Join(client, session)
	switch {
	case n == nil && len(sp.present.named) < sessionsMax:
		n = &named{edge: edgeName("")}
		sp.present.named[session] = n
		fallthrough
	case n != nil:
		n.client, n.missed = client, 0
		if edge != "" {
			n.edge = edgeName(edge)
		}
	}
	if edge != "" && sp.present.lost.drop(session) {
		w.publishEvent(sp.about(now, &replication.Event{Type: replication.EventJoined, Client: client, Session: session, Edge: edge}))
	}
	if due := now.Add(askInterval); due.Before(sp.present.due) {
		sp.present.due = due
	}
	sp.publishDeferred(func(m bus.Msg) { w.publish(now, sp.owner, m) })
	return true
}

// announced returns replication.JoinAnnounced for a session of which game servers heard, or else 0.
func (p *presence) announced(session string) uint64 {
	if n := p.named[session]; n != nil && n.edge != edgeName("") {
		return replication.JoinAnnounced
	}
	return 0
}

// edgeName returns the name of an edge, of which all sessions share the bytes. It is empty for what cannot be
// one: anything may be published as an event.
func edgeName(name string) unique.Handle[string] {
	if len(name) > cluster.NameMax {
		name = ""
	}
	return unique.Make(name)
}

// mentioned notes that an edge mentioned a session. If the session is not known, the relay
// asks soon, because the states of its client wait for that.
func (w *Worker) mentioned(now time.Time, sp *space, session string) {
	if due := now.Add(askMentioned); sp.present.named[session] == nil && due.Before(sp.present.due) {
		sp.present.due = due
	}
}

// part notes that a session is not in the space.
func (w *Worker) part(sp *space, client, session string) {
	sp.store.Leave(client, session)
	delete(sp.present.named, session)
}

// sessionsMax bounds the sessions of a space, as the limits of its store do.
const sessionsMax = 65_536

// advancePresence asks about the spaces that are due, and ends sessions that no edge named.
// It returns when there is more to do. It searches all spaces of the worker, so it does so
// once a second at most.
func (w *Worker) advancePresence(now time.Time) time.Time {
	if len(w.spaces) == 0 {
		return now.Add(time.Hour)
	}
	if now.Before(w.askDue) {
		return w.askDue
	}
	w.askDue = now.Add(time.Second)
	for _, o := range w.owned {
		for _, sp := range o.spaces {
			if o.serving && !now.Before(sp.present.due) {
				w.sweep(now, sp)
				w.ask(now, sp)
			}
		}
	}
	return w.askDue
}

// ask asks all edges which sessions are in a space.
func (w *Worker) ask(now time.Time, sp *space) {
	sp.present.due = now.Add(askEmptyInterval)
	if len(sp.present.named) > 0 {
		sp.present.due = now.Add(askInterval)
	}
	if !w.send(bus.Msg{Subject: w.relay.cfg.Subjects.Who(sp.name), Reply: w.relay.inbox + "." + sp.name}) {
		return // the question is lost, so it does not count as one without an answer
	}
	for _, n := range sp.present.named {
		n.missed++
	}
}

// sweep ends the sessions of a space that no edge named for too long.
func (w *Worker) sweep(now time.Time, sp *space) {
	for _, session := range sortedKeys(sp.present.named) {
		n := sp.present.named[session]
		if n.missed < missedMax {
			continue
		}
		w.part(sp, n.client, session)
		w.counts.SessionsLost++
		sp.present.lost.put(session)
		w.publishEvent(sp.about(now, &replication.Event{Type: replication.EventLeft, Client: n.client, Session: session, Reason: reasonLost}))
	}
	if !sp.forgetAt.IsZero() && !now.Before(sp.forgetAt) {
		sp.store.ForgetAbsent()
		sp.forgetAt = time.Time{}
	}
	w.plan(sp)
}

// about fills in where and when an event happens.
func (sp *space) about(now time.Time, ev *replication.Event) *replication.Event {
	ev.Space, ev.Time = sp.name, now
	ev.Epoch, ev.Seq = sp.store.Position()
	return ev
}

// askAll makes the question about every space due.
func (w *Worker) askAll(now time.Time) {
	w.askDue = now
	for _, sp := range w.spaces {
		sp.present.due = now
		for _, n := range sp.present.named {
			n.missed = 0
		}
	}
}

// present handles the answer of an edge to ask.
func (r *Relay) present(m bus.Msg) {
	var a struct {
		Edge    string
		Clients []struct{ Client, Session string }
	}
	if m.Header[bus.HeaderStatus] != "" || json.Unmarshal(m.Data, &a) != nil {
		return
	}
	space := strings.TrimPrefix(m.Subject, r.inbox+".")
	for _, c := range a.Clients {
		r.joined(space, c.Client, c.Session, a.Edge)
	}
}
