package redisaffinity

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/turn"
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

// An instance is cluster.Affinity over one server, and knows of no other one.
type instance struct {
	cfg      Config
	addr     string // host:port
	log      *slog.Logger
	client   *redis.Client
	backed   func() bool // whether another server answers; for the log
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

var _ cluster.Affinity = (*instance)(nil)

// logPause is the minimum time between two warnings, should Redis come and go.
const logPause = 10 * time.Second

// errNotYet is the error before the first answer of Redis.
var errNotYet = errors.New("the affinity store has not answered yet")

func newInstance(cfg Config, o *redis.Options) *instance {
	return &instance{
		cfg: cfg, addr: o.Addr, log: cfg.Log.With("server", o.Addr), client: redis.NewClient(o),
		backed: func() bool { return false }, replaced: func(string, cluster.Served) {}, away: errNotYet,
		asks: make(chan ask, asksMax), work: turn.NewWake(), claims: make(map[string]claim), dirty: make(map[string]bool),
	}
}

// Run works until ctx ends. Claims then stay for their time to live.
func (a *instance) Run(ctx context.Context) {
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
func (a *instance) OnReplaced(handle func(string, cluster.Served)) { a.replaced = handle }

// Err returns why the server does not answer; nil if it does.
func (a *instance) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.away
}

// Claim implements cluster.Affinity.
func (a *instance) Claim(name string, epoch uint64) {
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
func (a *instance) Release(name string, epoch uint64) {
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

func (a *instance) forgetLocked(name string) {
	delete(a.claims, name)
	delete(a.dirty, name)
}

// touchLocked marks a claim to be written.
func (a *instance) touchLocked(name string) {
	a.dirty[name] = true
	a.work.Wake()
}

// touchAll marks all claims to be written, because Redis may have none of them.
func (a *instance) touchAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name := range a.claims {
		a.touchLocked(name)
	}
}

// judge takes note of an error of Redis, and returns the error for the caller.
func (a *instance) judge(err error) error {
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
func (a *instance) setAway(err error) {
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
	case report && err != nil && a.backed():
		a.log.Warn("Redis server does not answer; the other one does", "error", err)
	case report && err != nil:
		a.log.Warn("Redis does not answer; sessions are served without affinity", "error", err)
	case report:
		a.log.Info("Redis answers again")
	}
}

func (a *instance) record(name string) string  { return "dnp:s:{" + name + "}" }
func (a *instance) attempt(name string) string { return "dnp:a:{" + name + "}" }
func (a *instance) lease(node string) string   { return "dnp:e:" + node }
func (a *instance) index(node string, bucket int) string {
	return "dnp:o:" + node + ":" + strconv.Itoa(bucket)
}

// keepLease renews the lease that says that this node is alive, until ctx ends. The answers show whether
// Redis is there, and whether it lost its data.
func (a *instance) keepLease(ctx context.Context) {
	process := rand.Text() // shows restarts to an operator
	var renewed time.Time
	for asked := range turn.Every(ctx, a.cfg.Lease) {
		lost, err := a.renewLease(ctx, process)
		switch {
		case err == nil:
			if lost && !renewed.IsZero() && asked.Sub(renewed) < a.cfg.LeaseTTL/2 {
				a.count(&a.stats.Forgotten, 1)
				a.log.Warn("Redis has lost its data; claims are written again")
				a.touchAll()
			}
			renewed = asked
			a.setAway(nil)
		case ctx.Err() == nil:
			a.count(&a.stats.Failures, 1)
			a.setAway(err)
		}
	}
}

// renewLease reports whether the lease was missing.
func (a *instance) renewLease(ctx context.Context, process string) (lost bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timeout)
	defer cancel()
	err = a.client.SetArgs(ctx, a.lease(a.cfg.Node), process, redis.SetArgs{TTL: a.cfg.LeaseTTL, Get: true}).Err()
	if errors.Is(err, redis.Nil) {
		return true, nil
	}
	return false, err
}

// Stats are counters of one server since Open.
type Stats struct {
	Trips     uint64 // round trips
	Writes    uint64 // claims, renewals and releases
	Asks      uint64 // questions that Redis answered
	Failures  uint64 // commands without an answer
	Odd       uint64 // answers that are not valid
	Refused   uint64 // questions and claims beyond the bounds
	Forgotten uint64 // times that Redis had lost its data
}

// Stats returns the counters.
func (a *instance) Stats() Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stats
}

// count adds n to a counter of a.stats.
func (a *instance) count(counter *uint64, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	*counter += uint64(n)
}
