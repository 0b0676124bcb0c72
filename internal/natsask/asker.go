package natsask

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// A Request is one question.
type Request struct {
	// Msg is the Asker's from the call until Done, and its Reply is set by it.
	Msg *nats.Msg

	// Done is called once, from a goroutine of the Asker, never before the call that
	// asked returns. It must not block; it may ask. The reply is its own.
	Done func(reply *nats.Msg, err error)

	id    uint64
	since time.Time // of waiting, or of being sent
}

// An Asker asks. Its methods may be called from any goroutine.
type Asker struct {
	cfg    Config
	sub    *nats.Subscription
	prefix string        // of reply subjects
	work   chan struct{} // holds one when something waits to be sent
	refuse chan struct{} // holds one when something was refused
	status chan nats.Status

	// Callers come from workers and answers from the connection, so the tables cannot
	// belong to one goroutine. Nothing is called and nothing waits under the lock.
	mu       sync.Mutex
	next     uint64
	waiting  queue               // not sent
	flying   map[uint64]*Request // sent, not answered
	order    queue               // as they were sent; also some that are answered
	refused  []*Request
	bytes    int
	lateOnes uint64
}

// New returns an Asker that does nothing before Run.
func New(cfg Config) (*Asker, error) {
	a := &Asker{
		cfg: cfg.withDefaults(), prefix: cfg.Conn.NewInbox() + ".", flying: make(map[uint64]*Request),
		work: make(chan struct{}, 1), refuse: make(chan struct{}, 1),
	}
	var err error
	if a.sub, err = a.cfg.Conn.Subscribe(a.prefix+"*", a.reply); err != nil {
		return nil, fmt.Errorf("subscribe to answers: %w", err)
	}
	a.status = a.cfg.Conn.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	return a, nil
}

// Ask asks everything, in order.
func (a *Asker) Ask(requests ...Request) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range requests {
		r := &requests[i]
		a.next++
		r.id, r.since = a.next, now
		if a.waiting.len() >= a.cfg.Queue || a.bytes+size(r) > a.cfg.Bytes {
			a.refused = append(a.refused, r)
			signal(a.refuse)
			continue
		}
		a.bytes += size(r)
		a.waiting.push(r)
	}
	signal(a.work)
}

// Late returns how many answers came after their request was given up.
func (a *Asker) Late() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lateOnes
}

// Run sends and keeps the time until ctx ends. All that is under way then ends with
// ErrNoAnswer or ErrNotSent; what is asked afterwards is not answered.
func (a *Asker) Run(ctx context.Context) {
	var sender sync.WaitGroup
	sender.Go(func() { a.send(ctx) })
	a.keepTime(ctx)
	sender.Wait()
	a.sub.Unsubscribe() // fails if the connection is gone
	a.cfg.Conn.RemoveStatusListener(a.status)
	a.expire(time.Now().Add(time.Hour))
}

// send is apart from the rest, because a connection whose peer is stopped blocks.
func (a *Asker) send(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.work:
		}
		for batch := a.take(); len(batch) > 0 && ctx.Err() == nil; batch = a.take() {
			for _, r := range batch {
				a.publish(r)
			}
		}
	}
}

// take moves some requests from those that wait to those that fly.
func (a *Asker) take() (batch []*Request) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(batch) < sendBatch && len(a.flying) < a.cfg.InFlight && a.waiting.len() > 0 {
		r := a.waiting.pop()
		r.since = now
		a.flying[r.id] = r
		a.order.push(r)
		batch = append(batch, r)
	}
	return batch
}

func (a *Asker) publish(r *Request) {
	a.mu.Lock()
	_, wanted := a.flying[r.id] // it is given up if those before took too long
	a.mu.Unlock()
	if !wanted {
		return
	}
	r.Msg.Reply = a.prefix + strconv.FormatUint(r.id, 36)
	if err := a.cfg.Conn.PublishMsg(r.Msg); err != nil {
		a.finish(r.id, nil, failure(err))
	}
}

// failure tells what certainly was not sent from what may have been.
func failure(err error) error {
	for _, e := range [...]error{
		nats.ErrConnectionClosed, nats.ErrConnectionDraining, nats.ErrReconnectBufExceeded, nats.ErrMaxPayload, nats.ErrBadSubject,
	} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", ErrNotSent, err)
		}
	}
	return fmt.Errorf("%w: %w", ErrNoAnswer, err)
}

// reply takes an answer.
func (a *Asker) reply(m *nats.Msg) {
	id, err := strconv.ParseUint(m.Subject[len(a.prefix):], 36, 64)
	switch {
	case err != nil:
	case len(m.Data) == 0 && m.Header.Get("Status") == "503":
		a.finish(id, nil, ErrNotSent)
	default:
		a.finish(id, m, nil)
	}
}

// finish answers a request that flies, if it still does.
func (a *Asker) finish(id uint64, m *nats.Msg, err error) {
	a.mu.Lock()
	r := a.flying[id]
	if r == nil {
		a.lateOnes++
		a.mu.Unlock()
		return
	}
	delete(a.flying, id)
	a.bytes -= size(r)
	if a.waiting.len() > 0 {
		signal(a.work)
	}
	a.mu.Unlock()
	r.Done(m, err)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// size is what a request counts: its message, and generously what belongs to it.
func size(r *Request) int { return len(r.Msg.Data) + 256 }
