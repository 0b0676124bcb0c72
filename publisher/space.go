package publisher

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
)

// Bounds of what waits for a Space's goroutine. What NATS drops beyond them counts as
// lost: the Space repeats a request without an answer, and the next answer names a new
// epoch.
const (
	answersMax = 1024
	eventsMax  = 8192
)

// A Position is how far a space is: the epoch of the relay that holds it, and the
// sequence number of the batch.
type Position struct{ Epoch, Seq uint64 }

func (p Position) after(q Position) bool {
	return p.Epoch > q.Epoch || p.Epoch == q.Epoch && p.Seq > q.Seq
}

// A Space is one world, match or room of a game server. Its methods may be called from
// any goroutine.
type Space struct {
	p    *Publisher
	name string

	calls   chan func(now time.Time) // what run executes for methods
	answers chan *nats.Msg
	events  chan *nats.Msg
	inbox   string // prefix of the subjects of answers
	subs    []*nats.Subscription

	refusals refusals

	// The goroutine of run owns all that follows.
	states  map[string]*state
	removed []string                   // keys, in the order of their removal
	groups  map[string]map[string]bool // of clients: true = join, false = leave

	out         outbox
	sent        map[uint64]*request
	inFlight    map[topic]int // ops of sent, by topic
	delayed     []delayedOp   // in the order of their times
	last        uint64        // id of the last request
	backoff     time.Duration // pause after the next failure
	pausedUntil time.Time     // flush sends nothing before
	epoch       uint64        // the highest that an answer or event named
	heard       time.Time     // when a relay last answered, or was asked for the epoch
}

func newSpace(p *Publisher, name string) (*Space, error) {
	s := &Space{
		p: p, name: name, calls: make(chan func(time.Time)), answers: make(chan *nats.Msg, answersMax), events: make(chan *nats.Msg, eventsMax),
		inbox: p.nc.NewInbox() + ".", states: map[string]*state{}, groups: map[string]map[string]bool{},
		out: outbox{ops: map[topic]*pendingOp{}}, sent: map[uint64]*request{}, inFlight: map[topic]int{}, backoff: p.cfg.Retry,
	}
	for subject, to := range map[string]chan *nats.Msg{s.inbox + "*": s.answers, p.subjects.Event(name): s.events} {
		sub, err := p.nc.ChanSubscribe(subject, to)
		if err != nil {
			s.unsubscribe()
			return nil, err
		}
		s.subs = append(s.subs, sub)
	}
	return s, nil
}

func (s *Space) unsubscribe() {
	for _, sub := range s.subs {
		_ = sub.Unsubscribe() // fails only if the connection is closed
	}
}

// Name returns the name of the space.
func (s *Space) Name() string { return s.name }

// Publish applies ops to the copy and waits until the relay has accepted all of them. It
// sends them together, so that clients see them at once, and returns the position of the
// batch that has them. If an op cannot be right, nothing is sent and an *Error says why.
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

// Flush waits until everything that was published before is accepted or refused.
func (s *Space) Flush(ctx context.Context) error {
	w := &waiter{done: make(chan struct{})}
	err := s.do(ctx, func(time.Time) error {
		for _, p := range s.out.ops {
			p.addWaiter(w)
		}
		for _, d := range s.delayed {
			d.op.addWaiter(w)
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
	}
	if len(list) == 0 {
		return nil
	}
	return s.do(ctx, func(now time.Time) error {
		if err := s.check(list); err != nil {
			return err
		}
		for _, e := range list {
			s.apply(now, e, w)
		}
		return nil
	})
}

// do lets run execute f.
func (s *Space) do(ctx context.Context, f func(now time.Time) error) error {
	done := make(chan error, 1)
	select {
	case s.calls <- func(now time.Time) { done <- f(now) }:
		return <-done
	case <-s.p.ctx.Done():
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Space) wait(ctx context.Context, w *waiter) (Position, error) {
	select {
	case <-w.done:
		return w.position, errors.Join(w.errs...)
	case <-ctx.Done():
		return Position{}, ctx.Err()
	case <-s.p.ctx.Done():
		return Position{}, ErrClosed
	}
}

// run owns the copy until the Publisher is closed.
func (s *Space) run() {
	defer s.unsubscribe()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.p.ctx.Done():
			return
		case f := <-s.calls:
			f(time.Now())
		case m := <-s.answers:
			s.answered(time.Now(), m)
		case m := <-s.events:
			s.event(time.Now(), m.Data)
		case <-timer.C:
		}
		now := time.Now()
		s.expire(now)
		s.pushDelayed(now)
		s.probe(now)
		s.flush(now)
		timer.Reset(s.untilNext(now))
	}
}

// untilNext returns how long run may sleep.
func (s *Space) untilNext(now time.Time) time.Duration {
	at := now.Add(s.p.cfg.Probe)
	if len(s.states) > 0 && len(s.sent) == 0 {
		at = s.heard.Add(s.p.cfg.Probe)
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
	return max(at.Sub(now), time.Millisecond)
}
