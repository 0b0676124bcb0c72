package edge

import (
	"context"
	"errors"
	"hash/fnv"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/cluster/forward"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/udp"
	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/dnprelay/dnprelay/internal/edge/fanout"
	"github.com/dnprelay/dnprelay/internal/edge/login"
	"github.com/dnprelay/dnprelay/internal/edge/takeover"
	"github.com/dnprelay/dnprelay/internal/outage"
	"github.com/dnprelay/dnprelay/internal/turn"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// Bounds of a worker's inbox. A task that does not fit is dropped and counted: a lost batch
// is a gap that the replica repairs, and the request for a lost answer is made again.
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

// A node is what the workers of an edge share.
type node struct {
	cfg      Config
	workers  []*Worker // complete before Start
	logins   *login.Authority
	sessions *registry
	signals  signals
	repairs  *repairs

	locations *takeover.Locations // of durable sessions
	view      atomic.Pointer[takeover.View]
	hub       *carrier.Hub  // nil if all clients speak UDP
	draining  atomic.Bool   // the edge hands its sessions over, and new ones begin elsewhere
	silence   outage.Outage // of the session log

	connection outage.Connection // to the bus
}

func (n *node) server(c forward.Client) (w *Worker, epoch uint64, ok bool) {
	i, epoch, ok := n.locations.Server(c)
	if !ok {
		return nil, 0, false
	}
	return n.workers[i], epoch, true
}

// workerFor returns the worker that has the session of a client, or else one that may
// take it; nil if there is no such listener.
func (n *node) workerFor(c forward.Client) *Worker {
	if w, _, ok := n.server(c); ok {
		return w
	}
	b, _ := c.Addr.MarshalBinary() // it has no error
	return n.workerOf(c.Listener, b)
}

// workerOf returns one of the workers of a listener, the same for the same key; nil if
// there is no such listener.
func (n *node) workerOf(listener uint16, key []byte) *Worker {
	all := slices.DeleteFunc(slices.Clone(n.workers), func(w *Worker) bool { return w.listener != listener })
	if len(all) == 0 {
		return nil
	}
	h := fnv.New32a()
	h.Write(key)
	return all[h.Sum32()%uint32(len(all))]
}

// A Worker owns the connections of one socket and the replicas that they need. All of it
// belongs to the goroutine in loop, except tasks, mail, durable and wake.
type Worker struct {
	node   *node
	index  int
	ep     *dnp.Endpoint
	direct Output // to clients directly
	out    Output // to clients by their return paths

	carried   *carrier.Output      // a part of direct; nil if all clients speak UDP
	arrivals  *turn.Inbox[arrival] // datagrams of carried clients
	impostors uint64               // datagrams by UDP in the name of carried clients

	listener uint16             // the port that clients talk to
	takeover *takeover.Takeover // nil if the sessions are not durable
	mail     *turn.Queue[func(now time.Time)]
	durable  atomic.Int32 // sessions of takeover

	spaces    *fanout.Spaces
	lastOut   time.Time                // when Flush was called last
	past      replication.ReplicaStats // of spaces that are no longer followed
	judge     *login.Judge
	suspectAt time.Time // when forged datagrams may be logged again
	flushes   flushTrace
	looked    bool // this turn has had its step for people who look

	tasks *turn.Inbox[task]
	wake  func()
}

const (
	// batchMax is how many datagrams a worker reads with one system call.
	batchMax = 64

	// batchesMax is how many batches a worker reads for a turn. A turn with thousands of changes to send takes many milliseconds.
	// Acknowledgements that arrive meanwhile must not wait for several turns: the edge sends again what is acknowledged late, and takes
	// it for lost.
	batchesMax = 8
)

// loop turns a worker until ctx ends. It reads the clock once per turn.
func loop(ctx context.Context, w *Worker, socket *udp.Socket) error {
	batch := make([]udp.Datagram, batchMax)
	next := time.Now()
	for ctx.Err() == nil {
		socket.SetReadDeadline(next)
		n, err := read(socket, batch)
		if err != nil {
			return err
		}
		now := time.Now()
		w.begin(now)
		more, err := w.receiveAll(now, socket, batch, n)
		if err != nil {
			return err
		}
		if next, err = w.end(now); err != nil {
			return err
		}
		if more {
			next = now // the Wake for mail may have ended a read
		}
	}
	w.close(time.Now())
	return w.out.Flush()
}

// read waits for datagrams, the deadline or a Wake.
func read(socket *udp.Socket, batch []udp.Datagram) (n int, err error) {
	n, err = socket.ReadBatch(batch)
	if errors.Is(err, udp.ErrWoken) || errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return n, err
}

// receiveAll handles the first n datagrams of batch and, if it is full, those that have arrived behind them. It reports whether it
// read the socket for them.
func (w *Worker) receiveAll(now time.Time, socket *udp.Socket, batch []udp.Datagram, n int) (more bool, err error) {
	w.receiveBatch(now, batch[:n])
	for reads := 1; n == len(batch) && reads < batchesMax && err == nil; reads++ {
		socket.SetReadDeadline(now)
		n, err = read(socket, batch)
		w.receiveBatch(now, batch[:n])
		more = true
	}
	return more, err
}

// Turn handles datagrams, mail and tasks, does what is due, and sends, all at the time
// now. It returns when it must be called again at the latest, which is never before now, and
// the error of the output.
func (w *Worker) Turn(now time.Time, batch []udp.Datagram) (next time.Time, err error) {
	w.begin(now)
	w.receiveBatch(now, batch)
	return w.end(now)
}

// begin is the part of a turn before datagrams.
func (w *Worker) begin(now time.Time) {
	if w.takeover != nil {
		w.takeover.Begin(now)
	}
	w.looked = false
	for _, do := range w.mail.Take() {
		do(now)
	}
}

func (w *Worker) receiveBatch(now time.Time, batch []udp.Datagram) {
	for _, d := range batch {
		if carrier.Carried(d.From.Addr()) {
			w.impostors++
			continue
		}
		w.Deliver(now, "", 0, d.From, d.Data)
	}
}

// end is the part of a turn behind datagrams.
func (w *Worker) end(now time.Time) (next time.Time, err error) {
	w.takeArrivals(now)
	w.tasks.Take(func(do task) { do(w, now) })
	next = w.advance(now)
	err = w.out.Flush()
	w.holdBack()
	w.flushes.end(w.ep.Stats())
	return next, err
}

// post asks the worker to do something, from any goroutine. It never blocks: when the
// inbox is full the task, which holds size bytes, is lost and counted.
func (w *Worker) post(size int, do task) bool { return w.tasks.Post(do, size) }

// A sessionFeed is the feed of a session that tells its worker what is delivered.
type sessionFeed struct {
	takeover.Feed
	session *takeover.Session
	client  *fanout.Session
	worker  *Worker
	told    func(now time.Time) // tell, made once

	posted atomic.Bool   // the worker is about to be told the number
	number atomic.Uint64 // of the newest message that is delivered
}

// delivered notes, from any goroutine, that the message with this number and all before it
// are delivered.
func (f *sessionFeed) delivered(number uint64) {
	f.number.Store(number)
	if f.posted.CompareAndSwap(false, true) {
		f.worker.must(f.told)
	}
}

func (f *sessionFeed) tell(now time.Time) {
	f.posted.Store(false)
	f.worker.takeover.Delivered(now, f.session, f.number.Load())
}

// Deliver implements takeover.Feed.
func (f *sessionFeed) Deliver(m sessionlog.Message) {
	m.Data, m.Header = f.client.Deliver(m.Number, m.Data)
	f.worker.spaces.Counts().MessagesIn++
	f.client.Tell(len(m.Data), func() { f.Feed.Deliver(m) })
}

// must has something done on a turn of the worker, from any goroutine. Unlike a task it does
// not get lost: without an answer of the log, for example, a session stands still for ever.
// The mail needs no bound of its own: a session asks the log one question at a time, other
// questions are bounded where they are asked, the claims of an edge are no more than it had
// sessions, and a feed has one letter on its way at most.
func (w *Worker) must(do func(now time.Time)) { w.mail.Put(do) }

// advance does what is due and sends. It returns when it must be called again.
func (w *Worker) advance(now time.Time) time.Time {
	w.node.repairs.advance(now)
	next := w.spaces.Advance(now)
	next = w.advanceDurable(now, next) // answers of the log
	w.flush(now, next)                 // values first, so that clients that play do not wait for clients that join
	w.handle(now, w.ep.Advance(now, w.out))
	w.judge.Silent(now, w.ep.Stats().Drops[dnp.DropLoginTimeout])
	next = w.advanceDurable(now, next) // writes to the log
	next = w.flush(now, next)
	if due, ok := w.ep.NextTimeout(); ok && due.Before(next) {
		next = due
	}
	if next.Before(now) {
		return now // a socket treats the zero time as "never"
	}
	return next
}

func (w *Worker) advanceDurable(now, next time.Time) time.Time {
	if w.takeover != nil {
		next = w.takeover.Advance(now, next)
		w.durable.Store(int32(w.takeover.Count()))
	}
	return next
}

// flush sends changed values, if there are any. If the last flush was too recent, the values
// have to wait, and flush returns until when, next at the latest.
func (w *Worker) flush(now, next time.Time) time.Time {
	if !w.ep.Pending() {
		w.flushes.forget() // no client is linked to what changed
		return next
	}
	if due := w.lastOut.Add(w.node.cfg.Flush); due.After(now) {
		if due.Before(next) {
			return due
		}
		return next
	}
	w.flushes.begin(w.ep.Stats())
	w.ep.Flush(now, w.out)
	w.lastOut = now
	return next
}

// Replica returns the replica of a space, nil if there is none, for a caller that
// turns the worker.
func (w *Worker) Replica(name string) *replication.Replica { return w.spaces.Replica(name) }

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
		w.handleCarried(ev)
		s, ok := ev.Conn.Data().(*fanout.Session)
		if !ok {
			continue // the connection ended before its session began
		}
		switch ev.Kind {
		case dnp.EventClosed:
			w.node.sessions.leave(ev.Conn.Addr().Addr())
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
		w.takeover.Connected(now, conn, w.node.cfg.NewID(), claims)
		return
	}
	w.node.sessions.enter(conn.Addr().Addr())
	s := w.spaces.NewSession(fanout.SessionConfig{ID: w.node.cfg.NewID(), Claims: *claims, Began: now})
	s.Begin(now, conn)
}

// A loginHost is a worker as its Judge sees it.
type loginHost struct{ requester }

// LoggedIn implements login.Host.
func (h loginHost) LoggedIn(now time.Time, from netip.AddrPort, claims *auth.Claims) {
	if claims == nil {
		h.w.ep.RefuseLogin(from, h.w.out)
		return
	}
	h.w.ep.LogIn(now, from, claims, h.w.out)
}

// suspectPause is the least time between two log lines of a worker about forged datagrams.
const suspectPause = time.Minute

// suspected logs that another host seems to forge datagrams of a client. The metric counts
// every alarm.
func (w *Worker) suspected(now time.Time, s *fanout.Session, addr netip.AddrPort) {
	if now.Before(w.suspectAt) {
		return
	}
	w.suspectAt = now.Add(suspectPause)
	w.node.cfg.Log.Warn("suspecting forged datagrams of a client", "client", s.Claims.Client, "session", s.ID, "space", s.Claims.Space,
		"address", w.node.cfg.LogAddresses.text(w.node.home(addr)))
}

func (w *Worker) live(now time.Time, space string, batch []byte) {
	replica := w.spaces.Replica(space)
	if replica == nil {
		return
	}
	span := w.node.signals.replicate(space, batch)
	replica.Apply(now, batch)
	span.End()
	w.flushes.applied(now, span)
}

// drain hands the sessions of the worker over, or closes them evenly over the drain timeout if no other
// edge can continue them.
func (w *Worker) drain(now time.Time) {
	if w.takeover != nil {
		w.closeAdapted()
		w.takeover.Drain(now)
		return
	}
	w.spaces.Drain(now, w.node.cfg.DrainTimeout-closeTime)
}

func (w *Worker) close(now time.Time) {
	for c := range w.ep.All {
		c.Close(dnp.CloseDrain)
	}
	w.handle(now, w.ep.Advance(now, w.out))
	w.spaces.Finish()
}

// Serves reports whether the worker owns the session of a client, for a caller that turns
// it.
func (w *Worker) Serves(client netip.AddrPort) bool { return w.takeover.Serves(client) }

// Deliver handles a datagram of a client that came over the edge via; via is empty if it came
// directly to this edge.
func (w *Worker) Deliver(now time.Time, via string, hops uint8, client netip.AddrPort, datagram []byte) {
	if w.takeover != nil && w.takeover.Intercept(now, client, datagram, via, hops) {
		w.ep.Overhear(client, datagram)
		return
	}
	if w.carried != nil && carriedClient(client) {
		w.setReachable(client) // its way may be another one now
	}
	w.receive(now, client, datagram)
}

// receive gives a datagram to the endpoint.
func (w *Worker) receive(now time.Time, client netip.AddrPort, datagram []byte) {
	w.handle(now, w.ep.Receive(now, client, datagram, w.out))
	w.endUnknown(now, client, datagram)
}

// A returning sends datagrams to clients by their return paths.
type returning struct {
	Output
	t *takeover.Takeover
}

// Send implements dnp.Sender.
func (r *returning) Send(to netip.AddrPort, b []byte) {
	if !r.t.Return(to, b) {
		r.Output.Send(to, b)
	}
}

// sendDirectly sends a datagram to a client whatever its return path is: another edge has the
// client's session, and returns the datagram over this one.
func (w *Worker) sendDirectly(client netip.AddrPort, datagram []byte) {
	w.direct.Send(client, append(w.direct.Datagram(len(datagram)), datagram...))
}
