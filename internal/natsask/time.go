package natsask

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
)

// keepTime gives up what takes too long, until ctx ends.
func (a *Asker) keepTime(ctx context.Context) {
	tick := time.NewTicker(max(a.cfg.Timeout/ticksPerTimeout, time.Millisecond))
	defer tick.Stop()
	status := a.status
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.refuse:
			a.answerRefused()
		case now := <-tick.C:
			a.expire(now)
		case s, ok := <-status:
			if !ok {
				status = nil // closed with the connection
			}
			if !ok || s != nats.CONNECTED {
				a.disconnected()
			}
		}
	}
}

// expire gives up what waits since before now minus the timeout.
func (a *Asker) expire(now time.Time) {
	old := now.Add(-a.cfg.Timeout)
	a.mu.Lock()
	unsent := a.refused
	a.refused = nil
	for a.waiting.len() > 0 && a.waiting.first().since.Before(old) {
		r := a.waiting.pop()
		a.bytes -= size(r)
		unsent = append(unsent, r)
	}
	unanswered := a.landLocked(func(r *Request) bool { return r.since.Before(old) })
	a.mu.Unlock()
	give(unsent, ErrNotSent)
	give(unanswered, ErrNoAnswer)
}

// disconnected gives up what flies: its answers cannot come any more. That saves the
// rest of the timeout.
func (a *Asker) disconnected() {
	a.mu.Lock()
	unanswered := a.landLocked(func(*Request) bool { return true })
	a.mu.Unlock()
	give(unanswered, ErrNoAnswer)
}

func (a *Asker) answerRefused() {
	a.mu.Lock()
	refused := a.refused
	a.refused = nil
	a.mu.Unlock()
	give(refused, ErrNotSent)
}

// landLocked takes those that fly and for which given up is true from the oldest on.
func (a *Asker) landLocked(givenUp func(*Request) bool) (all []*Request) {
	for a.order.len() > 0 {
		r := a.order.first()
		if a.flying[r.id] == nil {
			a.order.pop()
			continue
		}
		if !givenUp(r) {
			break
		}
		a.order.pop()
		delete(a.flying, r.id)
		a.bytes -= size(r)
		all = append(all, r)
	}
	if a.waiting.len() > 0 {
		signal(a.work)
	}
	return all
}

func give(all []*Request, err error) {
	for _, r := range all {
		r.Done(nil, err)
	}
}
