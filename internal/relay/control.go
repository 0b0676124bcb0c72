package relay

import (
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
)

// A commandKind is what a command is about.
type commandKind uint8

const (
	commandAcquired commandKind = iota + 1
	commandLost
	commandDurable
	commandLoaded
	commandLoadEnd
	commandStored
	commandHandOver
	commandStats
	commandDrain
	commandReconnected
)

// A command is a message to a lane that must not be lost: about leases and the
// durable store. There are few of them: for each shard one of each kind, and as
// many parts of a load as the shard has.
type command struct {
	kind  commandKind
	shard int
	epoch uint64

	durable bool               // of durable
	part    []cluster.Keyframe // of loaded
	stored  []taken            // of stored
	err     error              // of loadEnd, stored
	to      string             // of handOver
	stats   chan<- Stats       // of stats
	drained chan<- struct{}    // of drain: closed when nothing is held
}

// A control is a lane's queue of commands. The mutex guards it because they come
// from goroutines of the lease adapter, and unlike messages none may be dropped,
// so a channel would have to block them.
type control struct {
	mu   sync.Mutex
	list []command
	wake chan struct{} // one slot
}

// command gives the lane a command, from any goroutine. It never blocks.
func (l *Lane) command(c command) {
	l.control.mu.Lock()
	l.control.list = append(l.control.list, c)
	l.control.mu.Unlock()
	select {
	case l.control.wake <- struct{}{}:
	default:
	}
	l.woken()
}

// commands obeys what was commanded.
func (l *Lane) commands(now time.Time) {
	l.control.mu.Lock()
	list := l.control.list
	l.control.list = nil
	l.control.mu.Unlock()
	for i := range list {
		l.obey(now, &list[i])
	}
}

// obey does what c says. Words about a holding that is over change nothing.
func (l *Lane) obey(now time.Time, c *command) {
	switch c.kind {
	case commandStats:
		c.stats <- l.stats(now)
		return
	case commandReconnected:
		l.askAll(now)
		return
	case commandDrain:
		l.drained = c.drained
		return
	case commandAcquired:
		if old := l.holding(c.shard); old != nil {
			l.lose(now, old)
		}
		l.acquire(now, c.shard, c.epoch)
		return
	}
	h := l.holding(c.shard)
	if h == nil || c.epoch != 0 && c.epoch != h.epoch {
		return
	}
	switch c.kind {
	case commandLost:
		l.lose(now, h)
	case commandDurable:
		h.durable = c.durable
		for _, sp := range h.spaces {
			sp.store.SetDurable(c.durable)
		}
	case commandLoaded:
		l.restore(now, h, c.part)
	case commandLoadEnd:
		if c.err == nil && !h.leaving {
			l.speak(now, h)
		}
	case commandStored:
		l.storedBatch(now, h, c)
	case commandHandOver:
		l.handOver(now, h, c.to)
	}
}
