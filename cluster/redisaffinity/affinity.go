package redisaffinity

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/redis/go-redis/v9"
)

// Affinity is cluster.Affinity over Redis. Make it with Open, then Run once.
type Affinity struct {
	cfg      Config
	client   *redis.Client
	replaced func(string, cluster.Served)
	asks     chan ask
	work     chan struct{} // holds one when something is to be written
	counts   counters

	// Claims come from workers and go to Redis from another goroutine.
	mu       sync.Mutex
	claims   map[string]*claim
	dirty    []string  // names of claims to be written, and of some that were released since
	renewals []renewal // in the order of their time
	releases []release
	away     error // why Redis does not answer; nil if it does
	told     bool  // that is in the log
	toldAt   time.Time
}

// A claim is of this node.
type claim struct {
	epoch uint64
	dirty bool
	next  time.Time // of the renewal
}

type renewal struct {
	name string
	at   time.Time
}

type release struct {
	name  string
	epoch uint64
}

var _ cluster.Affinity = (*Affinity)(nil)

// logPause is the least time between two complaints, should Redis come and go.
const logPause = 10 * time.Second

// errNotYet is what is wrong before Redis has answered.
var errNotYet = errors.New("it was not asked yet")

// Open checks the configuration. Redis need not be there.
func Open(cfg Config) (*Affinity, error) {
	cfg = cfg.withDefaults()
	o, err := cfg.options()
	if err != nil {
		return nil, err
	}
	redis.SetLogger(quiet{})
	return &Affinity{
		cfg: cfg, client: redis.NewClient(o), replaced: func(string, cluster.Served) {}, away: errNotYet,
		asks: make(chan ask, asksMax), work: make(chan struct{}, 1), claims: make(map[string]*claim),
	}, nil
}

// Run does the work until ctx ends. Claims then stay for their time to live.
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
	for {
		select {
		case k := <-a.asks:
			k.fail(cluster.ErrAffinityAway)
		default:
			return
		}
	}
}

// OnReplaced implements cluster.Affinity.
func (a *Affinity) OnReplaced(handle func(string, cluster.Served)) { a.replaced = handle }

// Err implements cluster.Affinity.
func (a *Affinity) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.away
}

// Claim implements cluster.Affinity.
func (a *Affinity) Claim(name string, epoch uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.claims[name]
	if c == nil {
		if len(a.claims) >= ClaimsMax {
			a.counts.refused.Add(1)
			return
		}
		c = &claim{}
		a.claims[name] = c
	}
	c.epoch = epoch
	a.touchLocked(name, c)
}

// Release implements cluster.Affinity.
func (a *Affinity) Release(name string, epoch uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.claims[name]; c != nil && c.epoch != epoch {
		return
	}
	delete(a.claims, name)
	if len(a.releases) < releasesMax {
		a.releases = append(a.releases, release{name, epoch})
		signal(a.work)
	}
}

// touchLocked lets a claim be written.
func (a *Affinity) touchLocked(name string, c *claim) {
	if !c.dirty {
		c.dirty = true
		a.dirty = append(a.dirty, name)
		if len(a.dirty) > max(2*len(a.claims), writesPerTrip) {
			a.compactLocked()
		}
	}
	signal(a.work)
}

// compactLocked leaves each claim that is to be written once in the list. Nothing else
// shortens it while Redis is away, and sessions come and go.
func (a *Affinity) compactLocked() {
	left := a.dirty[:0]
	for _, name := range a.dirty {
		if c := a.claims[name]; c != nil && c.dirty {
			c.dirty = false
			left = append(left, name)
		}
	}
	for _, name := range left {
		a.claims[name].dirty = true
	}
	clear(a.dirty[len(left):])
	a.dirty = left
}

// touchAll lets all claims be written, because Redis may have none of them.
func (a *Affinity) touchAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, c := range a.claims {
		a.touchLocked(name, c)
	}
}

// judge takes note of how Redis answered, and returns the error for who asked.
func (a *Affinity) judge(err error) error {
	switch {
	case err == nil, errors.Is(err, redis.Nil):
		return nil
	case errors.Is(err, context.Canceled): // Run ends
		return cluster.ErrAffinityAway
	case answered(err):
		a.counts.odd.Add(1)
		return cluster.ErrAffinityAnswer
	}
	a.counts.failures.Add(1)
	a.setAway(err)
	return cluster.ErrAffinityAway
}

// answered reports whether an error is the answer to one command, and not of Redis as a
// whole.
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

// setAway is called with nil when Redis answers.
func (a *Affinity) setAway(err error) {
	a.mu.Lock()
	was := a.away
	a.away = err
	now := time.Now()
	tell := err == nil && a.told || err != nil && !a.told && now.Sub(a.toldAt) > logPause
	if tell {
		a.told, a.toldAt = err != nil, now
	}
	a.mu.Unlock()
	if was != nil && err == nil {
		a.touchAll()
	}
	switch {
	case tell && err != nil:
		a.cfg.Log.Warn("Redis does not answer; sessions are served without affinity", "error", err)
	case tell:
		a.cfg.Log.Info("Redis answers again")
	}
}

func (a *Affinity) record(name string) string  { return a.cfg.Prefix + ":s:{" + name + "}" }
func (a *Affinity) attempt(name string) string { return a.cfg.Prefix + ":a:{" + name + "}" }
func (a *Affinity) lease(node string) string   { return a.cfg.Prefix + ":e:" + node }
func (a *Affinity) index(node string, bucket int) string {
	return a.cfg.Prefix + ":o:" + node + ":" + strconv.Itoa(bucket)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
