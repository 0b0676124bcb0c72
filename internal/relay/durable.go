package relay

import (
	"errors"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/replication"
)

// Bounds of writing to the durable store.
const (
	durableInterval = 50 * time.Millisecond // between two looks at what has changed
	durableBatch    = 500                   // states in one write, so that a hand-over waits for little
)

// A taken state is on its way to the durable store.
type taken struct {
	space  *space
	number uint64
	since  time.Time
}

// A quota is a token bucket of states that a lane may store.
type quota struct {
	rate   float64 // per second
	tokens float64
	at     time.Time
}

func (q *quota) refill(now time.Time) {
	q.tokens = min(q.tokens+q.rate*now.Sub(q.at).Seconds(), q.rate/2)
	q.at = now
}

// advanceDurable stores what has changed, oldest change first, as fast as is
// allowed. It returns when it must be called again.
func (l *Lane) advanceDurable(now time.Time) time.Time {
	if l.relay.cfg.Leases == nil || len(l.holdings) == 0 {
		return now.Add(time.Hour)
	}
	if now.Before(l.durableDue) {
		return l.durableDue
	}
	l.durableDue = now.Add(durableInterval)
	l.quota.refill(now)
	for _, h := range l.holdings {
		if !h.speaking || h.storing > 0 {
			continue
		}
		n := min(durableBatch, int(l.quota.tokens))
		if h.leaving {
			n = durableBatch // the sooner the shard changes hands the better
		}
		l.quota.tokens -= float64(l.store(h, n))
		l.advanceLeaving(now, h)
	}
	return l.durableDue
}

// dirty returns how many states of h wait to be stored.
func (h *holding) dirty() (n int) {
	for _, sp := range h.spaces {
		n += sp.store.Dirty()
	}
	return n
}

// store gives up to n states to the durable store and returns how many.
func (l *Lane) store(h *holding, n int) int {
	var batch []cluster.Keyframe
	var states []taken
	for _, sp := range h.oldestFirst() {
		since, _ := sp.store.DirtySince()
		for _, d := range sp.store.TakeDirty(nil, n-len(batch)) {
			batch = append(batch, cluster.Keyframe{Space: sp.name, Number: d.Number, Data: d.Data})
			states = append(states, taken{sp, d.Number, since})
		}
		if len(batch) >= n {
			break
		}
	}
	if len(batch) == 0 {
		return 0
	}
	h.storing += len(batch)
	shard, epoch := h.shard, h.epoch
	l.relay.cfg.Leases.Store(shard, epoch, batch, func(err error) {
		l.command(command{kind: commandStored, shard: shard, epoch: epoch, stored: states, err: err})
	})
	return len(batch)
}

// oldestFirst returns the spaces that have something to store.
func (h *holding) oldestFirst() []*space {
	var dirty []*space
	for _, sp := range h.spaces {
		if sp.store.Dirty() > 0 {
			dirty = append(dirty, sp)
		}
	}
	slices.SortStableFunc(dirty, func(a, b *space) int {
		x, _ := a.store.DirtySince()
		y, _ := b.store.DirtySince()
		return x.Compare(y)
	})
	return dirty
}

// storedBatch takes the word of the durable store.
func (l *Lane) storedBatch(now time.Time, h *holding, c *command) {
	h.storing -= len(c.stored)
	switch {
	case c.err == nil:
		l.counts.Stored += uint64(len(c.stored))
	case errors.Is(c.err, cluster.ErrQueueFull):
		for _, t := range c.stored {
			t.space.store.MarkDirty(t.since, t.number)
		}
	}
	l.advanceLeaving(now, h)
}

// durableAge returns how long the oldest change has been waiting to be stored.
func (l *Lane) durableAge(now time.Time) (age time.Duration) {
	if l.relay.cfg.Leases == nil {
		return 0
	}
	for _, sp := range l.spaces {
		if since, ok := sp.store.DirtySince(); ok {
			age = max(age, now.Sub(since))
		}
	}
	return age
}

// publishEvent publishes an event for game servers.
func (l *Lane) publishEvent(e *replication.Event) {
	l.send(l.relay.eventMsg(e))
}
