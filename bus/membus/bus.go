package membus

import (
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/bus"
)

// A Bus is one node's connection to the hub.
type Bus struct {
	hub       *Hub
	name      string
	connected bool
	closed    bool
	onChange  []func(bool)
	requests  []*request // in the order of asking
	inboxes   int
}

var _ bus.Bus = (*Bus)(nil)

// Publish implements replication.Bus.
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
	return check(m.Subject, false)
}

// Subscribe implements replication.Bus.
func (b *Bus) Subscribe(subject string, handle func(bus.Msg)) (unsubscribe func(), err error) {
	if b.closed {
		return nil, bus.ErrClosed
	}
	if err := check(subject, true); err != nil {
		return nil, err
	}
	s := &subscription{bus: b, pattern: tokens(subject), handle: handle, lanes: map[string]*lane{}}
	b.hub.subs = append(b.hub.subs, s)
	return func() {
		s.off = true
		b.hub.remove(s)
	}, nil
}

// SubscribeShared implements replication.Bus. Nothing has a goroutine here.
func (b *Bus) SubscribeShared(subject string, handle func(bus.Msg)) (unsubscribe func(), err error) {
	return b.Subscribe(subject, handle)
}

// A request waits for its answer.
type request struct {
	unsubscribe func()
	handle      func(bus.Msg, error)
}

// Request implements replication.Bus.
func (b *Bus) Request(m bus.Msg, timeout time.Duration, handle func(bus.Msg, error)) {
	if err := b.check(&m); err != nil {
		b.hub.Schedule(0, func() { handle(bus.Msg{}, err) })
		return
	}
	b.inboxes++
	m.Reply = "_INBOX." + b.name + "." + strconv.Itoa(b.inboxes)
	r := &request{handle: handle}
	// The subject is valid and the bus open, so this cannot fail.
	r.unsubscribe, _ = b.Subscribe(m.Reply, func(answer bus.Msg) {
		if answer.NoResponders() {
			b.finish(r, bus.Msg{}, bus.ErrNoResponders)
			return
		}
		b.finish(r, answer, nil)
	})
	b.requests = append(b.requests, r)
	b.hub.Schedule(timeout, func() { b.finish(r, bus.Msg{}, bus.ErrTimeout) })
	_ = b.Publish(m) // was checked
}

// finish ends a request, unless that happened before.
func (b *Bus) finish(r *request, m bus.Msg, err error) {
	if r.handle == nil {
		return
	}
	handle := r.handle
	r.handle = nil
	r.unsubscribe()
	for i, other := range b.requests {
		if other == r {
			b.requests = append(b.requests[:i], b.requests[i+1:]...)
			break
		}
	}
	handle(m, err)
}

// Connected implements replication.Bus.
func (b *Bus) Connected() bool { return b.connected }

// OnChange implements replication.Bus.
func (b *Bus) OnChange(f func(connected bool)) { b.onChange = append(b.onChange, f) }

// SetConnected takes the node off the bus, or brings it back with its
// subscriptions. What was on the way to it is lost.
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

// drop loses what is on the way. The functions that were to deliver it find a
// lane that nobody uses any more.
func (s *subscription) drop(h *Hub) {
	for _, l := range s.lanes {
		h.Stats.Lost += uint64(len(l.waiting))
		l.dropped = true
	}
	clear(s.lanes)
}

// Close takes the node off the bus for ever, as a node that ends or dies does.
// Requests that wait end with ErrBusClosed.
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
