package fanout

import (
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
)

// A request to the holder that stays without an answer is repeated after repeatMin, and
// then after pauses that double up to repeatMax. An answer counts for answerWait, and
// the answer to an earlier copy is as good, so a holder that is farther away than a
// repetition does no harm.
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

// sent plans the repetition. It reports whether this sending was one.
func (r *repeater) sent(now time.Time) (again bool) {
	again = r.wait > 0
	r.wait = min(max(2*r.wait, repeatMin), repeatMax)
	r.due = now.Add(r.wait)
	return again
}

// stop ends the repetitions.
func (r *repeater) stop() { *r = repeater{} }

// wanted reports whether the request is due, at once or later.
func (r *repeater) wanted() bool { return !r.due.IsZero() }

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

// A holder is the relay that holds the lease of a space's shard, as this worker reaches
// it.
type holder struct {
	*base
	name    string // of the space
	shard   int
	replica *replication.Replica
	epoch   uint64 // of the replica, when it was looked at last
}

// A peer is the client of a session: its connection, and its names for the holder.
type peer struct {
	*holder
	conn   *dnp.Conn
	id     string // of the session, unique for ever
	client string // the client's name

	durable uint64 // epoch of a durable session, 0 for one that ends with its edge
	made    uint32 // write requests of a durable session
}

// request sends a write request to the holder. done is called with the answer, also when
// none comes, unless the worker's inbox is full. w.Epoch is then the epoch in which the
// request was made.
func (p *peer) request(w *replication.Write, done func(now time.Time, r replication.WriteResult, err error)) {
	w.Session, w.Client, w.Space, w.Epoch = p.id, p.client, p.name, p.epoch
	m := bus.Msg{Subject: p.Subjects.Write(p.shard), Data: replication.AppendWrite(nil, w)}
	p.Host.Request(m, answerWait, func(now time.Time, answer []byte, err error) {
		var r replication.WriteResult
		if err == nil {
			r, err = replication.ParseWriteResult(answer)
		}
		done(now, r, err)
	})
}

// mustRepeat reports whether an answer settles nothing.
func mustRepeat(r replication.WriteResult, err error) bool {
	return err != nil || r.Code == replication.WriteBusy || r.Code == replication.WriteWrongEpoch
}

// nextWrite numbers the write requests of this session. The holder applies no write whose
// number is below one of the same session, so the numbers of an edge that takes a session
// over begin above those of the edge before. 0 stands for none.
func (p *peer) nextWrite() uint32 {
	if p.durable > 0 {
		p.made++
		return uint32(p.durable)<<24 + p.made
	}
	if p.writeNumber++; p.writeNumber == 0 {
		p.writeNumber++
	}
	return p.writeNumber
}

// emit publishes an event about this session.
func (p *peer) emit(now time.Time, ev replication.Event) {
	ev.Space, ev.Client, ev.Session, ev.Time = p.name, p.client, p.id, now
	ev.Epoch, ev.Seq = p.replica.Position()
	p.publish(ev)
}

// publish publishes an event for game servers. Events are at most once, so an error of
// the bus is only counted.
func (b *base) publish(ev replication.Event) {
	m := bus.Msg{Subject: b.Subjects.Event(ev.Space), Data: payload.JSON.AppendEvent(nil, &ev)}
	if b.Host.Publish(m) != nil {
		b.counts.EventsLost++
		return
	}
	b.counts.Events++
}
