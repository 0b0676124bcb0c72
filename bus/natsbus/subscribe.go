package natsbus

import (
	"fmt"
	"sync"
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
	once   sync.Once
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
	if !b.out.append(op{do: func() { s.start(pattern) }}) {
		return nil, fmt.Errorf("subscribe to %q: %w", pattern, bus.ErrClosed)
	}
	return s.unsubscribe, nil
}

// start runs on the sender, so that subscribing and publishing keep their order.
func (s *subscription) start(subject string) {
	b, begin := s.bus, s.startOwn
	if s.shared {
		begin = s.startShared
	}
	if err := begin(subject); err != nil {
		b.counters.errors.Add(1)
		b.cfg.OnError(fmt.Errorf("subscribe to %q: %w", subject, err))
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.subs[s] = struct{}{}
}

// startOwn subscribes with a queue and a goroutine of the library.
func (s *subscription) startOwn(subject string) error {
	b := s.bus
	b.handlers.Add(1)
	sub, err := b.nc.Subscribe(subject, s.received)
	if err != nil {
		b.handlers.Done()
		return err
	}
	sub.SetClosedHandler(func(string) { b.handlers.Done() })
	// This cannot fail: the subscription is valid and the limits are not 0.
	_ = sub.SetPendingLimits(b.cfg.PendingMessages, pendingBytes)
	s.sub = sub
	return nil
}

func (s *subscription) unsubscribe() {
	s.off.Store(true)
	s.once.Do(func() { s.bus.out.append(op{do: s.stop}) })
}

// stop runs on the sender.
func (s *subscription) stop() {
	if s.sub == nil {
		return
	}
	b := s.bus
	b.mu.Lock()
	delete(b.subs, s)
	b.mu.Unlock()
	b.counters.missed.Add(s.missed())
	if s.shared {
		b.shared.remove(s.sub)
	}
	if err := s.sub.Unsubscribe(); err != nil {
		b.counters.errors.Add(1)
	}
}

func (s *subscription) missed() uint64 {
	n, err := s.sub.Dropped()
	if err != nil { // the subscription has ended
		return 0
	}
	return uint64(n)
}

func (s *subscription) received(m *nats.Msg) {
	if s.off.Load() {
		return
	}
	s.bus.counters.received.Add(1)
	s.bus.counters.receivedBytes.Add(uint64(len(m.Data)))
	out := bus.Msg{Subject: m.Subject, Reply: m.Reply, Data: m.Data}
	if len(m.Header) > 0 {
		out.Header = make(map[string]string, len(m.Header))
		for k := range m.Header {
			out.Header[k] = m.Header.Get(k)
		}
	}
	s.handle(out)
}

// sharedMessages bounds the messages that wait for the handlers of shared subscriptions. The
// number is arbitrary: as many as the queue of an edge worker holds.
const sharedMessages = 8192

// shared is the queue of the shared subscriptions. The library drops a message that exceeds it
// and counts it for its subscription.
type shared struct {
	queue chan *nats.Msg
	quit  chan struct{}
	once  sync.Once // Close may be called again

	mu    sync.Mutex // the sender adds and removes, the dispatcher looks up
	owner map[*nats.Subscription]*subscription
}

func (h *shared) init() {
	h.queue, h.quit = make(chan *nats.Msg, sharedMessages), make(chan struct{})
	h.owner = map[*nats.Subscription]*subscription{}
}

// startShared subscribes with the shared queue. It holds the lock meanwhile, because a message
// may arrive before the library returns.
func (s *subscription) startShared(subject string) (err error) {
	h := &s.bus.shared
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.sub, err = s.bus.nc.ChanSubscribe(subject, h.queue); err == nil {
		h.owner[s.sub] = s
	}
	return err
}

func (h *shared) remove(sub *nats.Subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.owner, sub)
}

func (h *shared) find(sub *nats.Subscription) (s *subscription, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, ok = h.owner[sub]
	return s, ok
}

// dispatch calls the handlers of shared subscriptions until the bus is closed.
func (b *Bus) dispatch() {
	defer b.handlers.Done()
	for {
		select {
		case <-b.shared.quit:
			return
		case m := <-b.shared.queue:
			if s, ok := b.shared.find(m.Sub); ok {
				s.received(m)
			}
		}
	}
}
