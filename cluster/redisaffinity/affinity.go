package redisaffinity

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// ServersMax is how many servers an Affinity may have.
const ServersMax = 2

// A Config says where Redis is. The zero value of each duration stands for its default.
type Config struct {
	// URLs are those of one or two servers: redis://[user:password@]host:port[/db], or rediss:// for
	// TLS. No log and no error shows them.
	URLs []string

	// TLS, if set, replaces the configuration that rediss:// implies, as for a private authority.
	TLS *tls.Config

	// Node is the name of this edge. It must be unique among the edges that run.
	Node string

	Timeout  time.Duration // for a server to answer; default 200 ms
	Renew    time.Duration // between renewals of a claim; default 20 s
	Lease    time.Duration // between signs of life; default 300 ms
	LeaseTTL time.Duration // default 1.5 s
	TryTTL   time.Duration // of the exclusive permission to adopt; default 1 s

	// Log gets what an operator should know; nil means slog.Default().
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Timeout = cmp.Or(c.Timeout, 200*time.Millisecond)
	c.Renew = cmp.Or(c.Renew, 20*time.Second)
	c.Lease = cmp.Or(c.Lease, 300*time.Millisecond)
	c.LeaseTTL = cmp.Or(c.LeaseTTL, 1500*time.Millisecond)
	c.TryTTL = cmp.Or(c.TryTTL, time.Second)
	c.Log = cmp.Or(c.Log, slog.Default())
	return c
}

// Errors of Open. None has a URL, because that has a password.
var (
	errNode    = errors.New("affinity: the node has no name")
	errServers = errors.New("affinity: want the URLs of one or two Redis servers")
	errURL     = errors.New("affinity: a Redis URL is not valid: want redis://[user:password@]host:port[/db], or rediss:// for TLS")
)

func (c *Config) validate() error {
	switch {
	case c.Node == "":
		return errNode
	case len(c.URLs) == 0, len(c.URLs) > ServersMax:
		return errServers
	}
	return nil
}

// options returns the options of the client of a server: it never waits for longer than the timeout, and
// does not repeat commands.
func (c *Config) options(url string) (*redis.Options, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, errURL
	}
	if c.TLS != nil {
		o.TLSConfig = c.TLS
	}
	o.ClientName = "dnp-" + c.Node
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = c.Timeout, c.Timeout, c.Timeout, c.Timeout
	o.DialerRetries, o.MaxRetries = 1, -1
	o.ContextTimeoutEnabled = true
	o.PoolSize = askers + 2
	return o, nil
}

// Affinity is cluster.Affinity over one server, or over two that know nothing of each other. Each claim goes to both, and
// each question too; the newest answer counts. Make it with Open, then Run once.
type Affinity struct{ servers []*instance }

var _ cluster.Affinity = (*Affinity)(nil)

// Open checks the configuration. It does not need Redis.
func Open(cfg Config) (*Affinity, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	var options []*redis.Options
	for _, url := range cfg.URLs {
		o, err := cfg.options(url)
		if err != nil {
			return nil, err
		}
		options = append(options, o)
	}
	logging.Disable() // it writes to standard error; the errors that the library returns say enough
	a := &Affinity{}
	for _, o := range options {
		s := newInstance(cfg, o)
		s.backed = func() bool {
			return slices.ContainsFunc(a.servers, func(o *instance) bool { return o != s && o.Err() == nil })
		}
		a.servers = append(a.servers, s)
	}
	return a, nil
}

// Run works until ctx ends. Claims then stay for their time to live.
func (a *Affinity) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, s := range a.servers {
		running.Go(func() { s.Run(ctx) })
	}
	running.Wait()
}

// OnReplaced implements cluster.Affinity.
func (a *Affinity) OnReplaced(handle func(string, cluster.Served)) {
	for _, s := range a.servers {
		s.OnReplaced(handle)
	}
}

// Claim implements cluster.Affinity.
func (a *Affinity) Claim(name string, epoch uint64) {
	for _, s := range a.servers {
		s.Claim(name, epoch)
	}
}

// Release implements cluster.Affinity.
func (a *Affinity) Release(name string, epoch uint64) {
	for _, s := range a.servers {
		s.Release(name, epoch)
	}
}

// Find implements cluster.Affinity.
func (a *Affinity) Find(name string, answer func(cluster.Served, error)) {
	p := a.poll(answer)
	for i, s := range a.servers {
		s.Find(name, func(found cluster.Served, err error) { p.add(i, found, err) })
	}
}

// Try implements cluster.Affinity.
func (a *Affinity) Try(name string, seen cluster.Served, answer func(cluster.Served, error)) {
	p := a.poll(answer)
	for i, s := range a.servers {
		s.Try(name, seen, func(found cluster.Served, err error) { p.add(i, found, err) })
	}
}

// Claimed implements cluster.Affinity. It lists what either server lists.
func (a *Affinity) Claimed(node string, each func([]string), done func(error)) {
	l := listing{each: each, listed: make(map[string]bool)}
	p := a.poll(func(_ cluster.Served, err error) { done(err) })
	for i, s := range a.servers {
		s.Claimed(node, l.add, func(err error) { p.add(i, cluster.Served{}, err) })
	}
}

// A Server is one server as this node sees it.
type Server struct {
	Addr  string // host:port
	Err   error  // why it does not answer; nil if it does
	Stats Stats
}

// Servers returns the servers in the order of their URLs.
func (a *Affinity) Servers() []Server {
	all := make([]Server, len(a.servers))
	for i, s := range a.servers {
		all[i] = Server{s.addr, s.Err(), s.Stats()}
	}
	return all
}

// Missing names what does not answer: "redis" if no server does, or "redis/host:port" for one of two.
func (a *Affinity) Missing() (list []string) {
	for _, s := range a.servers {
		if s.Err() != nil {
			list = append(list, "redis/"+s.addr)
		}
	}
	if len(list) == len(a.servers) {
		return []string{"redis"}
	}
	return list
}
