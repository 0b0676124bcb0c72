package natsbus

import (
	"errors"
	"sync/atomic"

	"github.com/dnprelay/dnprelay/bus"
)

// Stats are what happened since Connect.
type Stats struct {
	Published, PublishedBytes uint64 // messages handed to the connection, and their data
	Received, ReceivedBytes   uint64 // messages handed to handlers, and their data

	DroppedDisconnected uint64 // published without a connection
	DroppedBusy         uint64 // published while the outgoing queue or the list of requests was full
	DroppedSize         uint64 // larger than the server takes
	DroppedOther        uint64 // bad subject, closed

	Missed        uint64 // received, but dropped because a handler was too slow
	SlowConsumers uint64 // how often that began
	Errors        uint64 // other errors that nobody had asked for, as refused subscriptions
	Reconnects    uint64
}

// counters are bumped by several goroutines.
type counters struct {
	published, publishedBytes, received, receivedBytes atomic.Uint64
	disconnected, busy, size, other                    atomic.Uint64
	missed, slow, errors, reconnects                   atomic.Uint64
}

func (c *counters) dropped(err error) {
	switch {
	case errors.Is(err, bus.ErrDisconnected):
		c.disconnected.Add(1)
	case errors.Is(err, bus.ErrBusy):
		c.busy.Add(1)
	case errors.Is(err, bus.ErrMessageSize):
		c.size.Add(1)
	default:
		c.other.Add(1)
	}
}

// Stats returns the counters.
func (b *Bus) Stats() Stats {
	c := &b.counters
	s := Stats{
		Published: c.published.Load(), PublishedBytes: c.publishedBytes.Load(),
		Received: c.received.Load(), ReceivedBytes: c.receivedBytes.Load(),
		DroppedDisconnected: c.disconnected.Load(), DroppedBusy: c.busy.Load(),
		DroppedSize: c.size.Load(), DroppedOther: c.other.Load(),
		SlowConsumers: c.slow.Load(), Errors: c.errors.Load(), Reconnects: c.reconnects.Load(),
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.Missed = c.missed.Load()
	for sub := range b.subs {
		s.Missed += sub.missed()
	}
	return s
}
