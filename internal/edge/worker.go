package edge

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/udp"
	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/internal/edge/fanout"
	"github.com/dnprelay/dnprelay/internal/edge/login"
	"github.com/dnprelay/dnprelay/internal/edge/takeover"
	"github.com/dnprelay/dnprelay/internal/turn"
	"github.com/dnprelay/dnprelay/replication"
)

// Bounds of a worker's inbox. What does not fit is dropped and counted; a lost
// batch is a gap, which the replica repairs, and a lost answer is asked for again.
const (
	inboxTasks = 8192
	inboxBytes = 64 << 20
)

// A task is what another goroutine wants a worker to do.
type task func(w *Worker, now time.Time)

// An Output is where a worker's datagrams go.
type Output interface {
	dnp.Sender
	Flush() error
}

// A Worker owns the connections of one socket and the replicas that they need.
// All of it belongs to the goroutine in loop, except tasks and wake.
type Worker struct {
	edge  *Edge
	index int
	ep    *dnp.Endpoint
	out   Output

	listener uint16             // the port that clients talk to
	takeover *takeover.Takeover // nil if the sessions are not durable
	mail     *turn.Queue[letter]
	durable  atomic.Int32 // sessions of takeover

	spaces    *fanout.Spaces
	lastOut   time.Time                // when Flush was called last
	past      replication.ReplicaStats // of spaces that are no longer followed
	judge     *login.Judge
	suspectAt time.Time // when a line about forged datagrams may be written again
	flushes   flushTrace

	tasks *turn.Inbox[task]
	wake  func()
}

func newWorker(e *Edge, listener uint16, out Output, wake func()) *Worker {
	w := &Worker{
		edge: e, index: len(e.workers), out: out, wake: wake, listener: listener,
		tasks: turn.NewInbox[task](inboxTasks, inboxBytes, wake), mail: turn.NewQueue[letter](wake), flushes: flushTrace{signals: &e.signals}}
	w.judge = e.logins.Judge(loginHost{w})
	return w
}

// batchMax is how many datagrams a worker reads with one system call.
const batchMax = 64

// loop turns a worker until ctx ends. It reads the clock once per turn.
func loop(ctx context.Context, w *Worker, socket *udp.Socket) error {
	batch := make([]udp.Datagram, batchMax)
	next := time.Now()
	for ctx.Err() == nil {
		socket.SetReadDeadline(next)
		n, err := socket.ReadBatch(batch)
		if err != nil && !errors.Is(err, udp.ErrWoken) && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if next, err = w.Turn(time.Now(), batch[:n]); err != nil {
			return err
		}
	}
	w.close(time.Now())
	return w.out.Flush()
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
	w.tasks.Take(func(do task) { do(w, now) })
	next = w.advance(now)
	err = w.out.Flush()
	w.flushes.end(w.ep.Stats())
	return next, err
}

// post asks the worker to do something, from any goroutine. It never blocks: when the
// inbox is full the task, which holds size bytes, is lost and counted.
func (w *Worker) post(size int, do task) bool { return w.tasks.Post(do, size) }

// receive handles datagrams that arrived.
func (w *Worker) receive(now time.Time, batch []udp.Datagram) {
	for _, d := range batch {
		w.Deliver(now, "", 0, d.From, d.Data)
	}
}

// advance does what is due and sends what is to be sent. It returns when it must
// be called again.
func (w *Worker) advance(now time.Time) time.Time {
	next := w.spaces.Advance(now)
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
		w.flushes.forget() // no client is linked to what changed
		return due, false
	}
	if due = w.lastOut.Add(w.edge.cfg.Flush); due.After(now) {
		return due, true
	}
	w.flushes.begin(w.ep.Stats())
	w.ep.Flush(now, w.out)
	w.lastOut = now
	return due, false
}

// Replica returns the replica of a space, nil if there is none, for a caller that
// turns the worker.
func (w *Worker) Replica(name string) *replication.Replica { return w.spaces.Replica(name) }

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
		s, ok := ev.Conn.Data().(*fanout.Session)
		if !ok {
			continue // it ended before it began
		}
		switch ev.Kind {
		case dnp.EventClosed:
			w.edge.sessions.leave(ev.Conn.Addr().Addr())
		case dnp.EventSuspect:
			w.suspected(now, s, ev.Conn.Addr())
		}
		s.Handle(now, ev)
	}
}

// connected begins the session of a peer that proved its address.
func (w *Worker) connected(now time.Time, conn *dnp.Conn) {
	claims := w.judge.Identity(conn)
	if w.takeover != nil {
		conn.SetData(nil)
		w.takeover.Connected(now, conn, w.edge.cfg.NewID(), claims)
		return
	}
	w.edge.sessions.enter(conn.Addr().Addr())
	s := w.spaces.NewSession(fanout.SessionConfig{Space: claims.Space, ID: w.edge.cfg.NewID(), Client: claims.Client, Began: now})
	s.Begin(now, conn, claims)
}

// A loginHost is a worker as its Judge sees it.
type loginHost struct{ w *Worker }

// Post implements login.Host.
func (h loginHost) Post(size int, do func(now time.Time)) {
	h.w.post(size, func(_ *Worker, now time.Time) { do(now) })
}

// LoggedIn implements login.Host.
func (h loginHost) LoggedIn(now time.Time, from netip.AddrPort, claims *auth.Claims) {
	if claims == nil {
		h.w.ep.RefuseLogin(from, h.w.out)
		return
	}
	h.w.ep.LogIn(now, from, claims, h.w.out)
}

// suspectPause is the least time between two lines of a worker about forged datagrams.
const suspectPause = time.Minute

// suspected logs that somebody else seems to send for the client. The metric counts every
// time.
func (w *Worker) suspected(now time.Time, s *fanout.Session, addr netip.AddrPort) {
	if now.Before(w.suspectAt) {
		return
	}
	w.suspectAt = now.Add(suspectPause)
	w.edge.cfg.Log.Warn("somebody seems to forge datagrams of a client", "client", s.Client(), "session", s.ID(), "space", s.Space(),
		"address", w.edge.cfg.LogAddresses.text(addr))
}

// live applies a batch of the holder.
func (w *Worker) live(now time.Time, space string, batch []byte) {
	replica := w.spaces.Replica(space)
	if replica == nil {
		return
	}
	span := w.edge.signals.replicate(space, batch)
	replica.Apply(now, batch)
	span.End()
	w.flushes.applied(now, span)
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
