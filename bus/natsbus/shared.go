package natsbus

import (
	"sync"

	"github.com/nats-io/nats.go"
)

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
