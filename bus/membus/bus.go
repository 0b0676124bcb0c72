package membus

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/subject"
)

// A Bus is the connection of one node to the hub.
type Bus struct {
	hub       *Hub
	name      string
	connected bool
	closed    bool
	onChange  []func(bool)
	requests  []*request // in the order of the requests
	inboxes   int
}

var _ bus.Bus = (*Bus)(nil)

// Publish implements bus.Bus.
func (b *Bus) Publish(m bus.Msg) error {
	if err := b.check(&m); err != nil {
		return err
	}
	interest := b.hub.publish(b, m)
	if !interest && m.Reply != "" {
		b.hub.publish(b, bus.Msg{
			Subject: m.Reply,
			Header:  map[string]string{bus.HeaderStatus: bus.StatusNoResponders},
		})
	}
	return nil
}

func (b *Bus) check(m *bus.Msg) error {
	switch {
	case b.closed:
		return bus.ErrClosed
	case !b.connected:
		return bus.ErrDisconnected
	case len(m.Data) > b.hub.MessageMax:
		return bus.ErrMessageSize
	}
	if !subject.Valid(m.Subject, false) {
		return fmt.Errorf("bad subject %q", m.Subject)
	}
	return nil
}

// Subscribe implements bus.Bus.
func (b *Bus) Subscribe(pattern string, handle func(bus.Msg)) (unsubscribe func(), err error) {
	if b.closed {
		return nil, bus.ErrClosed
	}
	if !subject.Valid(pattern, true) {
		return nil, fmt.Errorf("bad subject %q", pattern)
	}
	s := &subscription{bus: b, pattern: tokens(pattern), handle: handle, transits: map[string]*transit{}}
	b.hub.subs = append(b.hub.subs, s)
	return func() {
		s.off = true
		b.hub.remove(s)
	}, nil
}

// SubscribeShared implements bus.Bus. It is Subscribe, because no subscription has a goroutine
// here.
func (b *Bus) SubscribeShared(pattern string, handle func(bus.Msg)) (unsubscribe func(), err error) {
	return b.Subscribe(pattern, handle)
}

// A request waits for its answer.
type request struct {
	unsubscribe func()
	handle      func(bus.Msg, error)
}

// Request implements bus.Bus.
func (b *Bus) Request(m bus.Msg, timeout time.Duration, handle func(bus.Msg, error)) {
	if err := b.check(&m); err != nil {
		b.hub.Schedule(0, func() { handle(bus.Msg{}, err) })
		return
	}
	b.inboxes++
	m.Reply = "_INBOX." + b.name + "." + strconv.Itoa(b.inboxes)
	r := &request{handle: handle}
	// This cannot fail: the subject is valid and the bus is open.
	r.unsubscribe, _ = b.Subscribe(m.Reply, func(answer bus.Msg) {
		if answer.NoResponders() {
			b.finish(r, bus.Msg{}, bus.ErrNoResponders)
			return
		}
		b.finish(r, answer, nil)
	})
	b.requests = append(b.requests, r)
	b.hub.Schedule(timeout, func() { b.finish(r, bus.Msg{}, bus.ErrTimeout) })
	_ = b.Publish(m) // m is checked above
}

// finish ends a request that has not ended.
func (b *Bus) finish(r *request, m bus.Msg, err error) {
	if r.handle == nil {
		return
	}
	handle := r.handle
	r.handle = nil
	r.unsubscribe()
	b.requests = slices.DeleteFunc(b.requests, func(other *request) bool { return other == r })
	handle(m, err)
}

// Connected implements bus.Bus.
func (b *Bus) Connected() bool { return b.connected }

// OnChange implements bus.Bus.
func (b *Bus) OnChange(f func(connected bool)) { b.onChange = append(b.onChange, f) }

// SetConnected disconnects the node, or reconnects it with its subscriptions. Messages in
// transit to it are lost.
func (b *Bus) SetConnected(connected bool) {
	if b.closed || b.connected == connected {
		return
	}
	b.connected = connected
	for _, s := range b.hub.subs {
		if s.bus == b {
			s.drop(b.hub)
		}
	}
	for _, f := range b.onChange {
		f(connected)
	}
}

// drop loses the messages in transit. Their scheduled functions find a transit that is marked
// as dropped.
func (s *subscription) drop(h *Hub) {
	for _, t := range s.transits {
		h.Stats.Lost += uint64(len(t.waiting))
		t.dropped = true
	}
	clear(s.transits)
}

// Close disconnects the node for good. Waiting requests end with ErrClosed.
func (b *Bus) Close() {
	b.closed, b.connected = true, false
	for i := len(b.hub.subs) - 1; i >= 0; i-- {
		if s := b.hub.subs[i]; s.bus == b {
			s.off = true
			b.hub.remove(s)
		}
	}
	for len(b.requests) > 0 {
		b.finish(b.requests[0], bus.Msg{}, bus.ErrClosed)
	}
	delete(b.hub.nodes, b.name)
}
