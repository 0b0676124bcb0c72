package fanout

import (
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
	"github.com/dnprelay/dnprelay/subject"
)

// The edge repeats a request to the holder that stays without an answer after repeatMin,
// and then after pauses that double up to repeatMax. Repetitions start before answerWait
// ends; whichever copy is answered first settles the request, so a holder that is farther
// away than a repetition does no harm.
const (
	repeatMin  = 100 * time.Millisecond
	repeatMax  = 500 * time.Millisecond
	answerWait = time.Second
)

// A repeater says when a request is due. The zero value is never due.
//
// It runs whether an answer comes or not: an answer that finds the inbox of the worker
// full is lost, and must not leave anything waiting for ever.
type repeater struct {
	due  time.Time
	wait time.Duration
}

// want makes the request due at once, whatever was tried before.
func (r *repeater) want(now time.Time) { *r = repeater{due: now} }

// again reports whether the next sending is a repetition.
func (r *repeater) again() bool { return r.wait > 0 }

// sent plans the repetition, and makes next early enough for it.
func (r *repeater) sent(now time.Time, next *time.Time) {
	r.wait = min(max(2*r.wait, repeatMin), repeatMax)
	r.due = now.Add(r.wait)
	*next = earlier(*next, r.due)
}

func (r *repeater) stop() { *r = repeater{} }

// renew makes the request due at once if it is under way.
func (r *repeater) renew(now time.Time) {
	if r.pending() {
		r.want(now)
	}
}

// pending reports whether the request is due, at once or later.
func (r *repeater) pending() bool { return !r.due.IsZero() }

// ready reports whether the request is due, and otherwise makes next early enough.
func (r *repeater) ready(now time.Time, next *time.Time) bool {
	if r.due.IsZero() {
		return false
	}
	if r.due.After(now) {
		*next = earlier(*next, r.due)
		return false
	}
	return true
}

// A spaceInfo is what the sessions of a space need to know of it, above all to reach its
// holder: the relay that holds the lease of its shard.
type spaceInfo struct {
	*base
	spaceName string
	shard     int
	replica   *replication.Replica
	epoch     uint64 // of the replica, when it was looked at last
}

// A SessionConfig is what a session is made of.
type SessionConfig struct {
	ID     string      // unique for ever
	Claims auth.Claims // who the client is, and what it may do
	Began  time.Time

	// SessionEpoch is that of a durable session, 0 for a session that ends with its edge. The
	// session does not pass on the reliable messages of a client with a durable session: the
	// owner of the connection delivers them when they are stored.
	SessionEpoch uint64
}

// A peer is the client of a session.
type peer struct {
	*spaceInfo
	SessionConfig
	conn *dnp.Conn
	made uint32 // write requests of a durable session at this edge
	membership
}

// request sends a write request to the holder. done is called with the answer, also when
// none comes, unless it finds the worker's inbox full. In done, w.Epoch is the epoch in
// which the request was sent.
func (p *peer) request(w *replication.Write, done func(now time.Time, r replication.WriteResult, err error)) {
	w.Session, w.Client, w.Space, w.Epoch = p.ID, p.Claims.Client, p.spaceName, p.epoch
	m := bus.Msg{Subject: p.Subjects.Write(p.shard), Header: p.writeHeader(w.Number), Data: replication.AppendWrite(nil, w)}
	p.Host.Request(m, answerWait, func(now time.Time, answer bus.Msg, err error) {
		var r replication.WriteResult
		if err == nil {
			r, err = replication.ParseWriteResult(answer.Data)
		}
		done(now, r, err)
	})
}

// mustRepeat reports whether an answer settles nothing.
func mustRepeat(r replication.WriteResult, err error) bool {
	return err != nil || r.Code == replication.WriteBusy || r.Code == replication.WriteWrongEpoch
}

// nextWrite numbers the write requests of this session. The holder ignores a write that is not
// later than the last one of its session, so those of an edge that takes a session over have
// higher numbers than those of the edge before (replication.WriteNumbers). 0 stands for none.
func (p *peer) nextWrite() (number uint32) {
	if p.SessionEpoch > 0 {
		p.made++
		number, _ = replication.WriteNumbers(p.SessionEpoch, p.made)
		return number
	}
	if p.writeNumber++; p.writeNumber == 0 {
		p.writeNumber++
	}
	return p.writeNumber
}

// writeHeader returns the header of a write request: its wide number, which most requests do
// not have.
func (p *peer) writeHeader(number uint32) map[string]string {
	if p.SessionEpoch == 0 {
		return nil
	}
	first, _ := replication.WriteNumbers(p.SessionEpoch, 0)
	_, wide := replication.WriteNumbers(p.SessionEpoch, number-first)
	if wide == 0 {
		return nil
	}
	return map[string]string{subject.HeaderWrite: strconv.FormatUint(wide, 10)}
}

// emit publishes an event of the session for game servers, when they know of the client.
func (p *peer) emit(now time.Time, ev replication.Event) {
	ev = p.fill(now, ev)
	p.wait(now, eventSize, func() { p.Emit(ev) })
}

// eventSize counts for an event that waits.
const eventSize = 512

func (p *peer) fill(now time.Time, ev replication.Event) replication.Event {
	ev.Space, ev.Client, ev.Session, ev.Time = p.spaceName, p.Claims.Client, p.ID, now
	ev.Epoch, ev.Seq = p.replica.Position()
	return ev
}

// Emit publishes an event for game servers. Events are at most once, so an error of
// the bus is only counted; Emit reports false then.
func (b *base) Emit(ev replication.Event) bool {
	m := bus.Msg{Subject: b.Subjects.Event(ev.Space), Data: payload.JSON.AppendEvent(nil, &ev)}
	if b.Host.Publish(m) != nil {
		b.counts.EventsLost++
		return false
	}
	b.counts.Events++
	return true
}
