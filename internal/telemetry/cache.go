package telemetry

import (
	"context"
	"sync"
	"time"
)

// How old the numbers of a scrape may be, and how long a scrape waits for a node
// before it shows the last ones.
const (
	cacheAge  = 250 * time.Millisecond
	cacheWait = time.Second
)

// A Cache keeps a node's counters for the length of a scrape, because every
// metric asks on its own and the node has to ask its goroutines. The mutex is for
// scrapes that come at once.
type Cache[T any] struct {
	// Read returns the counters, or an error if ctx ended before it had them.
	Read func(ctx context.Context) (T, error)

	mu   sync.Mutex
	at   time.Time
	last T
}

// Get returns the counters, at most a quarter of a second old if the node answers.
func (c *Cache[T]) Get() T {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) > cacheAge {
		ctx, cancel := context.WithTimeout(context.Background(), cacheWait)
		defer cancel()
		if stats, err := c.Read(ctx); err == nil {
			c.last = stats
		}
		c.at = time.Now()
	}
	return c.last
}
