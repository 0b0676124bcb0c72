package publisher

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dnprelay/dnprelay/replication"
)

// Bounds of what waits for a Space's goroutine. What NATS drops beyond them counts as lost: the Space
// repeats a request without an answer, and streams of events ask the edges which clients are there.
// Up to Config.Window answers can be under way, and as many that come too late.
const (
	answersMax = 128
	newsMax    = 1024
)

// A Position is how far a space is: the epoch of the relay that holds it, and the
// sequence number of the batch.
type Position = replication.Position

// A Space is one world, match or room of a game server. Its methods may be called from
// any goroutine. It costs little before its first use; from then on one goroutine works for it until Close.
type Space struct {
	p    *Publisher
	name string

	ctx     context.Context // until Close
	stop    context.CancelFunc
	running sync.WaitGroup // run, and the answers to refused commands

	wake     chan struct{} // one slot: something is to be sent, or to be told
	in       subscriptions
	refusals refusals
	dirty    dirtyList

	// mu is of what follows. A method that changes the copy does it itself, and must not wait while the
	// goroutine waits for the network; run holds mu only to compute.
	mu sync.Mutex

	started bool
	copied

	out         outbox
	sent        map[uint64]*request
	doubts      []uint64 // requests of sent whose answer the relay is to be asked for
	unplaced    unplaced
	inFlight    map[topic]*pendingOp // lists of the ops of sent, by topic
	delayed     schedule
	asserting   []*state // what a new relay has yet to hear of
	lives       lives
	last        uint64        // id of the last request
	backoff     time.Duration // pause after the next failure
	pausedUntil time.Time     // flush sends nothing before
	epoch       uint64        // the highest that an answer or event named
	heard       time.Time     // when a relay last answered, or was asked for the epoch
	outage      outage
	counters    Stats // of what happened since the Space was opened
	streams     map[*stream]bool
	attached    bool     // streams has changed
	untold      []func() // calls of the functions of the Config, which run makes without mu
}

func newSpace(p *Publisher, name string) *Space {
	s := &Space{
		p: p, name: name, wake: make(chan struct{}, 1), copied: copied{states: map[string]*state{}, groups: map[string]map[string]bool{}, interests: map[string]namedInterest{}, eyes: map[string]json.RawMessage{}},
		out: outbox{ops: map[topic]*pendingOp{}}, sent: map[uint64]*request{}, inFlight: map[topic]*pendingOp{}, unplaced: unplaced{}, backoff: p.cfg.Retry,
	}
	s.ctx, s.stop = context.WithCancel(p.ctx)
	return s
}

// start lets run work for the Space, if it does not yet. The caller holds mu.
func (s *Space) start() error {
	switch {
	case s.ctx.Err() != nil:
		return ErrClosed
	case !s.started:
		s.started = true
		s.running.Go(s.run)
	}
	return nil
}

// Close ends the Space at once. It drops what no relay has accepted: call Flush before. The states stay in the
// relay. The name may be used again.
func (s *Space) Close() {
	s.p.forget(s)
	s.close()
}

func (s *Space) close() {
	s.mu.Lock() // start and answerRefused begin nothing later
	s.stop()
	s.mu.Unlock()
	s.running.Wait()
}

// subscriptions are what the Space hears from NATS. The goroutine of run owns them.
type subscriptions struct {
	nc      *nats.Conn
	news    chan *nats.Msg // answers, events, messages and commands, in the order in which NATS brings them
	inbox   string         // prefix of the subjects of answers
	subs    map[string]*nats.Subscription
	dropped int  // news that NATS dropped
	stale   bool // what streams want has changed
}

// A wantedSubject is what streams want to hear.
type wantedSubject struct{ subject, queue string }

// reply returns the subject of the answer to a request.
func (e *subscriptions) reply(id uint64) string { return e.inbox + strconv.FormatUint(id, 10) }

// open begins to hear answers and events. It fails only if the connection is closed.
func (e *subscriptions) open(nc *nats.Conn, answersMax int, events string) error {
	*e = subscriptions{nc: nc, news: make(chan *nats.Msg, answersMax+newsMax), inbox: nc.NewInbox() + ".", subs: map[string]*nats.Subscription{}}
	if err := e.hear("answers", wantedSubject{subject: e.inbox + "*"}, e.news); err != nil {
		return err
	}
	return e.hear("events", wantedSubject{subject: events}, e.news)
}

// want hears the wanted subjects, and no others but answers and events.
func (e *subscriptions) want(wanted map[string]wantedSubject) error {
	for name, sub := range e.subs {
		if _, ok := wanted[name]; !ok && name != "answers" && name != "events" {
			unsubscribe(sub)
			delete(e.subs, name)
		}
	}
	for name, w := range wanted {
		if e.subs[name] == nil {
			if err := e.hear(name, w, e.news); err != nil {
				return err
			}
		}
	}
	return nil
}

// lost reports whether NATS dropped news since the last call.
func (e *subscriptions) lost() bool {
	all := 0
	for name, sub := range e.subs {
		if n, err := sub.Dropped(); err == nil && name != "answers" {
			all += n
		}
	}
	more := all > e.dropped
	e.dropped = all
	return more
}

func (e *subscriptions) hear(name string, w wantedSubject, to chan *nats.Msg) (err error) {
	if w.queue == "" {
		e.subs[name], err = e.nc.ChanSubscribe(w.subject, to)
	} else {
		e.subs[name], err = e.nc.ChanQueueSubscribe(w.subject, w.queue, to)
	}
	if err != nil {
		delete(e.subs, name)
	}
	return err
}

func (e *subscriptions) close() {
	for _, sub := range e.subs {
		unsubscribe(sub)
	}
}

func unsubscribe(sub *nats.Subscription) { _ = sub.Unsubscribe() } // fails only if the connection is closed

// Name returns the name of the space.
func (s *Space) Name() string { return s.name }

// Publish applies ops to the copy and waits until the relay has accepted all of them. It
// sends them together, and returns the position of the batch that has them. Changes of many states reach a client in several
// datagrams, in any order, so it may have some of them a while before the others. If an op cannot be right, nothing is sent and an *Error says why.
// If the relay refuses an op, an *Error says why, and the other ops stand. An error of ctx
// takes nothing back: the Space repeats the ops until the relay accepts them, or a later
// op contradicts them.
func (s *Space) Publish(ctx context.Context, ops ...Op) (Position, error) {
	w := &waiter{done: make(chan struct{})}
	if err := s.submit(ctx, ops, w); err != nil || len(ops) == 0 {
		return Position{}, err
	}
	return s.wait(ctx, w)
}

// Post applies ops to the copy and does not wait for the relay. The error is about ops
// that cannot be right. Config.Refused is called for ops that the relay refuses.
func (s *Space) Post(ops ...Op) error { return s.submit(context.Background(), ops, nil) }

// nudge lets run look at what is to be done.
func (s *Space) nudge() { signal(s.wake) }

// signal fills a channel of one slot, whose receiver will look anyway if it is full.
func signal(slot chan struct{}) {
	select {
	case slot <- struct{}{}:
	default:
	}
}

// Flush waits until everything that was published before is accepted or refused.
func (s *Space) Flush(ctx context.Context) error {
	w := &waiter{done: make(chan struct{})}
	err := s.do(func(now time.Time) error {
		s.drain()
		s.assertSome(len(s.asserting))
		for _, p := range s.out.ops {
			p.addWaiter(w)
		}
		for _, d := range s.delayed {
			if !d.op.asserts() { // the relay may never hear of that state
				d.op.addWaiter(w)
			}
		}
		for _, r := range s.sent {
			for _, p := range r.ops {
				p.addWaiter(w)
			}
		}
		if w.ops == 0 {
			close(w.done)
		}
		return nil
	})
	if err == nil {
		_, err = s.wait(ctx, w)
	}
	return err
}

// submit checks ops, applies them to the copy if all are right, and lets w wait for them;
// w may be nil.
func (s *Space) submit(ctx context.Context, ops []Op, w *waiter) error {
	list := make([]op, len(ops))
	for i, o := range ops {
		var err error
		if list[i], err = o.encode(); err != nil {
			return err
		}
		list[i].trace = traceOf(ctx)
	}
	return s.submitEncoded(list, w)
}

func (s *Space) submitEncoded(list []op, w *waiter) error {
	if len(list) == 0 {
		return nil
	}
	return s.do(func(now time.Time) error {
		s.drain() // what was set before comes first
		if err := s.check(list); err != nil {
			return err
		}
		for _, e := range list {
			s.apply(now, e, w)
		}
		return nil
	})
}

// do executes f with the copy, and lets run send what f made pending.
func (s *Space) do(f func(now time.Time) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.start(); err != nil {
		return err
	}
	defer s.nudge()
	return f(time.Now())
}

func (s *Space) wait(ctx context.Context, w *waiter) (Position, error) {
	select {
	case <-w.done:
		return w.position, errors.Join(w.errs...)
	case <-ctx.Done():
		return Position{}, ctx.Err()
	case <-s.ctx.Done():
		return Position{}, ErrClosed
	}
}

// run sends what is pending, and hears answers and events, until Close.
func (s *Space) run() {
	defer s.in.close()
	for s.in.open(s.p.nc, max(answersMax, 2*s.p.cfg.Window), s.p.subjects.Event(s.name)) != nil { // the connection was closed before the Space
		s.in.close()
		if !sleep(s.ctx, backoffMax) {
			return
		}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case m := <-s.in.news:
			if strings.HasPrefix(m.Subject, s.in.inbox) {
				s.locked(func(now time.Time) { s.answered(now, m) })
			} else {
				s.hear(m)
			}
		case <-s.wake:
		case <-timer.C:
		}
		timer.Reset(s.turn())
	}
}

// locked executes f with mu.
func (s *Space) locked(f func(now time.Time)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(time.Now())
}

// turn does what is due, sends at most one publish, and returns how long run may sleep.
func (s *Space) turn() time.Duration {
	var next *transmission
	var wait time.Duration
	s.locked(func(now time.Time) {
		s.drain()
		s.expire(now)
		s.pushDelayed(now)
		if s.assertable() {
			s.assertSome(assertMax)
		}
		s.lives.renew(now, s)
		if next = s.probe(now); next == nil {
			next = s.flush(now)
		}
	})
	s.listen()
	lost := s.in.lost()
	if next != nil {
		err := s.p.nc.PublishMsg(next.msg)
		s.locked(func(now time.Time) { s.transmitted(now, next, err) })
	}
	var untold []func()
	s.locked(func(now time.Time) {
		s.judge(now)
		wait = s.untilNext(now)
		untold, s.untold = s.untold, nil
		for st := range s.streams {
			if lost {
				st.lose()
			}
		}
	})
	for _, tell := range untold {
		tell()
	}
	return wait
}

// untilNext returns how long run may sleep.
func (s *Space) untilNext(now time.Time) time.Duration {
	if s.assertable() || s.lives.renewable(&s.out) || s.sendable(now) || len(s.doubts) > 0 {
		return 0
	}
	at := now.Add(s.p.cfg.Probe)
	if len(s.states) > 0 && len(s.sent) == 0 {
		at = s.heard.Add(s.p.cfg.Probe)
	}
	if next, ok := s.lives.next(); ok && next.Before(at) {
		at = next
	}
	for _, r := range s.sent {
		if r.deadline.Before(at) {
			at = r.deadline
		}
	}
	if len(s.delayed) > 0 && s.delayed[0].at.Before(at) {
		at = s.delayed[0].at
	}
	if !s.out.empty() && s.pausedUntil.After(now) && s.pausedUntil.Before(at) {
		at = s.pausedUntil
	}
	if next, ok := s.outage.next(); ok && next.Before(at) {
		at = next
	}
	return max(at.Sub(now), time.Millisecond)
}
