package redisaffinity

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/gomodule/redigo/redis"
)

// claimScript writes or renews a claim, unless there is one of a later epoch, and ends an attempt to take
// the session over.
//
//	KEYS record, attempt   ARGV epoch, node, time to live in ms
//	-> 1, or {epoch, node} of the later claim
var claimScript = newScript(`
local r = redis.call('HMGET', KEYS[1], 'ep', 'own')
if r[2] and (tonumber(r[1] or '0') or 0) > tonumber(ARGV[1]) then return {r[1], r[2]} end
redis.call('HSET', KEYS[1], 'v', '1', 'ep', ARGV[1], 'own', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('DEL', KEYS[2])
return 1`)

// releaseScript removes a claim, if it has this epoch and node.
//
//	KEYS record   ARGV epoch, node
var releaseScript = newScript(`
local r = redis.call('HMGET', KEYS[1], 'ep', 'own')
if r[1] == ARGV[1] and r[2] == ARGV[2] then redis.call('DEL', KEYS[1]) end
return 1`)

// tryScript lets one node try to take a session over, if the claim is the one that the node has seen.
//
//	KEYS record, attempt   ARGV epoch and node that were seen, node, time to live in ms
//	-> {epoch or '', node or '', the node that tries or ''}
var tryScript = newScript(`
local r = redis.call('HMGET', KEYS[1], 'ep', 'own')
local ep, own = r[1] or '', r[2] or ''
local who = redis.call('GET', KEYS[2])
if not who and ep == ARGV[1] and own == ARGV[2] then
	who = ARGV[3]
	redis.call('SET', KEYS[2], who, 'PX', ARGV[4])
end
return {ep, own, who or ''}`)

// A script goes by its hash, and to a server that does not know it as text.
type script struct{ text, hash string }

func newScript(text string) script {
	sum := sha1.Sum([]byte(text))
	return script{text, hex.EncodeToString(sum[:])}
}

// A call is one script with its arguments.
type call struct {
	script *script
	keys   []string
	args   []any
}

// command returns the command that runs the script, which is given as its hash or as its text.
func (c *call) command(name, script string) command {
	args := append(make([]any, 0, 2+len(c.keys)+len(c.args)), script, len(c.keys))
	for _, k := range c.keys {
		args = append(args, k)
	}
	return command{name, append(args, c.args...)}
}

// run runs all scripts in one round trip, and those that Redis does not know in another: a server that was
// restarted has forgotten them. The first round trip has the commands extra too, whose replies are of no interest.
func run(ctx context.Context, s *store, calls []call, extra []command) []result {
	commands := make([]command, 0, len(calls)+len(extra))
	for i := range calls {
		commands = append(commands, calls[i].command("EVALSHA", calls[i].script.hash))
	}
	replies := s.trip(ctx, append(commands, extra...))[:len(calls)]
	var texts []command
	var unknown []int
	for i := range replies {
		var e redis.Error
		if errors.As(replies[i].err, &e) && strings.HasPrefix(string(e), "NOSCRIPT") {
			texts, unknown = append(texts, calls[i].command("EVAL", calls[i].script.text)), append(unknown, i)
		}
	}
	if len(texts) > 0 {
		for i, r := range s.trip(ctx, texts) {
			replies[unknown[i]] = r
		}
	}
	return replies
}

// parseServed checks the answer about a session. Redis may have any value there.
func parseServed(epoch, node, trying any) (cluster.Served, error) {
	e, ok1 := text(epoch)
	n, ok2 := text(node)
	t, ok3 := text(trying)
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

// text returns the text of a part of a reply.
func text(part any) (string, bool) {
	switch p := part.(type) {
	case string:
		return p, true
	case []byte:
		return string(p), true
	}
	return "", false
}
