package relay

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
)

// Events are at most once, so what they say about who is there is repeated by
// asking: edges name their sessions, and a session that nobody names for a while
// has left, with an edge that died or an event that got lost.
const (
	askInterval      = 10 * time.Second // of spaces with sessions
	askEmptyInterval = time.Minute      // of spaces without
	askHinted        = time.Second      // of spaces where there seem to be others
	missedMax        = 4                // asked so often without being named, a session has left
)

// reasonLost is why a session left of which its edge did not say so.
const reasonLost = "lost"

// A presence is what a relay knows of the sessions of a space.
type presence struct {
	named map[string]*named // by session; as many as the store takes
	due   time.Time         // when to ask
}

// A named is one session.
type named struct {
	client string
	missed int // questions since an edge named it last
}

// presence hears from the edges which clients come and go, because groups belong
// to clients that are in the space.
func (r *Relay) presence(m bus.Msg) {
	if !bytes.Contains(m.Data, []byte(`"joined"`)) && !bytes.Contains(m.Data, []byte(`"left"`)) {
		return // most events say what clients wrote, and parsing those costs
	}
	var ev struct{ Type, Client, Session string }
	if json.Unmarshal(m.Data, &ev) != nil {
		return // not ours to judge: anybody may publish events
	}
	k := kindJoined
	switch replication.EventType(ev.Type) {
	case replication.EventJoined:
	case replication.EventLeft:
		k = kindLeft
	default:
		return
	}
	// Permissions are about subjects, so what the body says of the space means nothing.
	r.tell(k, strings.TrimPrefix(m.Subject, r.cfg.Subjects.Event("")+"."), ev.Client, ev.Session)
}

func (r *Relay) tell(k kind, space, client, session string) {
	if !validSpace(space) || !subject.ValidToken(client) || !subject.ValidToken(session) {
		return
	}
	shard := cluster.Shard(space, r.cfg.Shards)
	r.lane(shard).postMsg(posted{kind: k, shard: shard, space: space, client: client, session: session})
}

// join takes an edge's word that a session is there.
func (l *Lane) join(now time.Time, sp *space, client, session string) {
	sp.store.Join(client, session)
	if n := sp.present.named[session]; n != nil {
		n.client, n.missed = client, 0
		return
	}
	if len(sp.present.named) < sessionsMax {
		sp.present.named[session] = &named{client: client}
	}
	if due := now.Add(askInterval); due.Before(sp.present.due) {
		sp.present.due = due
	}
}

// hint takes it that an edge speaks of a session. If it is not known, the relay has
// to ask: a client's states wait for it.
func (l *Lane) hint(now time.Time, sp *space, session string) {
	if due := now.Add(askHinted); sp.present.named[session] == nil && due.Before(sp.present.due) {
		sp.present.due = due
	}
}

// part takes it that a session is not there any more.
func (l *Lane) part(sp *space, client, session string) {
	sp.store.Leave(client, session)
	delete(sp.present.named, session)
}

// sessionsMax bounds the sessions of a space, as the limits of its store do.
const sessionsMax = 65_536

// advancePresence asks about the spaces whose time has come, and ends sessions
// that nobody named. It returns when there is more to do. It looks at all spaces
// of the lane, so it does so no more often than there is anything to find.
func (l *Lane) advancePresence(now time.Time) time.Time {
	if len(l.spaces) == 0 {
		return now.Add(time.Hour)
	}
	if now.Before(l.askDue) {
		return l.askDue
	}
	l.askDue = now.Add(time.Second)
	for _, h := range l.holdings {
		for _, sp := range h.spaces {
			if h.speaking && !now.Before(sp.present.due) {
				l.sweep(now, sp)
				l.ask(now, sp)
			}
		}
	}
	return l.askDue
}

// ask asks all edges who is in a space.
func (l *Lane) ask(now time.Time, sp *space) {
	sp.present.due = now.Add(askEmptyInterval)
	if len(sp.present.named) > 0 {
		sp.present.due = now.Add(askInterval)
	}
	if !l.send(bus.Msg{Subject: l.relay.cfg.Subjects.Who(sp.name), Reply: l.relay.inbox + "." + sp.name}) {
		return // it is the relay that cannot be heard
	}
	for _, n := range sp.present.named {
		n.missed++
	}
}

// sweep ends the sessions of a space that nobody named for too long.
func (l *Lane) sweep(now time.Time, sp *space) {
	for _, session := range sortedKeys(sp.present.named) {
		n := sp.present.named[session]
		if n.missed < missedMax {
			continue
		}
		l.part(sp, n.client, session)
		l.counts.SessionsLost++
		ev := replication.Event{
			Type: replication.EventLeft, Space: sp.name, Client: n.client, Session: session, Reason: reasonLost, Time: now,
		}
		ev.Epoch, ev.Seq = sp.store.Position()
		l.send(l.relay.eventMsg(&ev))
	}
	if !sp.forgetAt.IsZero() && !now.Before(sp.forgetAt) {
		sp.store.ForgetAbsent()
		sp.forgetAt = time.Time{}
	}
	l.touch(sp)
}

// busChanged asks about every space again, because events were missed.
func (r *Relay) busChanged(connected bool) {
	if !connected {
		r.cfg.Log.Warn("bus lost; nobody can reach this relay", "node", r.cfg.Node)
		return
	}
	r.cfg.Log.Info("bus reached again", "node", r.cfg.Node)
	for _, l := range r.lanes {
		l.command(command{kind: commandReconnected})
	}
}

// askAll makes every space due to be asked about.
func (l *Lane) askAll(now time.Time) {
	l.askDue = now
	for _, sp := range l.spaces {
		sp.present.due = now
		for _, n := range sp.present.named {
			n.missed = 0
		}
	}
}

// present takes an edge's answer to ask.
func (r *Relay) present(m bus.Msg) {
	var a struct {
		Clients []struct{ Client, Session string }
	}
	if m.Header[bus.HeaderStatus] != "" || json.Unmarshal(m.Data, &a) != nil {
		return
	}
	space := strings.TrimPrefix(m.Subject, r.inbox+".")
	for _, c := range a.Clients {
		r.tell(kindJoined, space, c.Client, c.Session)
	}
}
