package natsbus

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
)

// A subscription is one handler. Three goroutines use it: the caller's, the sender's and the
// library's.
type subscription struct {
	bus    *Bus
	handle func(bus.Msg)
	shared bool // its messages arrive through bus.shared
	off    atomic.Bool
	sub    *nats.Subscription // owned by the sender; nil until start
}

// Subscribe implements bus.Bus. It fails only if the pattern is not a subject or the bus is
// closed. OnError reports a subscription that the server refuses.
func (b *Bus) Subscribe(pattern string, handle func(bus.Msg)) (unsubscribe func(), err error) {
	return b.subscribe(pattern, &subscription{bus: b, handle: handle})
}

// SubscribeShared implements bus.Bus.
func (b *Bus) SubscribeShared(pattern string, handle func(bus.Msg)) (unsubscribe func(), err error) {
	return b.subscribe(pattern, &subscription{bus: b, handle: handle, shared: true})
}

func (b *Bus) subscribe(pattern string, s *subscription) (unsubscribe func(), err error) {
	if !subject.Valid(pattern, true) {
		return nil, fmt.Errorf("subscribe to %q: %w", pattern, nats.ErrBadSubject)
	}
	if err := b.out.push(op{do: func() { s.start(pattern) }}); err != nil {
		return nil, fmt.Errorf("subscribe to %q: %w", pattern, err)
	}
	return s.unsubscribe, nil
}

// start runs on the sender, so that subscribing and publishing keep their order. For a shared
// subscription it holds b.starting, because a message for dispatch may arrive before the library
// returns; not b.mu, because the library may wait for the network.
func (s *subscription) start(pattern string) {
	b := s.bus
	if s.shared {
		b.starting.Lock()
		defer b.starting.Unlock()
	}
	if err := s.begin(pattern); err != nil {
		b.counters.errors.Add(1)
		b.cfg.OnError(fmt.Errorf("subscribe to %q: %w", pattern, err))
		return
	}
	b.mu.Lock()
	b.subs[s.sub] = s
	b.mu.Unlock()
}

// begin subscribes with the shared queue, or with a queue and a goroutine of the library.
func (s *subscription) begin(pattern string) (err error) {
	b := s.bus
	if s.shared {
		s.sub, err = b.nc.ChanSubscribe(pattern, b.shared)
		return err
	}
	b.handlers.Add(1)
	if s.sub, err = b.nc.Subscribe(pattern, s.received); err != nil {
		b.handlers.Done()
		return err
	}
	s.sub.SetClosedHandler(func(string) { b.handlers.Done() })
	// This cannot fail: the subscription is valid and the limits are not 0.
	_ = s.sub.SetPendingLimits(b.cfg.PendingMessages, pendingBytes)
	return nil
}

func (s *subscription) unsubscribe() {
	if !s.off.Swap(true) {
		_ = s.bus.out.push(op{do: s.stop}) // fails only if the bus is closed
	}
}

// stop runs on the sender.
func (s *subscription) stop() {
	if s.sub == nil {
		return
	}
	b := s.bus
	b.mu.Lock()
	delete(b.subs, s.sub)
	b.mu.Unlock()
	b.counters.missed.Add(missed(s.sub))
	if err := s.sub.Unsubscribe(); err != nil {
		b.counters.errors.Add(1)
	}
}

func missed(sub *nats.Subscription) uint64 {
	n, err := sub.Dropped()
	if err != nil { // the subscription has ended
		return 0
	}
	return uint64(n)
}

// consumed begins the subjects on which messages that a consumer of JetStream delivers are acknowledged.
const consumed = "$JS.ACK."

// received gives a message to the handler, unless a consumer of JetStream delivers it: whoever makes a
// consumer chooses where, also where only nodes may publish.
func (s *subscription) received(m *nats.Msg) {
	if s.off.Load() {
		return
	}
	if strings.HasPrefix(m.Reply, consumed) {
		s.bus.counters.errors.Add(1)
		return
	}
	s.bus.counters.received.Add(1)
	s.bus.counters.receivedBytes.Add(uint64(len(m.Data)))
	out := bus.Msg{Subject: m.Subject, Reply: s.bus.reply(m), Data: m.Data}
	if len(m.Header) > 0 {
		out.Header = make(map[string]string, len(m.Header))
		for k := range m.Header {
			out.Header[k] = m.Header.Get(k)
		}
	}
	s.handle(out)
}

// reply returns the subject on which a message may be answered.
func (b *Bus) reply(m *nats.Msg) string {
	if m.Reply != "" && b.cfg.MayAnswer != nil && !b.cfg.MayAnswer(m.Reply) {
		b.counters.errors.Add(1)
		return ""
	}
	return m.Reply
}

// sharedMessages bounds the messages that wait for the handlers of shared subscriptions. The
// library drops a message that exceeds it and counts it for its subscription. The number is
// arbitrary: as many as the queue of an edge worker holds.
const sharedMessages = 8192

// dispatch calls the handlers of shared subscriptions until the bus is closed.
func (b *Bus) dispatch() {
	defer b.handlers.Done()
	for {
		select {
		case <-b.sent:
			return
		case m := <-b.shared:
			s := b.find(m.Sub)
			if s == nil { // it may be starting
				b.starting.Lock()
				s = b.find(m.Sub)
				b.starting.Unlock()
			}
			if s != nil {
				s.received(m)
			}
		}
	}
}

func (b *Bus) find(sub *nats.Subscription) *subscription {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.subs[sub]
}
