package redisaffinity

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// keepLease says again and again that this node is alive, until ctx ends. The answers
// show whether Redis is there, and whether it has lost what it had.
func (a *Affinity) keepLease(ctx context.Context) {
	process := rand.Text() // lets people see restarts
	var renewed time.Time
	tick := time.NewTicker(a.cfg.Lease)
	defer tick.Stop()
	for ctx.Err() == nil {
		asked := time.Now()
		lost, err := a.renewLease(ctx, process)
		switch {
		case err == nil:
			if lost && !renewed.IsZero() && asked.Sub(renewed) < a.cfg.LeaseTTL/2 {
				a.counts.forgotten.Add(1)
				a.cfg.Log.Warn("Redis has lost its data; claims are written again")
				a.touchAll()
			}
			renewed = asked
			a.setAway(nil)
		case ctx.Err() == nil:
			a.counts.failures.Add(1)
			a.setAway(err)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// renewLease reports whether the lease was not there.
func (a *Affinity) renewLease(ctx context.Context, process string) (lost bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timeout)
	defer cancel()
	err = a.client.SetArgs(ctx, a.lease(a.cfg.Node), process, redis.SetArgs{TTL: a.cfg.LeaseTTL, Get: true}).Err()
	if errors.Is(err, redis.Nil) {
		return true, nil
	}
	return false, err
}
