package redisaffinity

import (
	"context"
	"strconv"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/redis/go-redis/v9"
)

// claimScript writes or renews a claim, unless there is one of a later epoch, and ends an attempt to take
// the session over.
//
//	KEYS record, attempt   ARGV epoch, node, time to live in ms
//	-> 1, or {epoch, node} of the later claim
var claimScript = redis.NewScript(`
local r = redis.call('HMGET', KEYS[1], 'ep', 'own')
if r[2] and (tonumber(r[1] or '0') or 0) > tonumber(ARGV[1]) then return {r[1], r[2]} end
redis.call('HSET', KEYS[1], 'v', '1', 'ep', ARGV[1], 'own', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('DEL', KEYS[2])
return 1`)

// releaseScript removes a claim, if it has this epoch and node.
//
//	KEYS record   ARGV epoch, node
var releaseScript = redis.NewScript(`
local r = redis.call('HMGET', KEYS[1], 'ep', 'own')
if r[1] == ARGV[1] and r[2] == ARGV[2] then redis.call('DEL', KEYS[1]) end
return 1`)

// tryScript lets one node try to take a session over, if the claim is the one that the node has seen.
//
//	KEYS record, attempt   ARGV epoch and node that were seen, node, time to live in ms
//	-> {epoch or '', node or '', the node that tries or ''}
var tryScript = redis.NewScript(`
local r = redis.call('HMGET', KEYS[1], 'ep', 'own')
local ep, own = r[1] or '', r[2] or ''
local who = redis.call('GET', KEYS[2])
if not who and ep == ARGV[1] and own == ARGV[2] then
	who = ARGV[3]
	redis.call('SET', KEYS[2], who, 'PX', ARGV[4])
end
return {ep, own, who or ''}`)

// A call is one script with its arguments.
type call struct {
	script *redis.Script
	keys   []string
	args   []any
}

// run runs all scripts in one round trip, and those that Redis does not know in another: a server that was
// restarted has forgotten them.
func run(ctx context.Context, c *redis.Client, calls []call, extra func(redis.Pipeliner)) []*redis.Cmd {
	all := make([]*redis.Cmd, len(calls))
	var unknown []int
	c.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for i, k := range calls {
			all[i] = k.script.EvalSha(ctx, p, k.keys, k.args...)
		}
		if extra != nil {
			extra(p)
		}
		return nil
	})
	for i, cmd := range all {
		if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			unknown = append(unknown, i)
		}
	}
	if len(unknown) > 0 {
		c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, i := range unknown {
				all[i] = calls[i].script.Eval(ctx, p, calls[i].keys, calls[i].args...)
			}
			return nil
		})
	}
	return all
}

// parseServed checks the answer about a session. Redis may have any value there.
func parseServed(epoch, node, trying any) (cluster.Served, error) {
	e, ok1 := epoch.(string)
	n, ok2 := node.(string)
	t, ok3 := trying.(string)
	if !ok1 || !ok2 || !ok3 || (e == "") != (n == "") || len(n) > nameMax || len(t) > nameMax {
		return cluster.Served{}, cluster.ErrAffinityAnswer
	}
	s := cluster.Served{Node: n, Trying: t}
	if e != "" {
		var err error
		if s.Epoch, err = strconv.ParseUint(e, 10, 64); err != nil {
			return cluster.Served{}, cluster.ErrAffinityAnswer
		}
	}
	return s, nil
}

// nameMax is the longest name of a node that parseServed accepts.
const nameMax = 253
