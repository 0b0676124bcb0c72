package natsbus

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/internal/turn"
	"github.com/nats-io/nats.go"
)

// opOverhead is added to the bytes of each operation in the queue.
const opOverhead = 128

// An op waits for the sender: a message, or a function to call.
type op struct {
	msg   bus.Msg
	token uint64 // of the request in the message; 0 for no request
	do    func() // instead of msg
}

// An outbox is the queue of the sender. Any goroutine fills it and the sender empties it, hence
// the mutex; a channel could be bounded in messages only, not in bytes.
type outbox struct {
	mu       sync.Mutex
	ops      []op
	bytes    int
	bytesMax int
	closed   bool
	wake     turn.Wake
}

// push appends an operation, unless the queue is closed, or the operation is a message and the
// queue is full. An empty queue accepts every message. A function must not be lost; the
// subscriptions of the callers bound their number.
func (x *outbox) push(o op) error {
	n := opOverhead + len(o.msg.Subject) + len(o.msg.Data)
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.closed:
		return bus.ErrClosed
	case o.do == nil && x.bytes > 0 && x.bytes+n > x.bytesMax:
		return bus.ErrBusy
	}
	x.ops = append(x.ops, o)
	x.bytes += n
	x.wake.Wake()
	return nil
}

// take returns all waiting operations, and continues the queue in spare.
func (x *outbox) take(spare []op) (ops []op, closed bool) {
	clear(spare)
	x.mu.Lock()
	defer x.mu.Unlock()
	ops, x.ops, x.bytes = x.ops, spare[:0], 0
	return ops, x.closed
}

func (x *outbox) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	x.wake.Wake()
}

// send runs until the outbox is closed and empty.
func (b *Bus) send() {
	defer close(b.sent)
	var ops []op
	for range b.out.wake {
		var closed bool
		ops, closed = b.out.take(ops)
		for i := range ops {
			b.sendOne(&ops[i])
		}
		if closed {
			return // nothing is added to a closed outbox
		}
	}
}

func (b *Bus) sendOne(o *op) {
	if o.do != nil {
		o.do()
		return
	}
	m := nats.Msg{Subject: o.msg.Subject, Reply: o.msg.Reply, Data: o.msg.Data}
	if len(o.msg.Header) > 0 {
		m.Header = make(nats.Header, len(o.msg.Header))
		for k, v := range o.msg.Header {
			m.Header[k] = []string{v}
		}
	}
	err := translate(b.nc.PublishMsg(&m))
	if err == nil {
		b.counters.published.Add(1)
		b.counters.publishedBytes.Add(uint64(len(m.Data)))
		return
	}
	b.counters.dropped(err)
	if o.token != 0 {
		b.requests.finish(o.token, bus.Msg{}, err)
	}
}

func translate(err error) error {
	switch {
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionReconnecting):
		return bus.ErrDisconnected
	case errors.Is(err, nats.ErrConnectionClosed):
		return bus.ErrClosed
	case errors.Is(err, nats.ErrMaxPayload):
		return bus.ErrMessageSize
	}
	return err
}

// requests are the requests that wait for an answer. Callers add them; the inbox, their timers,
// the sender or Close end them. The mutex decides which of these comes first.
type requests struct {
	inbox string // prefix of the reply subjects
	peers string // the same for requests to peers; empty if there is none

	mu      sync.Mutex
	waiting map[uint64]*request // by token; nil once closed
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
	inbox := b.requests.inbox
	if m.Reply == b.cfg.PeerInbox && b.requests.peers != "" {
		inbox = b.requests.peers
	}
	m.Reply = inbox + strconv.FormatUint(token, 36)
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
	for token == 0 || r.waiting[token] != nil {
		token = newToken()
	}
	r.waiting[token] = &request{
		handle: handle,
		timer:  time.AfterFunc(timeout, func() { r.finish(token, bus.Msg{}, bus.ErrTimeout) }),
	}
	return token, nil
}

// newToken returns what ends the reply subject of a request. It is random: other programs of the
// same role may listen to the inbox and send to it, and must not know where the next answer is awaited.
func newToken() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
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
	token, err := strconv.ParseUint(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:], 36, 64)
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
