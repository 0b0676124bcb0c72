package edge

import (
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/udp"
	"github.com/dnprelay/dnprelay/internal/edge/takeover"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
)

// Bounds of a worker's inbox. What does not fit is dropped and counted; a lost
// batch is a gap, which the replica repairs, and a lost answer is asked for again.
const (
	inboxTasks = 8192
	inboxBytes = 64 << 20
)

// A task is what another goroutine wants a worker to do.
type task struct {
	do   func(w *Worker, now time.Time)
	size int64 // bytes of the message that it holds
}

// An Output is where a worker's datagrams go.
type Output interface {
	dnp.Sender
	Flush() error
}

// A Worker owns the connections of one socket and the replicas that they need.
// All of it belongs to the goroutine in loop, except tasks, queued and wake.
type Worker struct {
	edge  *Edge
	index int
	ep    *dnp.Endpoint
	out   Output

	listener uint16             // the port that clients talk to
	takeover *takeover.Takeover // nil if the sessions are not durable
	mail     mailbox
	durable  atomic.Int32 // sessions of takeover

	spaces      map[string]*space
	order       []*space  // the same, in the order of their coming
	lastOut     time.Time // when Flush was called last
	counts      Counts
	past        replication.ReplicaStats // of spaces that are not followed any more
	writeNumber uint32                   // of the write request sent last
	callouts    callouts
	suspectAt   time.Time // when a line about forged datagrams may be written again
	pending     pending   // batches that no flush has sent
	flushed     flushed
	expiry      time.Time // when to look for sessions that are over; zero if there is none

	tasks  chan task
	queued atomic.Int64 // bytes held by tasks
	lost   atomic.Uint64
	wake   func()
}

func newWorker(e *Edge, listener uint16, out Output, wake func()) *Worker {
	return &Worker{
		edge: e, index: len(e.workers), out: out, wake: wake, listener: listener,
		spaces: make(map[string]*space),
		tasks:  make(chan task, inboxTasks),
	}
}

// Turn handles datagrams and tasks, does what is due and sends what is to be
// sent, all at the time now. It returns when it must be called again at the
// latest, which is never before now, and what failed with the output.
func (w *Worker) Turn(now time.Time, batch []udp.Datagram) (next time.Time, err error) {
	if w.takeover != nil {
		w.takeover.Begin(now)
		w.openMail(now)
	}
	w.receive(now, batch)
	w.runTasks(now)
	next = w.advance(now)
	err = w.out.Flush()
	w.endFlush()
	return next, err
}

// post asks the worker to do something, from any goroutine. It never blocks:
// when the inbox is full the task is lost, and counted.
func (w *Worker) post(size int, do func(w *Worker, now time.Time)) bool {
	if w.queued.Add(int64(size)) > inboxBytes {
		w.queued.Add(-int64(size))
		w.lost.Add(1)
		return false
	}
	select {
	case w.tasks <- task{do, int64(size)}:
		w.wake()
		return true
	default:
		w.queued.Add(-int64(size))
		w.lost.Add(1)
		return false
	}
}

// receive handles datagrams that arrived.
func (w *Worker) receive(now time.Time, batch []udp.Datagram) {
	for _, d := range batch {
		w.Deliver(now, "", 0, d.From, d.Data)
	}
}

// runTasks does what was posted. It takes no more than were there when it began,
// so that the socket gets its turn.
func (w *Worker) runTasks(now time.Time) {
	for range len(w.tasks) {
		t := <-w.tasks
		t.do(w, now)
		w.queued.Add(-t.size)
	}
}

// advance does what is due and sends what is to be sent. It returns when it must
// be called again.
func (w *Worker) advance(now time.Time) time.Time {
	next := now.Add(time.Hour)
	for _, s := range w.order {
		next = earlier(next, s.advance(now))
	}
	w.forgetSpaces(now)
	next = w.expire(now, next)
	next = w.advanceDurable(now, next) // what the log answered
	w.flush(now)                       // values first: those who play do not wait for those who join
	w.handle(now, w.ep.Advance(now, w.out))
	next = w.advanceDurable(now, next) // what is to be stored
	if due, ok := w.flush(now); ok {
		next = earlier(next, due)
	}
	if due, ok := w.ep.NextTimeout(); ok {
		next = earlier(next, due)
	}
	if next.Before(now) {
		return now // a socket takes the zero time for "never"
	}
	return next
}

// advanceDurable advances the durable sessions.
func (w *Worker) advanceDurable(now, next time.Time) time.Time {
	if w.takeover != nil {
		next = w.takeover.Advance(now, next)
		w.durable.Store(int32(w.takeover.Count()))
	}
	return next
}

// flush sends changed values, if any, unless that was done so lately that they have
// to wait. Then it returns until when.
func (w *Worker) flush(now time.Time) (due time.Time, waits bool) {
	if !w.ep.Pending() {
		w.pending.forget() // nobody is linked to what changed
		return due, false
	}
	if due = w.lastOut.Add(w.edge.cfg.Flush); due.After(now) {
		return due, true
	}
	w.beginFlush()
	w.ep.Flush(now, w.out)
	w.lastOut = now
	return due, false
}

// Replica returns the replica of a space, nil if there is none, for a caller that
// turns the worker.
func (w *Worker) Replica(name string) *replication.Replica {
	if s, ok := w.spaces[name]; ok {
		return s.replica
	}
	return nil
}

// handle takes what the endpoint says that happened.
func (w *Worker) handle(now time.Time, events []dnp.Event) {
	for i := range events {
		ev := &events[i]
		if ev.Kind == dnp.EventConnected {
			w.connected(now, ev.Conn)
			continue
		}
		if w.takeover != nil {
			w.takeover.Handle(now, ev)
		}
		s, ok := ev.Conn.Data().(*session)
		if !ok {
			continue // it ended before it began
		}
		switch ev.Kind {
		case dnp.EventClosed:
			s.closed(now, ev.Reason)
		case dnp.EventMessage:
			if s.durable == nil || !ev.Reliable { // others come when they are stored
				s.message(ev)
			}
		case dnp.EventLinkOffered:
			s.offered(now, ev)
		case dnp.EventLinkUp:
			s.linked(now, ev)
		case dnp.EventLinkDown:
			s.unlinked(now, ev)
		case dnp.EventUpdate:
			s.updated(now, ev)
		case dnp.EventSent:
			s.sent(ev)
		case dnp.EventRecycle:
			s.emit(now, replication.Event{Type: replication.EventRecycle})
		case dnp.EventSuspect:
			s.suspected(now)
		}
	}
}

// reconnected makes every replica ask whether it missed something, and asks again
// for what was not answered.
func (w *Worker) reconnected(now time.Time) {
	for _, s := range w.order {
		s.replica.Reconnected(now)
		s.askAgain(now)
	}
}

// emit publishes an event for game servers. Events are at most once, so an error
// of the bus is only counted.
func (w *Worker) emit(ev replication.Event) {
	m := bus.Msg{Subject: w.edge.cfg.Subjects.Event(ev.Space), Data: payload.JSON.AppendEvent(nil, &ev)}
	if err := w.edge.cfg.Bus.Publish(m); err != nil {
		w.counts.EventsLost++
		return
	}
	w.counts.Events++
}

// close ends every session.
func (w *Worker) close(now time.Time) {
	for c := range w.ep.All {
		c.Close(dnp.CloseDrain)
	}
	w.handle(now, w.ep.Advance(now, w.out))
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
