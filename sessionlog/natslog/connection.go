package natslog

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/internal/jetstream"
	"github.com/dnprelay/dnprelay/internal/outage"
	"github.com/dnprelay/dnprelay/internal/turn"
	"github.com/nats-io/nats.go"
)

// Times of the connection of a copy. Its server counts as lost after pingsMax pings without an answer,
// 0.9 s at most after it stopped. All are arbitrary.
const (
	pingInterval = 300 * time.Millisecond
	pingsMax     = 2
	dialTimeout  = 500 * time.Millisecond // of one attempt to connect
	writeTimeout = time.Second            // after which a connection that takes no bytes is broken
	seekFirst    = 250 * time.Millisecond // from one round of attempts to the next
	seekLast     = time.Second
	leaveAfter   = time.Second // for which answers may come over the connection before
	awayReport   = time.Minute // between two log lines about a server that is away
)

// urlsMax bounds the addresses of servers, of which a cluster may tell any number, and seekAll says that
// every eighth round of attempts tries all of them, although one of them belonged to the wanted server.
const (
	urlsMax = 64
	seekAll = 8
)

// A connection is that of a copy, to the server that holds the streams of the copy. While that one cannot
// be reached the connection is to another server, whence requests get there if only the way from this node
// is broken. It concerns this copy alone, so that no other one waits for a server that is gone.
type connection struct {
	copy    int
	options nats.Options // of each connection, but for the address
	base    *nats.Conn   // whose servers are known, too
	users   []*jetstream.Requester
	log     *slog.Logger

	home  atomic.Pointer[string] // name of the wanted server; nil while it is not known
	at    atomic.Pointer[string] // name of the connected server; nil for none
	moves atomic.Uint64
	wake  turn.Wake // home has changed, or the connection is closed

	// The rest is owned by run.
	current  *nats.Conn // nil for none
	leaving  *nats.Conn // the one before, over which answers may come; nil for none
	leaveAt  time.Time
	last     string            // name of the server to which it was connected last
	names    map[string]string // of the servers at addresses, as they were last
	away     bool              // the log says that the wanted server is away
	awayAt   time.Time
	missedAt time.Time // when the wanted server was missed first, although other servers could be reached
}

// newConnection returns a connection like base, with the same servers and credentials.
func newConnection(copy int, base *nats.Conn, log *slog.Logger, users ...*jetstream.Requester) *connection {
	c := &connection{copy: copy, options: base.Opts, base: base, users: users, log: log, wake: turn.NewWake(), names: map[string]string{}}
	o := &c.options
	o.AllowReconnect, o.RetryOnFailedConnect = false, false // run chooses the next server
	o.PingInterval, o.MaxPingsOut, o.Timeout, o.FlusherTimeout = pingInterval, pingsMax, dialTimeout, writeTimeout
	o.ClosedCB = func(*nats.Conn) { c.wake.Wake() }
	o.DisconnectedErrCB, o.ReconnectedCB, o.ConnectedCB, o.DiscoveredServersCB = nil, nil, nil, nil
	return c
}

// setHome says which server holds the streams, from any goroutine.
func (c *connection) setHome(name string) {
	if old := c.home.Swap(&name); old == nil || *old != name {
		c.wake.Wake()
	}
}

// seekPause returns the time from the n-th round of attempts to the next one.
func seekPause(n int) time.Duration { return min(seekFirst<<min(n, 8), seekLast) }

// run connects until ctx ends. A round of attempts begins seekFirst after the one before at the earliest, whatever
// servers do.
func (c *connection) run(ctx context.Context) {
	defer c.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var sought time.Time
	for n := 0; ctx.Err() == nil; {
		c.drop()
		due := sought.Add(seekPause(n))
		switch now := time.Now(); {
		case c.satisfied():
			n, due = 0, now.Add(time.Hour)
		case !now.Before(due):
			sought = now
			c.seek(ctx, n)
			c.report(now)
			n++
			due = sought.Add(seekPause(n))
		}
		if c.leave(time.Now()); c.leaving != nil && c.leaveAt.Before(due) {
			due = c.leaveAt
		}
		timer.Reset(time.Until(due))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-c.wake:
		}
	}
}

// satisfied reports whether no other server would be better.
func (c *connection) satisfied() bool {
	home := c.home.Load()
	return c.current != nil && (home == nil || *home == c.last)
}

// report logs when the wanted server goes away and comes back, at most once per awayReport. While the node has no
// connection to any server, and a moment before and after, it logs nothing: the loss of that connection is logged.
func (c *connection) report(now time.Time) {
	ok := c.satisfied()
	if ok {
		c.missedAt = time.Time{}
	} else if c.missedAt.IsZero() || !c.base.IsConnected() {
		c.missedAt = now
	}
	switch {
	case ok && c.away:
		c.away = false
		c.log.Info("reached the NATS server of a copy of the session log again", "copy", c.copy, "server", c.last)
	case !ok && !c.away && c.home.Load() != nil && now.Sub(c.missedAt) >= outage.Steady && now.Sub(c.awayAt) >= awayReport:
		c.away, c.awayAt = true, now
		c.log.Warn("cannot reach the NATS server of a copy of the session log; trying again", "copy", c.copy, "server", *c.home.Load())
	}
}

// drop takes note of the end of the connection.
func (c *connection) drop() {
	if c.current == nil || !c.current.IsClosed() {
		return
	}
	c.use(nil)
	for _, q := range c.users {
		q.GiveUp()
	}
}

// seek tries servers until one is the wanted one.
func (c *connection) seek(ctx context.Context, n int) {
	for _, u := range c.candidates(n) {
		if ctx.Err() != nil || c.satisfied() {
			return
		}
		nc, err := c.dial(u)
		if err != nil {
			continue
		}
		c.names[u] = nc.ConnectedServerName()
		if home := c.home.Load(); c.current == nil || home != nil && *home == c.names[u] {
			c.use(nc)
		} else {
			nc.Close()
		}
	}
}

// candidates returns the addresses to try in the n-th round: those of the wanted server first.
func (c *connection) candidates(n int) []string {
	all := slices.Clone(c.options.Servers)
	if len(all) == 0 {
		all = append(all, cmp.Or(c.options.Url, nats.DefaultURL))
	}
	all = append(all, c.base.DiscoveredServers()...)
	if c.current != nil {
		all = append(all, c.current.DiscoveredServers()...)
	}
	if all = compact(all); len(all) > urlsMax {
		all = all[:urlsMax]
	}
	maps.DeleteFunc(c.names, func(u, _ string) bool { return !slices.Contains(all, u) })
	home := c.home.Load()
	if home == nil {
		return all
	}
	first := slices.DeleteFunc(slices.Clone(all), func(u string) bool { return c.names[u] != *home })
	if len(first) > 0 && c.current != nil && n%seekAll != 0 {
		return first
	}
	return compact(append(first, all...))
}

// compact returns texts without repetitions, in their order.
func compact(all []string) (once []string) {
	for _, s := range all {
		if !slices.Contains(once, s) {
			once = append(once, s)
		}
	}
	return once
}

// dial connects to one address. An address that a server told has no user, so it gets that of the
// configured ones.
func (c *connection) dial(address string) (*nats.Conn, error) {
	o := c.options
	if first := cmp.Or(strings.Join(o.Servers[:min(len(o.Servers), 1)], ""), o.Url); !strings.Contains(address, "@") {
		if u, err := url.Parse(first); err == nil && u.User != nil {
			password, ok := u.User.Password()
			if o.User, o.Password = u.User.Username(), password; !ok {
				o.User, o.Token = "", u.User.Username()
			}
		}
	}
	o.Url, o.Servers = address, nil
	return o.Connect()
}

// use makes requests leave over nc; nil for none.
func (c *connection) use(nc *nats.Conn) {
	for _, q := range c.users {
		_ = q.Use(nc) // fails if nc is closed, which drop finds
	}
	if c.current != nil && !c.current.IsClosed() {
		c.leave(time.Time{})
		c.leaving, c.leaveAt = c.current, time.Now().Add(leaveAfter)
	}
	c.current = nc
	if nc == nil {
		c.at.Store(nil)
		return
	}
	name := nc.ConnectedServerName()
	if c.last != "" && c.last != name {
		c.moves.Add(1)
	}
	c.last = name
	c.at.Store(&name)
}

// leave closes the connection before, if its time is over. The zero time is after all others.
func (c *connection) leave(now time.Time) {
	if c.leaving != nil && (now.IsZero() || !now.Before(c.leaveAt)) {
		c.leaving.Close()
		c.leaving = nil
	}
}

func (c *connection) close() {
	c.leave(time.Time{})
	if c.current != nil {
		c.current.Close()
	}
}
