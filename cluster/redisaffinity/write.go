package redisaffinity

import (
	"context"
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/redis/go-redis/v9"
)

// write writes claims and releases until ctx ends.
func (a *instance) write(ctx context.Context) {
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
	releases, claims []session
}

// writeSome writes one part, and reports false if there was nothing to write. Claims that cannot be
// written stay due; the claims of releases that cannot be written expire.
func (a *instance) writeSome(ctx context.Context, now time.Time) bool {
	p := a.take(now)
	if len(p.releases)+len(p.claims) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 2*a.cfg.Timeout)
	defer cancel()
	calls := a.calls(&p)
	answers := run(ctx, a.client, calls, func(pipe redis.Pipeliner) { a.updateIndex(ctx, pipe, &p, now) })
	for i, cmd := range answers {
		err := a.judge(cmd.Err())
		if i >= len(p.releases) {
			a.written(p.claims[i-len(p.releases)], cmd.Val(), err, now)
		}
	}
	a.count(&a.stats.Trips, 1)
	a.count(&a.stats.Writes, len(calls))
	return true
}

// take removes a part from the work that is due. Releases come first, because a session may be claimed
// again after its release.
func (a *instance) take(now time.Time) (p part) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.renewals) > 0 && !a.renewals[0].at.After(now) {
		r := a.renewals[0]
		a.renewals = a.renewals[1:]
		if a.claims[r.name].next.Equal(r.at) {
			a.touchLocked(r.name)
		}
	}
	n := min(len(a.releases), writesPerTrip)
	p.releases = append(p.releases, a.releases[:n]...)
	a.releases = append(a.releases[:0], a.releases[n:]...)
	for name := range a.dirty {
		if n == writesPerTrip {
			break
		}
		delete(a.dirty, name)
		p.claims = append(p.claims, session{name, a.claims[name].epoch})
		n++
	}
	return p
}

func (a *instance) calls(p *part) (all []call) {
	for _, s := range p.releases {
		all = append(all, call{releaseScript, []string{a.record(s.name)}, []any{strconv.FormatUint(s.epoch, 10), a.cfg.Node}})
	}
	for _, s := range p.claims {
		all = append(all, call{claimScript, []string{a.record(s.name), a.attempt(s.name)},
			[]any{strconv.FormatUint(s.epoch, 10), a.cfg.Node, claimTTL.Milliseconds()}})
	}
	return all
}

// updateIndex maintains the list of this node's claims. Its parts are in other slots of a Redis cluster
// than the records, so the scripts cannot maintain it.
func (a *instance) updateIndex(ctx context.Context, pipe redis.Pipeliner, p *part, now time.Time) {
	var gone [buckets][]any
	for _, r := range p.releases {
		i := cluster.Shard(r.name, buckets)
		gone[i] = append(gone[i], r.name)
	}
	var claimed [buckets][]redis.Z
	for _, s := range p.claims {
		i := cluster.Shard(s.name, buckets)
		claimed[i] = append(claimed[i], redis.Z{Score: float64(now.Unix()), Member: s.name})
	}
	old := strconv.FormatInt(now.Add(-indexTTL).Unix(), 10)
	for i := range buckets {
		key := a.index(a.cfg.Node, i)
		if len(gone[i]) > 0 {
			pipe.ZRem(ctx, key, gone[i]...)
		}
		if len(claimed[i]) > 0 {
			pipe.ZAdd(ctx, key, claimed[i]...)
			pipe.ZRemRangeByScore(ctx, key, "-inf", "("+old)
			pipe.PExpire(ctx, key, indexTTL)
		}
	}
}

// written takes note of the answer to a claim.
func (a *instance) written(s session, answer any, err error, now time.Time) {
	var by cluster.Served
	if v, ok := answer.([]any); err == nil && ok && len(v) == 2 {
		by, err = parseServed(v[0], v[1], "")
	}
	later := err == nil && by.Epoch > s.epoch && by.Node != a.cfg.Node
	a.mu.Lock()
	c, ok := a.claims[s.name]
	switch {
	case !ok, c.epoch != s.epoch: // released, or claimed anew meanwhile
		later = false
	case later:
		a.forgetLocked(s.name)
	case err == cluster.ErrAffinityAway:
		a.touchLocked(s.name)
	default:
		next := now.Add(a.cfg.Renew)
		a.claims[s.name] = claim{s.epoch, next}
		a.renewals = append(a.renewals, renewal{s.name, next})
	}
	a.mu.Unlock()
	if later {
		a.replaced(s.name, by)
	}
}
