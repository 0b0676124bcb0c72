package natsbus

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/nats-io/nats.go"
)

// A subscription is one handler. Its ends are seen by three goroutines: the
// caller's, the sender's and the library's.
type subscription struct {
	bus    *Bus
	handle func(bus.Msg)
	shared bool // its messages come through bus.shared
	off    atomic.Bool
	once   sync.Once
	sub    *nats.Subscription // the sender's, until then nil
}

// Subscribe implements replication.Bus. It fails only if the pattern is not a
// subject or the bus is closed; whether the server permits it, OnError hears.
func (b *Bus) Subscribe(subject string, handle func(bus.Msg)) (unsubscribe func(), err error) {
	return b.subscribe(subject, &subscription{bus: b, handle: handle})
}

// SubscribeShared implements replication.Bus.
func (b *Bus) SubscribeShared(subject string, handle func(bus.Msg)) (unsubscribe func(), err error) {
	return b.subscribe(subject, &subscription{bus: b, handle: handle, shared: true})
}

func (b *Bus) subscribe(subject string, s *subscription) (unsubscribe func(), err error) {
	if !validPattern(subject) {
		return nil, fmt.Errorf("subscribe to %q: %w", subject, nats.ErrBadSubject)
	}
	if !b.out.append(op{do: func() { s.start(subject) }}) {
		return nil, fmt.Errorf("subscribe to %q: %w", subject, bus.ErrClosed)
	}
	return s.unsubscribe, nil
}

func validPattern(subject string) bool {
	tokens := strings.Split(subject, ".")
	for i, t := range tokens {
		if t == "" || strings.ContainsAny(t, " \t\r\n") || t == ">" && i < len(tokens)-1 {
			return false
		}
	}
	return true
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

// startOwn subscribes with a queue and a goroutine of the library's.
func (s *subscription) startOwn(subject string) error {
	b := s.bus
	b.handlers.Add(1)
	sub, err := b.nc.Subscribe(subject, s.received)
	if err != nil {
		b.handlers.Done()
		return err
	}
	sub.SetClosedHandler(func(string) { b.handlers.Done() })
	// Limits of a valid subscription with numbers that are not 0 cannot fail.
	_ = sub.SetPendingLimits(b.cfg.PendingMessages, b.cfg.PendingBytes)
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
	if err != nil { // it has ended
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

// sharedMessages bounds what waits for the handlers of shared subscriptions. The
// number is arbitrary: as much as a worker of an edge takes.
const sharedMessages = 8192

// shared is the queue of the subscriptions that have none of their own. The library
// drops what does not fit and counts it for the subscription that it was for.
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

// startShared subscribes to the shared queue. It holds the lock meanwhile, since a
// message may come before the library returns.
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
