// Package relay is the node that has authority over spaces.
//
// A relay gives what publishers, game servers and edges ask for to the [replication.Store]
// of the space, and publishes what the store produces: batches for the replicas of the
// space, answers, events. The shards that it owns are shared out among workers; a worker is
// one goroutine that owns the stores of its shards, so no store is ever locked.
//
// What a worker does is a function of the messages and the time ([Worker.Turn]); only the
// loop around it reads the clock.
package relay

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/inspect/desk"
	"github.com/dnprelay/dnprelay/internal/outage"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/internal/turn"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
)

// Config is what a relay is made of.
type Config struct {
	// Node is the name of this relay. It must not be empty.
	Node string

	// Bus carries everything.
	Bus      bus.Bus
	Subjects subject.Names

	// Shards is the number of shards of the deployment. 0 means 64.
	Shards int

	// Leases say which shards this relay holds, and store what must survive it. nil
	// means that it holds all, in the epoch Epoch, and stores nothing; then it must be
	// the only relay, and Epoch must be above 0 and above that of every relay before.
	Leases cluster.Leases
	Epoch  uint64

	// Missing names what Leases need and do not have. nil means nothing. It is called from any goroutine.
	Missing func() []string

	// Stored lists the states of a shard for which Leases have a message, without data, also of states that were removed. The relay
	// compares them with what it serves. done may be called from any goroutine. nil means that nothing is compared.
	Stored func(shard int, done func([]cluster.Keyframe, error))

	// DrainTimeout is how long handing the shards over may take at the end. 0 means
	// 10 s.
	DrainTimeout time.Duration

	// DurableRate is how many states the relay stores in a second at most. 0 means 2,000.
	DurableRate int

	// Tick is the shortest time between two batches of a space. 0 means at once.
	Tick time.Duration

	// Wildcard makes the relay subscribe to publishes under the subjects that publishers
	// use, for NATS servers without the subject mappings.
	Wildcard bool

	// Spaces is how many spaces the relay holds at most; it answers publishes for more
	// with busy. 0 means 10,000.
	Spaces int

	// Eye is the eye of clients that were given none; see replication.StoreConfig.
	Eye replication.Eye

	// Limits are those of every space.
	Limits replication.Limits

	// Workers is the number of goroutines that share the work. 0 means one per core.
	Workers int

	// NewID makes a name that is unique for ever, for the subject of answers. nil
	// means from the system's secure random numbers. Simulations set it.
	NewID func() string

	// Log receives life-cycle events. nil means slog.Default().
	Log *slog.Logger

	// Telemetry takes traces and distributions of times. nil means none, which is for
	// simulations, because it reads the clock.
	Telemetry *telemetry.Telemetry
}

// withDefaults returns c with the default of each field that is zero.
func (c Config) withDefaults() Config {
	c.Shards = cmp.Or(c.Shards, 64)
	c.Spaces = cmp.Or(c.Spaces, 10_000)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 10*time.Second)
	c.DurableRate = cmp.Or(c.DurableRate, 2000)
	c.Workers = cmp.Or(c.Workers, runtime.GOMAXPROCS(0))
	c.Log = cmp.Or(c.Log, slog.Default())
	if c.NewID == nil {
		c.NewID = crand.Text
	}
	return c
}

// validate reports all problems at once.
func (c Config) validate() error {
	var errs []error
	check := func(ok bool, problem string) {
		if !ok {
			errs = append(errs, errors.New("relay: "+problem))
		}
	}
	check(c.Node != "", "no node name")
	check(c.Bus != nil, "no bus")
	check(c.Leases != nil || c.Epoch != 0, "neither leases nor an epoch")
	check(c.DurableRate >= 0, "negative durable rate")
	check(c.Tick >= 0 && c.Shards >= 0 && c.Spaces >= 0 && c.Workers >= 0, "negative tick, shards, spaces or workers")
	for _, problem := range c.Limits.Validate() {
		check(false, problem)
	}
	return errors.Join(errs...)
}

// A Relay is one relay node. Make it with New, then call Run once.
type Relay struct {
	cfg     Config
	workers []*Worker
	inbox   string   // subject below which this relay receives the answers of edges
	end     []func() // unsubscribe

	signals  signals
	started  bool
	done     chan struct{}                  // closed when Run returns
	roster   atomic.Pointer[cluster.Roster] // the latest one
	draining atomic.Bool
	silence  outage.Outage // of the durable store
	loads    outage.Outage // of loads of shards
	shards   shardLog
	heads    cover

	connection outage.Connection // to the bus
	look       inspector
}

// New returns a relay, or an error that names every problem of cfg.
func New(cfg Config) (*Relay, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	r := &Relay{cfg: cfg, inbox: subject.InboxWho + "." + cfg.NewID(), done: make(chan struct{}), signals: newSignals(cfg.Telemetry, cfg.Subjects)}
	r.heads.at = make([]time.Time, cfg.Shards)
	r.look = inspector{Desk: desk.New(cfg.Bus, cfg.Node, "relay"), relay: r, started: time.Now()}
	for i := range cfg.Workers {
		r.workers = append(r.workers, newWorker(r, i))
	}
	return r, nil
}

// Done is closed when Run has returned.
func (r *Relay) Done() <-chan struct{} { return r.done }

// Ready reports whether this relay can answer publishers, and whether each publish had a holder to
// go to when it began.
func (r *Relay) Ready() bool { return r.cfg.Bus.Connected() && !r.Hangs() && r.Covered() }

// Covered reports whether every shard had a holder that served it once since this relay began. A relay
// alone holds all of them.
func (r *Relay) Covered() bool { return r.cfg.Leases == nil || r.heads.whole.Load() }

// Missing names what this relay needs and does not have: "workers" that come to their turns, a holder
// for all "shards", stored states that it does not serve, and what Config.Missing names. It may be called from any goroutine.
func (r *Relay) Missing() (list []string) {
	if r.Hangs() {
		list = append(list, "workers")
	}
	if !r.Covered() {
		list = append(list, "shards")
	}
	if _, shards := r.shards.unserved(); len(shards) > 0 {
		list = append(list, "states of shards "+ranges(shards))
	}
	if r.cfg.Missing != nil {
		list = append(list, r.cfg.Missing()...)
	}
	return list
}

// hangsAfter is how long a worker may take to come to its next turn. It is arbitrary, and far
// above any turn.
const hangsAfter = 5 * time.Second

// Hangs reports whether a worker does not come to its next turn. It may be called from any
// goroutine.
func (r *Relay) Hangs() bool {
	now := time.Now().UnixNano()
	for _, w := range r.workers {
		if at := w.asked.Load(); at != 0 && now-at >= int64(hangsAfter) {
			return true
		}
	}
	return false
}

// watch asks every worker for a turn once a second, until ctx ends.
func (r *Relay) watch(ctx context.Context) {
	hung := false
	for range turn.Every(ctx, time.Second) {
		if hangs := r.Hangs(); hangs != hung {
			hung = hangs
			r.cfg.Log.Error("a worker does not come to its next turn, or does again", "node", r.cfg.Node, "hangs", hangs)
		}
		for _, w := range r.workers {
			if w.asked.CompareAndSwap(0, time.Now().UnixNano()) {
				w.commands.Put(func(now time.Time) {
					w.asked.Store(0)
					w.logStore(now)
					w.loads.log(now)
					w.measure(now)
				})
			}
		}
	}
}

// Run serves until ctx ends. The error says what failed; it is nil after a shutdown through
// ctx.
func (r *Relay) Run(ctx context.Context) error {
	defer close(r.done)
	defer r.Stop()
	if !r.started {
		if err := r.Start(); err != nil {
			return err
		}
	}
	if r.cfg.Leases == nil {
		r.cfg.Log.Info("serving shards", "node", r.cfg.Node, "shards", r.cfg.Shards, "epoch", r.cfg.Epoch)
	}
	var running sync.WaitGroup
	workers, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	for _, w := range r.workers {
		running.Go(func() { w.loop(workers) })
	}
	running.Go(func() { r.watch(workers) })
	running.Go(func() { r.report(workers) })
	<-ctx.Done()
	drained := true
	if r.cfg.Leases != nil {
		timeout, cancel := context.WithTimeout(workers, r.cfg.DrainTimeout)
		defer cancel()
		r.Drain()
		drained = r.drained(timeout)
	}
	stop()
	running.Wait()
	if !drained {
		return r.undone()
	}
	return nil
}

// undone returns what was not done when the drain timeout was over. No worker runs any longer.
func (r *Relay) undone() error {
	shards, states := 0, 0
	for _, w := range r.workers {
		shards += len(w.owned)
		for _, o := range slices.Concat(w.owned, w.former) {
			states += o.dirty() + len(o.storing)
		}
	}
	return fmt.Errorf("the drain timeout of %v is over: %d shards were not handed over, the changes of %d states are not stored",
		r.cfg.DrainTimeout, shards, states)
}

// Workers returns the workers, for a caller that turns them itself, as a simulation
// does.
func (r *Relay) Workers() []*Worker { return r.workers }

// Stop ends what Start began. Run does it by itself.
func (r *Relay) Stop() {
	for _, f := range r.end {
		f()
	}
	r.end = nil
}

// Start makes the subscriptions that every relay has, and begins to own shards. Run does
// it if it was not done.
func (r *Relay) Start() error {
	r.started = true
	s := r.cfg.Subjects
	subs := subscriptions{bus: r.cfg.Bus}
	if r.cfg.Wildcard {
		subs.add(s.PublishAll(), func(m bus.Msg) { r.deal((*Worker).publish, m, s.ParsePublish) })
		subs.add(s.GetAll(), func(m bus.Msg) { r.deal((*Worker).get, m, s.ParseGet) })
	}
	r.cfg.Bus.OnChange(r.busChanged)
	subs.add(s.Event("*"), r.presence)
	subs.add(r.inbox+".*", r.present)
	subs.add(s.Spaces(), r.look.spaces)
	subs.add(s.Nodes(), r.look.nodes)
	subs.add(s.Why("*"), r.look.why)
	if r.cfg.Leases != nil {
		subs.add(s.HeadAll(), r.head)
		r.cfg.Leases.OnEvent(r.leaseEvent)
	}
	r.end = subs.end
	if subs.err != nil {
		return fmt.Errorf("relay: %w", subs.err)
	}
	for n := range r.cfg.Shards {
		if r.cfg.Leases == nil {
			r.worker(n).acquire(time.Time{}, n, r.cfg.Epoch, 0, false) // no loop runs yet, and no space depends on the time
		}
	}
	return nil
}

// head tells the leases the epoch of a head, so that a holder that was replaced stops before
// the store tells it. The heads of this relay come, too, over the bus.
func (r *Relay) head(m bus.Msg) {
	shard, ok := r.cfg.Subjects.ParseShard(m.Subject)
	if !ok {
		return
	}
	if epoch, ok := replication.HeadEpoch(m.Data); ok {
		r.cfg.Leases.Fence(shard, epoch)
		r.heads.note(time.Now(), shard)
	}
}

// headFresh is how old a head may be that shows that its shard has a holder: heads that got lost
// may be between it and the newest.
const headFresh = 4 * headInterval

// A cover finds out when every shard has a holder that serves it. A holder subscribes to what a shard
// gets before it sends the first head, so a head that arrives shows that the NATS server knows the
// subscriptions.
type cover struct {
	at    []time.Time // of the newest head of each shard; belongs to the subscription to heads
	whole atomic.Bool
}

func (c *cover) note(now time.Time, shard int) {
	if shard >= len(c.at) || c.whole.Load() {
		return
	}
	c.at[shard] = now
	c.whole.Store(!slices.ContainsFunc(c.at, func(at time.Time) bool { return now.Sub(at) > headFresh }))
}

// busChanged asks about every space again, because events were missed.
func (r *Relay) busChanged(connected bool) {
	if !connected {
		if r.connection.Lost() {
			r.cfg.Log.Warn("bus lost; clients and publishers cannot reach this relay, which gets no shards and stores nothing", "node", r.cfg.Node)
		}
		return
	}
	r.connection.Restored(time.Now())
	for _, w := range r.workers {
		w.commands.Put(w.askAll)
	}
}

func (r *Relay) worker(shard int) *Worker { return r.workers[shard%len(r.workers)] }

// deal gives a message whose subject names no shard to the worker of its shard.
func (r *Relay) deal(handle handler, m bus.Msg, parse func(string) (subject.Address, bool)) {
	shard := 0 // any worker can answer a malformed address
	if a, ok := parse(m.Subject); ok {
		shard = cluster.Shard(a.Space, r.cfg.Shards)
	}
	r.worker(shard).post(shard, handle, m)
}

// SetRoster tells the relay which nodes there are, for those who ask it, from any goroutine.
func (r *Relay) SetRoster(roster cluster.Roster) { r.roster.Store(&roster) }

// Drain begins to hand every shard over to the relay that should have it next. Run does it by
// itself.
func (r *Relay) Drain() {
	r.draining.Store(true)
	for _, w := range r.workers {
		w.place.changed.Wake()
		w.wake()
	}
}

// drained waits until this relay owns no shard or ctx ends, and reports which.
func (r *Relay) drained(ctx context.Context) bool {
	for _, w := range r.workers {
		drained := make(chan struct{})
		w.commands.Put(func(time.Time) { w.drained = drained })
		select {
		case <-drained:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
