package redisaffinity

import (
	"context"
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/redis/go-redis/v9"
)

// write writes claims and releases until ctx ends.
func (a *Affinity) write(ctx context.Context) {
	tick := time.NewTicker(min(a.cfg.Lease, a.cfg.Renew/4))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.work:
		case <-tick.C:
		}
		for ctx.Err() == nil && a.Err() == nil && a.writeSome(ctx, time.Now()) {
		}
	}
}

// A part goes to Redis in one round trip.
type part struct {
	releases []release
	names    []string
	epochs   []uint64
}

// writeSome writes one part, and reports false if there was nothing to write. Claims that cannot be
// written stay due; the claims of releases that cannot be written expire.
func (a *Affinity) writeSome(ctx context.Context, now time.Time) bool {
	p := a.take(now)
	if len(p.releases)+len(p.names) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 2*a.cfg.Timeout)
	defer cancel()
	calls := a.calls(&p)
	answers := run(ctx, a.client, calls, func(pipe redis.Pipeliner) { a.updateIndex(ctx, pipe, &p, now) })
	for i, cmd := range answers {
		err := a.judge(cmd.Err())
		if i < len(p.releases) {
			continue
		}
		a.written(p.names[i-len(p.releases)], p.epochs[i-len(p.releases)], cmd.Val(), err, now)
	}
	a.counts.trips.Add(1)
	a.counts.writes.Add(uint64(len(calls)))
	return true
}

// take removes a part from the work that is due. Releases come first, because a session may be claimed
// again after its release.
func (a *Affinity) take(now time.Time) (p part) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.renewals) > 0 && !a.renewals[0].at.After(now) {
		r := a.renewals[0]
		a.renewals = a.renewals[1:]
		if c := a.claims[r.name]; c != nil && c.next.Equal(r.at) {
			a.touchLocked(r.name, c)
		}
	}
	n := min(len(a.releases), writesPerTrip)
	p.releases = append(p.releases, a.releases[:n]...)
	a.releases = append(a.releases[:0], a.releases[n:]...)
	for n < writesPerTrip && len(a.dirty) > 0 {
		name := a.dirty[0]
		a.dirty = a.dirty[1:]
		if c := a.claims[name]; c != nil && c.dirty {
			c.dirty = false
			p.names, p.epochs = append(p.names, name), append(p.epochs, c.epoch)
			n++
		}
	}
	return p
}

func (a *Affinity) calls(p *part) (all []call) {
	for _, r := range p.releases {
		all = append(all, call{releaseScript, []string{a.record(r.name)}, []any{strconv.FormatUint(r.epoch, 10), a.cfg.Node}})
	}
	for i, name := range p.names {
		all = append(all, call{claimScript, []string{a.record(name), a.attempt(name)},
			[]any{strconv.FormatUint(p.epochs[i], 10), a.cfg.Node, a.cfg.ClaimTTL.Milliseconds()}})
	}
	return all
}

// updateIndex maintains the list of this node's claims. Its parts are in other slots of a Redis cluster
// than the records, so the scripts cannot maintain it.
func (a *Affinity) updateIndex(ctx context.Context, pipe redis.Pipeliner, p *part, now time.Time) {
	var gone [buckets][]any
	for _, r := range p.releases {
		i := cluster.Shard(r.name, buckets)
		gone[i] = append(gone[i], r.name)
	}
	var claimed [buckets][]redis.Z
	for _, name := range p.names {
		i := cluster.Shard(name, buckets)
		claimed[i] = append(claimed[i], redis.Z{Score: float64(now.Unix()), Member: name})
	}
	old := strconv.FormatInt(now.Add(-a.cfg.IndexTTL).Unix(), 10)
	for i := range buckets {
		key := a.index(a.cfg.Node, i)
		if len(gone[i]) > 0 {
			pipe.ZRem(ctx, key, gone[i]...)
		}
		if len(claimed[i]) > 0 {
			pipe.ZAdd(ctx, key, claimed[i]...)
			pipe.ZRemRangeByScore(ctx, key, "-inf", "("+old)
			pipe.PExpire(ctx, key, a.cfg.IndexTTL)
		}
	}
}

// written takes note of the answer to a claim.
func (a *Affinity) written(name string, epoch uint64, answer any, err error, now time.Time) {
	var by cluster.Served
	later := false
	if v, ok := answer.([]any); err == nil && ok && len(v) == 2 {
		by, err = parseServed(v[0], v[1], "")
		later = err == nil && by.Epoch > epoch
	}
	a.mu.Lock()
	c := a.claims[name]
	switch {
	case c == nil, c.epoch != epoch: // released, or claimed anew meanwhile
		later = false
	case later && by.Node != a.cfg.Node:
		delete(a.claims, name)
	case err == cluster.ErrAffinityAway:
		later = false
		a.touchLocked(name, c)
	default:
		later = false
		c.next = now.Add(a.cfg.Renew)
		a.renewals = append(a.renewals, renewal{name, c.next})
	}
	a.mu.Unlock()
	if later {
		a.counts.replaced.Add(1)
		a.replaced(name, by)
	}
}
