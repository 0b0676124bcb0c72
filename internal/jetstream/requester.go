package jetstream

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/turn"
	"github.com/nats-io/nats.go"
)

// sendBatch is how many requests leave the queue at a time. They count as sent from then on,
// so a small number is more exact when a connection blocks. It is arbitrary.
const sendBatch = 64

// ticksPerTimeout is how many times within a timeout the Requester looks for requests that
// have waited too long.
const ticksPerTimeout = 16

// A RequesterConfig bounds what is under way. The zero value of each number stands for its
// default.
type RequesterConfig struct {
	// Conn is the connection. It must keep nothing for later while it is broken
	// (nats.ReconnectBufSize(-1)): a request that leaves long after it was given up is
	// wasted at best. If it is nil, Use says over which connections requests leave.
	Conn *nats.Conn

	// Inbox is a new inbox of the connections of Use. It is not needed with Conn.
	Inbox string

	InFlight int           // requests that wait for an answer; default 4,096
	Queue    int           // requests that wait to be sent; default 65,536. Further ones are refused
	Bytes    int           // of both; default 64 MiB
	Timeout  time.Duration // for each of the two waits; default 500 ms
}

func (c RequesterConfig) withDefaults() RequesterConfig {
	c.InFlight = cmp.Or(c.InFlight, 4096)
	c.Queue = cmp.Or(c.Queue, 65_536)
	c.Bytes = cmp.Or(c.Bytes, 64<<20)
	c.Timeout = cmp.Or(c.Timeout, 500*time.Millisecond)
	return c
}

// A Request is a message that wants an answer.
type Request struct {
	// Msg belongs to the Requester from Send until Done. The Requester sets its Reply.
	Msg *nats.Msg

	// Before are published in front of Msg, without answers of their own. If one cannot be, Msg is not sent.
	Before []*nats.Msg

	// Done is called once, from a goroutine of the Requester and never before Send returns:
	// with the reply, which belongs to the receiver, or with an error that wraps ErrNotSent
	// or ErrNoAnswer. It must not block; it may call Send.
	Done func(reply *nats.Msg, err error)

	id    uint64
	since time.Time // when it began to wait to be sent, or for its answer
}

// size is what a request counts against Bytes: its message and a generous overhead.
func (r *Request) size() int {
	size := len(r.Msg.Data) + 256
	for _, m := range r.Before {
		size += len(m.Data) + 256
	}
	return size
}

// A Requester has many requests under way over one connection at a time. Requests leave in the order
// of calls, those that wait together in one flush of the connection. Its methods may be
// called from any goroutine.
type Requester struct {
	cfg    RequesterConfig
	prefix string // of reply subjects
	conn   atomic.Pointer[nats.Conn]
	work   turn.Wake // something waits to be sent
	reject turn.Wake // something was refused

	// Callers are workers and answers come from the connection, so no goroutine can own the
	// tables. Nothing is called and nothing waits under the lock.
	mu       sync.Mutex
	lastID   uint64
	waiting  []*Request          // not sent, oldest first
	inFlight map[uint64]*Request // sent, not answered
	refused  []*Request
	bytes    int
}

// NewRequester returns a Requester that does nothing before Run.
func NewRequester(cfg RequesterConfig) *Requester {
	q := &Requester{cfg: cfg.withDefaults(), prefix: cfg.Inbox + ".", inFlight: make(map[uint64]*Request), work: turn.NewWake(), reject: turn.NewWake()}
	if cfg.Conn != nil {
		q.prefix = cfg.Conn.NewInbox() + "."
		q.conn.Store(cfg.Conn)
	}
	return q
}

// Use makes later requests leave over nc, or end with ErrNotSent if nc is nil. It must not be called
// with Conn. Requests under way are still answered by what arrives over the former connection, which
// the caller may close once they had their time.
func (q *Requester) Use(nc *nats.Conn) error {
	if nc != nil {
		if _, err := nc.Subscribe(q.prefix+"*", q.reply); err != nil {
			return err
		}
	}
	q.conn.Store(nc)
	return nil
}

// GiveUp ends the requests that were sent, whose answers cannot come any more.
func (q *Requester) GiveUp() { q.giveUp(time.Time{}, forever) }

// Send queues a request.
func (q *Requester) Send(r Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lastID++
	r.id, r.since = q.lastID, time.Now()
	if len(q.waiting) >= q.cfg.Queue || q.bytes+r.size() > q.cfg.Bytes {
		q.refused = append(q.refused, &r)
		q.reject.Wake()
		return
	}
	q.bytes += r.size()
	q.waiting = append(q.waiting, &r)
	q.work.Wake()
}

// Run sends requests and gives up those that take too long, until ctx ends. Requests that are
// under way then end with ErrNoAnswer or ErrNotSent; later ones are not answered.
func (q *Requester) Run(ctx context.Context) {
	var status chan nats.Status
	if nc := q.cfg.Conn; nc != nil {
		status = nc.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
		defer nc.RemoveStatusListener(status)
		if sub, err := nc.Subscribe(q.prefix+"*", q.reply); err == nil { // otherwise the connection is closed, and nothing is sent
			defer sub.Unsubscribe() // fails if the connection is gone
		}
	}
	var sender sync.WaitGroup
	sender.Go(func() { q.sendLoop(ctx) })
	q.expireLoop(ctx, status)
	sender.Wait()
	q.giveUp(forever, forever)
}

// sendLoop has a goroutine of its own, because a connection whose peer is stopped blocks.
func (q *Requester) sendLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.work:
		}
		for batch := q.launch(); len(batch) > 0 && ctx.Err() == nil; batch = q.launch() {
			for _, r := range batch {
				q.publish(r)
			}
		}
	}
}

// launch moves some requests from the queue to those in flight.
func (q *Requester) launch() (batch []*Request) {
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	batch = q.takeLocked(min(sendBatch, q.cfg.InFlight-len(q.inFlight), len(q.waiting)))
	for _, r := range batch {
		r.since = now
		q.inFlight[r.id] = r
	}
	return batch
}

// takeLocked removes the n oldest requests that wait to be sent. It moves the start of the
// queue, so that no entry is copied, or empties the queue, so that its memory stays.
func (q *Requester) takeLocked(n int) []*Request {
	taken := slices.Clone(q.waiting[:n])
	clear(q.waiting[:n])
	if n == len(q.waiting) {
		n, q.waiting = 0, q.waiting[:0]
	}
	q.waiting = q.waiting[n:]
	return taken
}

func (q *Requester) publish(r *Request) {
	q.mu.Lock()
	_, wanted := q.inFlight[r.id] // it was given up if those before it took too long
	q.mu.Unlock()
	if !wanted {
		return
	}
	nc := q.conn.Load()
	if nc == nil {
		q.finish(r.id, nil, ErrNotSent)
		return
	}
	r.Msg.Reply = q.prefix + strconv.FormatUint(r.id, 36)
	if err := publishAll(nc, r); err != nil {
		kind := ErrNoAnswer
		if Failed(err) != fence.Unknown {
			kind = ErrNotSent
		}
		q.finish(r.id, nil, fmt.Errorf("%w: %w", kind, err))
	}
}

// publishAll publishes the messages of a request. An error in front of the last one says that the request was not sent.
func publishAll(nc *nats.Conn, r *Request) error {
	for _, m := range r.Before {
		if err := nc.PublishMsg(m); err != nil {
			return fmt.Errorf("%w: %w", ErrNotSent, err)
		}
	}
	return nc.PublishMsg(r.Msg)
}

// reply takes an answer.
func (q *Requester) reply(m *nats.Msg) {
	id, err := strconv.ParseUint(m.Subject[len(q.prefix):], 36, 64)
	switch {
	case err != nil:
	case len(m.Data) == 0 && m.Header.Get("Status") == "503":
		q.finish(id, nil, ErrNotSent)
	default:
		q.finish(id, m, nil)
	}
}

// finish answers a request, if it still is in flight.
func (q *Requester) finish(id uint64, m *nats.Msg, err error) {
	q.mu.Lock()
	r := q.inFlight[id]
	if r == nil {
		q.mu.Unlock()
		return
	}
	delete(q.inFlight, id)
	q.bytes -= r.size()
	if len(q.waiting) > 0 {
		q.work.Wake()
	}
	q.mu.Unlock()
	r.Done(m, err)
}

// expireLoop gives up requests that take too long, until ctx ends.
func (q *Requester) expireLoop(ctx context.Context, status chan nats.Status) {
	tick := time.NewTicker(max(q.cfg.Timeout/ticksPerTimeout, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.reject:
			q.giveUp(time.Time{}, time.Time{})
		case now := <-tick.C:
			q.giveUp(now.Add(-q.cfg.Timeout), now.Add(-q.cfg.Timeout))
		case s, ok := <-status:
			if !ok {
				status = nil // closed with the connection
			}
			if !ok || s != nats.CONNECTED { // so the rest of the timeout is saved
				q.GiveUp()
			}
		}
	}
}

// forever is a time after all requests.
var forever = time.Unix(1<<40, 0)

// giveUp ends the requests that were refused, those that wait to be sent since before queued,
// and those that were sent before sent and have no answer.
func (q *Requester) giveUp(queued, sent time.Time) {
	q.mu.Lock()
	notSent := q.refused
	q.refused = nil
	n := 0
	for n < len(q.waiting) && q.waiting[n].since.Before(queued) {
		q.bytes -= q.waiting[n].size()
		n++
	}
	notSent = append(notSent, q.takeLocked(n)...)
	var unanswered []*Request
	if !sent.IsZero() {
		maps.DeleteFunc(q.inFlight, func(_ uint64, r *Request) bool {
			if !r.since.Before(sent) {
				return false
			}
			q.bytes -= r.size()
			unanswered = append(unanswered, r)
			return true
		})
	}
	if len(q.waiting) > 0 {
		q.work.Wake()
	}
	q.mu.Unlock()
	for _, r := range notSent {
		r.Done(nil, ErrNotSent)
	}
	for _, r := range unanswered {
		r.Done(nil, ErrNoAnswer)
	}
}
