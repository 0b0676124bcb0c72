package redisaffinity

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A target is what the URL of a server says.
type target struct {
	addr           string // host:port
	user, password string
	db             int
	tls            bool
}

// parseURL parses redis://[user:password@]host:port[/db], and rediss:// for TLS.
func parseURL(text string) (target, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "redis" && u.Scheme != "rediss" || u.Opaque != "" || u.RawQuery != "" || u.Fragment != "" {
		return target{}, errURL
	}
	t := target{
		addr: net.JoinHostPort(cmp.Or(u.Hostname(), "localhost"), cmp.Or(u.Port(), "6379")),
		user: u.User.Username(),
		tls:  u.Scheme == "rediss",
	}
	t.password, _ = u.User.Password()
	if db := strings.Trim(u.Path, "/"); db != "" {
		if t.db, err = strconv.Atoi(db); err != nil || t.db < 0 {
			return target{}, errURL
		}
	}
	return t, nil
}

// A store carries commands to one server. The goroutines of an instance share its connections, of which each uses one at a time.
type store struct {
	target
	pool    *redis.Pool
	timeout time.Duration // for the answers of a trip
	failed  atomic.Int64  // when a connection failed last, in Unix nanoseconds
}

// idleMax is how long a connection may have been idle that is used again. Servers and firewalls close those that are idle for longer.
const idleMax = 30 * time.Second

var errOld = errors.New("affinity: the connection is older than the last failure")

// newStore returns a store, which does not connect yet.
func newStore(cfg *Config, t target) *store {
	options := []redis.DialOption{
		redis.DialConnectTimeout(cfg.Timeout), redis.DialTLSHandshakeTimeout(cfg.Timeout),
		redis.DialReadTimeout(cfg.Timeout), redis.DialWriteTimeout(cfg.Timeout),
		redis.DialUsername(t.user), redis.DialPassword(t.password), redis.DialDatabase(t.db), redis.DialClientName("dnp-" + cfg.Node),
		redis.DialUseTLS(t.tls || cfg.TLS != nil),
	}
	if cfg.TLS != nil {
		options = append(options, redis.DialTLSConfig(cfg.TLS))
	} else {
		options = append(options, redis.DialTLSConfig(&tls.Config{MinVersion: tls.VersionTLS12}))
	}
	s := &store{target: t, timeout: cfg.Timeout}
	s.pool = &redis.Pool{
		MaxIdle:     askers + 2, // the goroutines of an instance
		IdleTimeout: idleMax,
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "tcp", t.addr, options...)
		},
		// A server that went away closed all connections at once.
		TestOnBorrow: func(_ redis.Conn, used time.Time) error {
			if used.UnixNano() <= s.failed.Load() {
				return errOld
			}
			return nil
		},
	}
	return s
}

func (s *store) close() { _ = s.pool.Close() } // always nil

// A command is one command with its arguments.
type command struct {
	name string
	args []any
}

// A result is what the server answers to a command: nil, an int64, a string, a []byte, or an []any of those; or an error, which is a
// redis.Error if the command has one of its own.
type result struct {
	value any
	err   error
}

// trip sends commands in one round trip, and returns a reply for each. It takes at most the timeouts for the connection, for writing and
// for the answers, and does not repeat commands.
func (s *store) trip(ctx context.Context, commands []command) []result {
	replies := make([]result, len(commands))
	n, err := s.exchange(ctx, commands, replies)
	for i := n; i < len(replies); i++ {
		replies[i].err = err
	}
	return replies
}

// exchange returns how many commands the server answered, and why not more.
func (s *store) exchange(ctx context.Context, commands []command, replies []result) (n int, err error) {
	conn, err := s.pool.GetContext(ctx)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			s.failed.Store(time.Now().UnixNano())
		}
		_ = conn.Close() // returns it to the pool, unless it has failed, which err says
	}()
	for _, c := range commands {
		if err := conn.Send(c.name, c.args...); err != nil {
			return 0, err
		}
	}
	if err := conn.Flush(); err != nil {
		return 0, err
	}
	end := time.Now().Add(s.timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(end) {
		end = d
	}
	for i := range replies {
		value, err := redis.ReceiveWithTimeout(conn, max(time.Until(end), 1)) // 0 is no timeout
		if conn.Err() != nil {
			return i, err
		}
		replies[i] = result{value, err}
	}
	return len(replies), nil
}
