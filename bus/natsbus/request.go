package natsbus

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/bus"
)

// requests are the requests that wait for an answer. Callers add them; the inbox, their timers,
// the sender or Close end them. The mutex decides which of these comes first.
type requests struct {
	inbox string // prefix of the reply subjects

	mu      sync.Mutex
	waiting map[uint64]*request // nil once closed
	next    uint64
	max     int
}

type request struct {
	handle func(bus.Msg, error)
	timer  *time.Timer
}

// Request implements bus.Bus.
func (b *Bus) Request(m bus.Msg, timeout time.Duration, handle func(bus.Msg, error)) {
	token, err := b.requests.add(timeout, handle)
	if err != nil {
		b.counters.dropped(err)
		handle(bus.Msg{}, err)
		return
	}
	m.Reply = b.requests.inbox + strconv.FormatUint(token, 36)
	if err := b.enqueue(op{msg: m, token: token}); err != nil {
		b.requests.finish(token, bus.Msg{}, err)
	}
}

func (r *requests) add(timeout time.Duration, handle func(bus.Msg, error)) (token uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.waiting == nil:
		return 0, bus.ErrClosed
	case len(r.waiting) >= r.max:
		return 0, bus.ErrBusy
	}
	r.next++
	token = r.next
	r.waiting[token] = &request{
		handle: handle,
		timer:  time.AfterFunc(timeout, func() { r.finish(token, bus.Msg{}, bus.ErrTimeout) }),
	}
	return token, nil
}

// finish ends a request that has not ended.
func (r *requests) finish(token uint64, m bus.Msg, err error) {
	r.mu.Lock()
	q := r.waiting[token]
	delete(r.waiting, token)
	r.mu.Unlock()
	if q == nil {
		return // a second answer, or a late one
	}
	q.timer.Stop()
	q.handle(m, err)
}

func (r *requests) answered(m bus.Msg) {
	token, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, r.inbox), 36, 64)
	if err != nil {
		return // Request made no such subject
	}
	if m.NoResponders() {
		r.finish(token, bus.Msg{}, bus.ErrNoResponders)
		return
	}
	r.finish(token, m, nil)
}

func (r *requests) close() {
	r.mu.Lock()
	waiting := r.waiting
	r.waiting = nil
	r.mu.Unlock()
	for _, q := range waiting {
		q.timer.Stop()
		q.handle(bus.Msg{}, bus.ErrClosed)
	}
}
