package natsfrom

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/internal/natsask"
)

// A Publisher publishes the messages of all sessions of an edge.
type Publisher struct {
	cfg    Config
	asker  *natsask.Asker
	counts counters

	// Workers begin feeds and the connection answers, so neither owns what waits.
	mu     sync.Mutex
	failed []failedFeed // in the order of their time
}

// A failedFeed is to be tried again.
type failedFeed struct {
	feed *Feed
	at   time.Time
}

// Stats are counters since Open.
type Stats struct {
	Stored     uint64 // messages that the stream confirmed
	Duplicates uint64 // of these, what it had already
	Failures   uint64 // attempts that were not confirmed
	Waiting    int64  // messages that are not confirmed yet
}

type counters struct {
	stored, duplicates, failures atomic.Uint64
	waiting                      atomic.Int64
	troubled                     atomic.Bool
}

// Open makes the stream, if it does not exist.
func Open(ctx context.Context, cfg Config) (*Publisher, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if err := cfg.open(ctx); err != nil {
		return nil, err
	}
	asker, err := natsask.New(natsask.Config{Conn: cfg.Conn, InFlight: cfg.InFlight, Timeout: cfg.Timeout})
	if err != nil {
		return nil, fmt.Errorf("messages of clients: %w", err)
	}
	return &Publisher{cfg: cfg, asker: asker}, nil
}

// Run does the work until ctx ends.
func (p *Publisher) Run(ctx context.Context) {
	var asking sync.WaitGroup
	asking.Go(func() { p.asker.Run(ctx) })
	tick := time.NewTicker(max(p.cfg.Pause/4, time.Millisecond))
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case now := <-tick.C:
			for _, f := range p.due(now) {
				f.feed.publish()
			}
		}
	}
	asking.Wait()
}

// due takes the feeds that are to be tried again.
func (p *Publisher) due(now time.Time) (due []failedFeed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for n < len(p.failed) && !p.failed[n].at.After(now) {
		n++
	}
	due = append(due, p.failed[:n]...)
	p.failed = append(p.failed[:0], p.failed[n:]...)
	return due
}

// later lets a feed be tried again.
func (p *Publisher) later(f *Feed, why string) {
	p.counts.failures.Add(1)
	if !p.counts.troubled.Swap(true) {
		p.cfg.Log.Warn("messages of clients do not reach the stream; trying again", "stream", StreamName, "error", why)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = append(p.failed, failedFeed{f, time.Now().Add(p.cfg.Pause)})
}

// confirmed counts a message that is stored.
func (p *Publisher) confirmed(a natsask.Ack) {
	p.counts.stored.Add(1)
	if a.Duplicate {
		p.counts.duplicates.Add(1)
	}
	if p.counts.troubled.Load() && p.counts.troubled.Swap(false) {
		p.cfg.Log.Info("messages of clients reach the stream again", "stream", StreamName)
	}
}

// Stats returns the counters.
func (p *Publisher) Stats() Stats {
	c := &p.counts
	return Stats{Stored: c.stored.Load(), Duplicates: c.duplicates.Load(), Failures: c.failures.Load(), Waiting: c.waiting.Load()}
}
