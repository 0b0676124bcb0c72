package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

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
	// wasted at best.
	Conn *nats.Conn

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

	// Done is called once, from a goroutine of the Requester and never before Send returns:
	// with the reply, which belongs to the receiver, or with an error that wraps ErrNotSent
	// or ErrNoAnswer. It must not block; it may call Send.
	Done func(reply *nats.Msg, err error)

	id    uint64
	since time.Time // when it began to wait to be sent, or for its answer
}

// size is what a request counts against Bytes: its message and a generous overhead.
func (r *Request) size() int { return len(r.Msg.Data) + 256 }

// A Requester has many requests under way over one connection. Requests leave in the order
// of calls, those that wait together in one flush of the connection. Its methods may be
// called from any goroutine.
type Requester struct {
	cfg    RequesterConfig
	sub    *nats.Subscription
	prefix string    // of reply subjects
	work   turn.Wake // something waits to be sent
	reject turn.Wake // something was refused
	status chan nats.Status

	// Callers are workers and answers come from the connection, so no goroutine can own the
	// tables. Nothing is called and nothing waits under the lock.
	mu       sync.Mutex
	lastID   uint64
	waiting  queue               // not sent
	inFlight map[uint64]*Request // sent, not answered
	sent     queue               // in the order of sending, with some that are answered
	refused  []*Request
	bytes    int
	late     uint64
}

// NewRequester returns a Requester that does nothing before Run.
func NewRequester(cfg RequesterConfig) (*Requester, error) {
	q := &Requester{
		cfg: cfg.withDefaults(), prefix: cfg.Conn.NewInbox() + ".", inFlight: make(map[uint64]*Request),
		work: turn.NewWake(), reject: turn.NewWake(),
	}
	var err error
	if q.sub, err = q.cfg.Conn.Subscribe(q.prefix+"*", q.reply); err != nil {
		return nil, fmt.Errorf("subscribe to answers: %w", err)
	}
	q.status = q.cfg.Conn.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	return q, nil
}

// Send queues requests, in order.
func (q *Requester) Send(requests ...Request) {
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range requests {
		r := &requests[i]
		q.lastID++
		r.id, r.since = q.lastID, now
		if q.waiting.len() >= q.cfg.Queue || q.bytes+r.size() > q.cfg.Bytes {
			q.refused = append(q.refused, r)
			q.reject.Wake()
			continue
		}
		q.bytes += r.size()
		q.waiting.push(r)
	}
	q.work.Wake()
}

// Late returns the number of answers that came after their request was given up.
func (q *Requester) Late() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.late
}

// Run sends requests and gives up those that take too long, until ctx ends. Requests that are
// under way then end with ErrNoAnswer or ErrNotSent; later ones are not answered.
func (q *Requester) Run(ctx context.Context) {
	var sender sync.WaitGroup
	sender.Go(func() { q.sendLoop(ctx) })
	q.expireLoop(ctx)
	sender.Wait()
	q.sub.Unsubscribe() // fails if the connection is gone
	q.cfg.Conn.RemoveStatusListener(q.status)
	q.expire(time.Now().Add(time.Hour))
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
	for len(batch) < sendBatch && len(q.inFlight) < q.cfg.InFlight && q.waiting.len() > 0 {
		r := q.waiting.pop()
		r.since = now
		q.inFlight[r.id] = r
		q.sent.push(r)
		batch = append(batch, r)
	}
	return batch
}

func (q *Requester) publish(r *Request) {
	q.mu.Lock()
	_, wanted := q.inFlight[r.id] // it was given up if those before it took too long
	q.mu.Unlock()
	if !wanted {
		return
	}
	r.Msg.Reply = q.prefix + strconv.FormatUint(r.id, 36)
	if err := q.cfg.Conn.PublishMsg(r.Msg); err != nil {
		q.finish(r.id, nil, wrapFailure(err))
	}
}

// wrapFailure adds ErrNotSent or ErrNoAnswer to the error of a publish.
func wrapFailure(err error) error {
	for _, e := range unsent {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", ErrNotSent, err)
		}
	}
	return fmt.Errorf("%w: %w", ErrNoAnswer, err)
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
		q.late++
		q.mu.Unlock()
		return
	}
	delete(q.inFlight, id)
	q.bytes -= r.size()
	if q.waiting.len() > 0 {
		q.work.Wake()
	}
	q.mu.Unlock()
	r.Done(m, err)
}

// expireLoop gives up requests that take too long, until ctx ends.
func (q *Requester) expireLoop(ctx context.Context) {
	tick := time.NewTicker(max(q.cfg.Timeout/ticksPerTimeout, time.Millisecond))
	defer tick.Stop()
	status := q.status
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.reject:
			q.answerRefused()
		case now := <-tick.C:
			q.expire(now)
		case s, ok := <-status:
			if !ok {
				status = nil // closed with the connection
			}
			if !ok || s != nats.CONNECTED {
				q.disconnected()
			}
		}
	}
}

// expire gives up the requests that have waited for longer than the timeout.
func (q *Requester) expire(now time.Time) {
	deadline := now.Add(-q.cfg.Timeout)
	q.mu.Lock()
	notSent := q.refused
	q.refused = nil
	for q.waiting.len() > 0 && q.waiting.first().since.Before(deadline) {
		r := q.waiting.pop()
		q.bytes -= r.size()
		notSent = append(notSent, r)
	}
	unanswered := q.abandonLocked(func(r *Request) bool { return r.since.Before(deadline) })
	q.mu.Unlock()
	fail(notSent, ErrNotSent)
	fail(unanswered, ErrNoAnswer)
}

// disconnected gives up all requests in flight: their answers cannot come, and this saves the
// rest of the timeout.
func (q *Requester) disconnected() {
	q.mu.Lock()
	unanswered := q.abandonLocked(func(*Request) bool { return true })
	q.mu.Unlock()
	fail(unanswered, ErrNoAnswer)
}

func (q *Requester) answerRefused() {
	q.mu.Lock()
	refused := q.refused
	q.refused = nil
	q.mu.Unlock()
	fail(refused, ErrNotSent)
}

// abandonLocked removes requests in flight, oldest first, while expired is true of them.
func (q *Requester) abandonLocked(expired func(*Request) bool) (all []*Request) {
	for q.sent.len() > 0 {
		r := q.sent.first()
		if q.inFlight[r.id] == nil {
			q.sent.pop()
			continue
		}
		if !expired(r) {
			break
		}
		q.sent.pop()
		delete(q.inFlight, r.id)
		q.bytes -= r.size()
		all = append(all, r)
	}
	if q.waiting.len() > 0 {
		q.work.Wake()
	}
	return all
}

func fail(all []*Request, err error) {
	for _, r := range all {
		r.Done(nil, err)
	}
}

// A queue is first in, first out, and reuses its memory.
type queue struct {
	list []*Request
	head int
}

func (q *queue) len() int { return len(q.list) - q.head }

func (q *queue) first() *Request { return q.list[q.head] }

func (q *queue) push(r *Request) { q.list = append(q.list, r) }

func (q *queue) pop() *Request {
	r := q.list[q.head]
	q.list[q.head] = nil
	q.head++
	if q.head*2 >= len(q.list) {
		n := copy(q.list, q.list[q.head:])
		clear(q.list[n:])
		q.list, q.head = q.list[:n], 0
	}
	return r
}
