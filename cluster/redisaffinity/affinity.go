package redisaffinity

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/turn"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
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

// Affinity is cluster.Affinity over Redis. Make it with Open, then Run once.
type Affinity struct {
	cfg      Config
	client   *redis.Client
	replaced func(string, cluster.Served)
	asks     chan ask
	work     turn.Wake // something is to be written

	// Workers make claims, and another goroutine writes them to Redis.
	mu       sync.Mutex
	claims   map[string]claim
	dirty    map[string]bool // names of claims to write
	renewals []renewal       // in the order of their time
	releases []session
	away     error // why Redis does not answer; nil if it does
	logged   bool  // the log says that Redis is away
	loggedAt time.Time
	stats    Stats
}

// A claim is a claim of this node.
type claim struct {
	epoch uint64
	next  time.Time // of the renewal; zero until the claim is written
}

type renewal struct {
	name string
	at   time.Time
}

// A session is a claim to write or to release.
type session struct {
	name  string
	epoch uint64
}

var _ cluster.Affinity = (*Affinity)(nil)

// logPause is the minimum time between two warnings, should Redis come and go.
const logPause = 10 * time.Second

// errNotYet is the error before the first answer of Redis.
var errNotYet = errors.New("the affinity store has not answered yet")

// Open checks the configuration. It does not need Redis.
func Open(cfg Config) (*Affinity, error) {
	cfg = cfg.withDefaults()
	o, err := cfg.options()
	if err != nil {
		return nil, err
	}
	logging.Disable() // it writes to standard error; the errors that the library returns say enough
	return &Affinity{
		cfg: cfg, client: redis.NewClient(o), replaced: func(string, cluster.Served) {}, away: errNotYet,
		asks: make(chan ask, asksMax), work: turn.NewWake(), claims: make(map[string]claim), dirty: make(map[string]bool),
	}, nil
}

// Run works until ctx ends. Claims then stay for their time to live.
func (a *Affinity) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { a.keepLease(ctx) })
	running.Go(func() { a.write(ctx) })
	for range askers {
		running.Go(func() { a.answer(ctx) })
	}
	running.Wait()
	a.mu.Lock()
	a.away = cluster.ErrAffinityAway
	a.mu.Unlock()
	a.client.Close()
	for len(a.asks) > 0 {
		k := <-a.asks
		k.end(cluster.ErrAffinityAway)
	}
}

// OnReplaced implements cluster.Affinity.
func (a *Affinity) OnReplaced(handle func(string, cluster.Served)) { a.replaced = handle }

// Err returns why Redis does not answer; nil if it does.
func (a *Affinity) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.away
}

// Claim implements cluster.Affinity.
func (a *Affinity) Claim(name string, epoch uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.claims[name]; !ok && len(a.claims) >= ClaimsMax {
		a.stats.Refused++
		return
	}
	a.claims[name] = claim{epoch: epoch}
	a.touchLocked(name)
}

// Release implements cluster.Affinity.
func (a *Affinity) Release(name string, epoch uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c, ok := a.claims[name]; ok && c.epoch != epoch {
		return
	}
	a.forgetLocked(name)
	if len(a.releases) < releasesMax {
		a.releases = append(a.releases, session{name, epoch})
		a.work.Wake()
	}
}

func (a *Affinity) forgetLocked(name string) {
	delete(a.claims, name)
	delete(a.dirty, name)
}

// touchLocked marks a claim to be written.
func (a *Affinity) touchLocked(name string) {
	a.dirty[name] = true
	a.work.Wake()
}

// touchAll marks all claims to be written, because Redis may have none of them.
func (a *Affinity) touchAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name := range a.claims {
		a.touchLocked(name)
	}
}

// judge takes note of an error of Redis, and returns the error for the caller.
func (a *Affinity) judge(err error) error {
	switch {
	case err == nil, errors.Is(err, redis.Nil):
		return nil
	case errors.Is(err, context.Canceled): // Run ends
		return cluster.ErrAffinityAway
	case answered(err):
		a.count(&a.stats.Odd, 1)
		return cluster.ErrAffinityAnswer
	}
	a.count(&a.stats.Failures, 1)
	a.setAway(err)
	return cluster.ErrAffinityAway
}

// answered reports whether an error concerns one command, and not Redis as a whole.
func answered(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	for _, p := range [...]string{
		"NOAUTH", "WRONGPASS", "NOPERM", "LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "OOM", "MISCONF", "BUSY",
	} {
		if redis.HasErrorPrefix(err, p) {
			return false
		}
	}
	return true
}

// setAway takes note that Redis does not answer; with nil, that it does.
func (a *Affinity) setAway(err error) {
	a.mu.Lock()
	was := a.away
	a.away = err
	now := time.Now()
	report := err == nil && a.logged || err != nil && !a.logged && now.Sub(a.loggedAt) > logPause
	if report {
		a.logged, a.loggedAt = err != nil, now
	}
	a.mu.Unlock()
	if was != nil && err == nil {
		a.touchAll()
	}
	switch {
	case report && err != nil:
		a.cfg.Log.Warn("Redis does not answer; sessions are served without affinity", "error", err)
	case report:
		a.cfg.Log.Info("Redis answers again")
	}
}

func (a *Affinity) record(name string) string  { return "dnp:s:{" + name + "}" }
func (a *Affinity) attempt(name string) string { return "dnp:a:{" + name + "}" }
func (a *Affinity) lease(node string) string   { return "dnp:e:" + node }
func (a *Affinity) index(node string, bucket int) string {
	return "dnp:o:" + node + ":" + strconv.Itoa(bucket)
}

// keepLease renews the lease that says that this node is alive, until ctx ends. The answers show whether
// Redis is there, and whether it lost its data.
func (a *Affinity) keepLease(ctx context.Context) {
	process := rand.Text() // shows restarts to an operator
	var renewed time.Time
	tick := time.NewTicker(a.cfg.Lease)
	defer tick.Stop()
	for ctx.Err() == nil {
		asked := time.Now()
		lost, err := a.renewLease(ctx, process)
		switch {
		case err == nil:
			if lost && !renewed.IsZero() && asked.Sub(renewed) < a.cfg.LeaseTTL/2 {
				a.count(&a.stats.Forgotten, 1)
				a.cfg.Log.Warn("Redis has lost its data; claims are written again")
				a.touchAll()
			}
			renewed = asked
			a.setAway(nil)
		case ctx.Err() == nil:
			a.count(&a.stats.Failures, 1)
			a.setAway(err)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// renewLease reports whether the lease was missing.
func (a *Affinity) renewLease(ctx context.Context, process string) (lost bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timeout)
	defer cancel()
	err = a.client.SetArgs(ctx, a.lease(a.cfg.Node), process, redis.SetArgs{TTL: a.cfg.LeaseTTL, Get: true}).Err()
	if errors.Is(err, redis.Nil) {
		return true, nil
	}
	return false, err
}

// Stats are counters since Open.
type Stats struct {
	Trips     uint64 // round trips to Redis
	Writes    uint64 // claims, renewals and releases
	Asks      uint64 // questions that Redis answered
	Failures  uint64 // commands without an answer
	Odd       uint64 // answers that are not valid
	Refused   uint64 // questions and claims beyond the bounds
	Replaced  uint64 // claims that another node has in a later epoch
	Forgotten uint64 // times that Redis had lost its data
}

// Stats returns the counters.
func (a *Affinity) Stats() Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stats
}

// count adds n to a counter of a.stats.
func (a *Affinity) count(counter *uint64, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	*counter += uint64(n)
}
