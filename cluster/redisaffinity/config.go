package redisaffinity

import (
	"cmp"
	"crypto/tls"
	"errors"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
)

// Times to live.
const (
	claimTTL = time.Minute
	indexTTL = 2 * time.Minute // of the list of claims of a node
)

// Bounds.
const (
	// ClaimsMax is how many sessions one node claims; further ones are counted and not claimed.
	ClaimsMax = 131_072

	// asksMax is how many questions may wait; further ones are refused.
	asksMax = 4096

	// asksPerTrip and writesPerTrip bound one round trip to Redis. From about 64 on, Redis spends
	// most of its time on the commands themselves.
	asksPerTrip   = 128
	writesPerTrip = 256

	// releasesMax is how many releases may wait while Redis is away. Further claims expire by their
	// time to live.
	releasesMax = 4096

	// buckets is how many parts the index of a node has, so that none is long.
	buckets = 64

	// bucketsPerTrip is how many of them are read together.
	bucketsPerTrip = 8

	// askers is how many goroutines ask. A single one would block behind the list of a dead node.
	askers = 2
)

// A Config says where Redis is. The zero value of each duration stands for its default.
type Config struct {
	// URL is redis://[user:password@]host:port[/db], or rediss:// for TLS. No log and no error shows
	// it.
	URL string

	// TLS, if set, replaces the configuration that rediss:// implies, as for a private authority.
	TLS *tls.Config

	// Node is the name of this edge. It must be unique among the edges that run.
	Node string

	Timeout  time.Duration // for Redis to answer; default 200 ms
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

// errURL does not contain the URL, because that has a password.
var errURL = errors.New("affinity: the Redis URL is not valid: want redis://[user:password@]host:port[/db], or rediss:// for TLS")

// options returns the options of the client: it never waits for longer than the timeout, and does not
// repeat commands.
func (c *Config) options() (*redis.Options, error) {
	if c.Node == "" {
		return nil, errors.New("affinity: the node has no name")
	}
	o, err := redis.ParseURL(c.URL)
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
