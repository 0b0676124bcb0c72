package publisher

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// Bounds of what arrives and was not looked at. What is dropped beyond counts as lost:
// an answer is asked for again, and a new epoch is seen in the next answer.
const (
	answersMax = 1024
	eventsMax  = 8192
)

// A Position is how far a space is: who holds authority, and the how-manieth batch.
type Position struct{ Epoch, Seq uint64 }

func (p Position) after(q Position) bool {
	return p.Epoch > q.Epoch || p.Epoch == q.Epoch && p.Seq > q.Seq
}

// A Space is one world, match or room, as a game server has it. Its methods may be
// called from any goroutine.
type Space struct {
	p    *Publisher
	name string

	calls   chan call
	answers chan *nats.Msg
	events  chan *nats.Msg
	inbox   string
	subs    []*nats.Subscription

	// What follows is owned by run.
	states  map[string]*state
	removed []string                   // keys, the longest ago first
	groups  map[string]map[string]bool // of clients: true = join, false = leave
	out     outbox
	sent    map[uint64]*message
	late    []lateWord    // the earliest first
	last    uint64        // id of the last message
	pause   time.Duration // before the next try, if this one fails
	quiet   time.Time     // nothing is sent before
	epoch   uint64        // the highest that was heard
	heard   time.Time     // when a relay last answered, or was asked how far it is
}

// A call is something that a method wants run to do.
type call struct {
	do  func(now time.Time) error
	err chan error
}

func newSpace(p *Publisher, name string) (*Space, error) {
	s := &Space{
		p: p, name: name, calls: make(chan call), answers: make(chan *nats.Msg, answersMax), events: make(chan *nats.Msg, eventsMax),
		inbox: p.nc.NewInbox(), states: map[string]*state{}, groups: map[string]map[string]bool{},
		out: outbox{words: map[topic]*word{}}, sent: map[uint64]*message{}, pause: p.cfg.Retry,
	}
	for subject, to := range map[string]chan *nats.Msg{s.inbox + ".*": s.answers, p.subjects.Event(name): s.events} {
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

// run owns the copy until the Publisher is closed.
func (s *Space) run() {
	defer s.unsubscribe()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.p.ctx.Done():
			return
		case c := <-s.calls:
			c.err <- c.do(time.Now())
		case m := <-s.answers:
			s.answered(time.Now(), m)
		case m := <-s.events:
			s.event(time.Now(), m.Data)
		case <-timer.C:
		}
		now := time.Now()
		s.overdue(now)
		s.due(now)
		s.probe(now)
		s.flush(now)
		timer.Reset(s.next(now))
	}
}

// do lets run do something.
func (s *Space) do(ctx context.Context, f func(now time.Time) error) error {
	c := call{f, make(chan error, 1)}
	select {
	case s.calls <- c:
		return <-c.err
	case <-s.p.ctx.Done():
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Publish says ops, and waits until the relay has accepted all of them; they go out
// together, so that clients see them at once. It returns the position that has them. An
// *Error says what was refused: before anything is sent, all ops; by the relay, that op
// alone. An error of ctx takes nothing back: what was said is said again until it is
// accepted, or contradicted by a later op.
func (s *Space) Publish(ctx context.Context, ops ...Op) (Position, error) {
	w := &waiter{done: make(chan struct{})}
	if err := s.sayAll(ctx, ops, w); err != nil {
		return Position{}, err
	}
	return s.wait(ctx, w)
}

// Post says ops and does not wait. The error is about ops that cannot be right. What
// the relay refuses Config.Refused hears.
func (s *Space) Post(ops ...Op) error { return s.sayAll(context.Background(), ops, nil) }

// Flush waits until everything that was said is accepted or refused.
func (s *Space) Flush(ctx context.Context) error {
	w := &waiter{done: make(chan struct{})}
	err := s.do(ctx, func(time.Time) error {
		for _, t := range s.out.order {
			s.out.words[t].add(w)
		}
		for _, l := range s.late {
			l.word.add(w)
		}
		for _, m := range s.sent {
			for _, word := range m.words {
				word.add(w)
			}
		}
		if w.words == 0 {
			close(w.done)
		}
		return nil
	})
	if err == nil {
		_, err = s.wait(ctx, w)
	}
	return err
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

func (s *Space) sayAll(ctx context.Context, ops []Op, w *waiter) error {
	list := make([]op, len(ops))
	for i, o := range ops {
		var err error
		if list[i], err = o.encode(); err != nil {
			return err
		}
	}
	if len(list) == 0 {
		if w != nil {
			close(w.done)
		}
		return nil
	}
	return s.do(ctx, func(now time.Time) error {
		if err := s.check(list); err != nil {
			return err
		}
		for _, e := range list {
			s.say(now, e, w)
		}
		return nil
	})
}

// next returns for how long run may sleep.
func (s *Space) next(now time.Time) time.Duration {
	at := now.Add(s.p.cfg.Probe)
	if len(s.states) > 0 && len(s.sent) == 0 {
		at = s.heard.Add(s.p.cfg.Probe)
	}
	for _, m := range s.sent {
		if m.deadline.Before(at) {
			at = m.deadline
		}
	}
	if len(s.late) > 0 && s.late[0].at.Before(at) {
		at = s.late[0].at
	}
	if !s.out.empty() && s.quiet.After(now) && s.quiet.Before(at) {
		at = s.quiet
	}
	return max(at.Sub(now), time.Millisecond)
}

// message ids are the last token of the subjects of answers.
func (s *Space) id(subject string) (uint64, bool) {
	if len(subject) <= len(s.inbox)+1 {
		return 0, false
	}
	id, err := strconv.ParseUint(subject[len(s.inbox)+1:], 10, 64)
	return id, err == nil
}
