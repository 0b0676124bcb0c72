package redisaffinity

import (
	"context"
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/redis/go-redis/v9"
)

// An ask is a question that waits for Redis: Find, Try, or Claimed.
type ask struct {
	name   string
	seen   *cluster.Served // of a Try
	answer func(cluster.Served, error)
	list   func(context.Context) error // of Claimed, whose answer is only the error
}

// end answers with nothing but an error.
func (k *ask) end(err error) { k.answer(cluster.Served{}, err) }

// Find implements cluster.Affinity.
func (a *instance) Find(name string, answer func(cluster.Served, error)) {
	a.put(ask{name: name, answer: answer})
}

// Try implements cluster.Affinity.
func (a *instance) Try(name string, seen cluster.Served, answer func(cluster.Served, error)) {
	a.put(ask{name: name, seen: &seen, answer: answer})
}

// Claimed implements cluster.Affinity.
func (a *instance) Claimed(node string, each func([]string), done func(error)) {
	a.put(ask{
		list:   func(ctx context.Context) error { return a.list(ctx, node, each) },
		answer: func(_ cluster.Served, err error) { done(err) },
	})
}

func (a *instance) put(k ask) {
	if a.Err() != nil {
		k.end(cluster.ErrAffinityAway)
		return
	}
	select {
	case a.asks <- k:
	default:
		a.count(&a.stats.Refused, 1)
		k.end(cluster.ErrAffinityBusy)
	}
}

// answer answers the questions that wait, several at a time, until ctx ends.
func (a *instance) answer(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case k := <-a.asks:
			a.serve(ctx, a.collect(k))
		}
	}
}

// collect adds the questions that wait to the first; a Claimed ends the collection.
func (a *instance) collect(first ask) []ask {
	all := []ask{first}
	for all[len(all)-1].list == nil && len(all) < asksPerTrip {
		select {
		case k := <-a.asks:
			all = append(all, k)
		default:
			return all
		}
	}
	return all
}

func (a *instance) serve(ctx context.Context, all []ask) {
	if a.Err() != nil {
		for i := range all {
			all[i].end(cluster.ErrAffinityAway)
		}
		return
	}
	if last := len(all) - 1; all[last].list != nil {
		defer func(k ask) { k.end(k.list(ctx)) }(all[last])
		all = all[:last]
	}
	if len(all) > 0 {
		a.look(ctx, all)
	}
}

// look asks which nodes serve some sessions, and then whether these are alive.
func (a *instance) look(ctx context.Context, all []ask) {
	ctx, cancel := context.WithTimeout(ctx, 2*a.cfg.Timeout)
	defer cancel()
	calls := make([]call, len(all))
	for i := range all {
		calls[i] = a.question(&all[i])
	}
	found, errs := make([]cluster.Served, len(all)), make([]error, len(all))
	for i, cmd := range run(ctx, a.client, calls, nil) {
		if errs[i] = a.judge(cmd.Err()); errs[i] != nil {
			continue
		}
		errs[i] = cluster.ErrAffinityAnswer
		if v, ok := cmd.Val().([]any); ok && len(v) == 3 {
			found[i], errs[i] = parseServed(v[0], v[1], v[2])
		}
		if errs[i] != nil {
			a.count(&a.stats.Odd, 1)
		}
	}
	a.addAlive(ctx, found, errs)
	a.count(&a.stats.Trips, 1)
	a.count(&a.stats.Asks, len(all))
	for i := range all {
		if errs[i] != nil {
			found[i] = cluster.Served{}
		}
		all[i].answer(found[i], errs[i])
	}
}

// question returns the call of the script for Find and Try. For Find it has a claim that cannot exist.
func (a *instance) question(k *ask) call {
	seen := []any{"-", "-", a.cfg.Node, a.cfg.TryTTL.Milliseconds()}
	if k.seen != nil {
		seen[0], seen[1] = "", k.seen.Node
		if k.seen.Node != "" {
			seen[0] = strconv.FormatUint(k.seen.Epoch, 10)
		}
	}
	return call{tryScript, []string{a.record(k.name), a.attempt(k.name)}, seen}
}

// addAlive asks for the leases of the nodes that were found.
func (a *instance) addAlive(ctx context.Context, found []cluster.Served, errs []error) {
	leases := map[string]*redis.IntCmd{}
	_, err := a.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range found {
			if node := found[i].Node; errs[i] == nil && node != "" && leases[node] == nil {
				leases[node] = p.Exists(ctx, a.lease(node))
			}
		}
		return nil
	})
	err = a.judge(err)
	for i := range found {
		if l := leases[found[i].Node]; l != nil && errs[i] == nil {
			found[i].Alive, errs[i] = l.Val() > 0, err
		}
	}
}

// list reads the index of a node.
func (a *instance) list(ctx context.Context, node string, each func([]string)) error {
	since := strconv.FormatInt(time.Now().Add(-indexTTL).Unix(), 10)
	for from := 0; from < buckets; from += bucketsPerTrip {
		names, err := a.listSome(ctx, node, from, since)
		if err != nil {
			return err
		}
		if len(names) > 0 {
			each(names)
		}
	}
	return nil
}

func (a *instance) listSome(ctx context.Context, node string, from int, since string) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timeout)
	defer cancel()
	var parts [bucketsPerTrip]*redis.StringSliceCmd
	_, err = a.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range parts {
			parts[i] = p.ZRangeByScore(ctx, a.index(node, from+i), &redis.ZRangeBy{Min: since, Max: "+inf", Count: ClaimsMax})
		}
		return nil
	})
	if err = a.judge(err); err != nil {
		return nil, err
	}
	for _, p := range parts {
		names = append(names, p.Val()...)
	}
	return names, nil
}
