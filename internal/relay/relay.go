package relay

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
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
	// the only one, and Epoch above 0 and above that of every relay before.
	Leases cluster.Leases
	Epoch  uint64

	// DrainTimeout is how long handing the shards over may take at the end. 0 means
	// 10 s.
	DrainTimeout time.Duration

	// DurableRate is the most states that are stored in a second. 0 means 2,000.
	DurableRate int

	// Tick is the shortest time between two batches of a space. 0 means at once.
	Tick time.Duration

	// Wildcard makes the relay take publishes from their friendly subjects, for
	// NATS servers without the subject mappings.
	Wildcard bool

	// Spaces is the most spaces that the relay holds; publishes for more are
	// answered busy. 0 means 10,000.
	Spaces int

	// Limits are those of every space.
	Limits replication.Limits

	// Lanes is the number of goroutines that share the work. 0 means one per core.
	Lanes int

	// NewID makes a name that is unique for ever, for the subject of answers. nil
	// means from the system's secure random numbers. Simulations set it.
	NewID func() string

	// Log receives life-cycle events. nil means slog.Default().
	Log *slog.Logger

	// Telemetry takes traces and distributions of times. nil means none, which is for
	// simulations, because it reads the clock.
	Telemetry *telemetry.Telemetry
}

func (c *Config) setDefaults() {
	if c.Shards == 0 {
		c.Shards = 64
	}
	if c.Spaces == 0 {
		c.Spaces = 10_000
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = 10 * time.Second
	}
	if c.DurableRate == 0 {
		c.DurableRate = 2000
	}
	if c.Lanes == 0 {
		c.Lanes = runtime.GOMAXPROCS(0)
	}
	if c.NewID == nil {
		c.NewID = crand.Text
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
}

// validate reports all problems at once.
func (c *Config) validate() error {
	var errs []error
	if c.Node == "" {
		errs = append(errs, errors.New("relay: no node name"))
	}
	if c.Bus == nil {
		errs = append(errs, errors.New("relay: no bus"))
	}
	if c.Leases == nil && c.Epoch == 0 {
		errs = append(errs, errors.New("relay: neither leases nor an epoch"))
	}
	if c.DurableRate < 0 {
		errs = append(errs, errors.New("relay: negative durable rate"))
	}
	if c.Tick < 0 || c.Shards < 0 || c.Spaces < 0 || c.Lanes < 0 {
		errs = append(errs, errors.New("relay: negative tick, shards, spaces or lanes"))
	}
	for _, problem := range c.Limits.Validate() {
		errs = append(errs, errors.New("relay: "+problem))
	}
	return errors.Join(errs...)
}

// A Relay is one relay node. Make it with New, then call Run once.
type Relay struct {
	cfg   Config
	lanes []*Lane
	inbox string   // subject below which this relay takes answers
	end   []func() // unsubscribe

	signals  signals
	started  bool
	done     chan struct{}                  // closed when Run returns
	roster   atomic.Pointer[cluster.Roster] // the last one
	draining atomic.Bool
}

// New returns a relay, or an error that names every problem of cfg.
func New(cfg Config) (*Relay, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	r := &Relay{cfg: cfg, inbox: "_INBOX.dnp." + cfg.NewID(), done: make(chan struct{}), signals: newSignals(&cfg)}
	for range cfg.Lanes {
		r.lanes = append(r.lanes, newLane(r))
	}
	return r, nil
}

// Done is closed when Run has returned.
func (r *Relay) Done() <-chan struct{} { return r.done }

// Ready reports whether publishers can be answered.
func (r *Relay) Ready() bool { return r.cfg.Bus.Connected() }

// Run serves until ctx ends. The error says what failed; it is nil after a
// shutdown that was asked for.
func (r *Relay) Run(ctx context.Context) error {
	defer close(r.done)
	defer r.Stop()
	if !r.started {
		if err := r.Start(); err != nil {
			return err
		}
	}
	if r.cfg.Leases == nil {
		r.cfg.Log.Info("holding", "node", r.cfg.Node, "shards", r.cfg.Shards, "epoch", r.cfg.Epoch)
	}
	var running sync.WaitGroup
	lanes, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	for _, l := range r.lanes {
		running.Go(func() { l.loop(lanes) })
	}
	<-ctx.Done()
	if r.cfg.Leases != nil {
		timeout, cancel := context.WithTimeout(lanes, r.cfg.DrainTimeout)
		defer cancel()
		r.Drain()
		r.drained(timeout)
	}
	stop()
	running.Wait()
	return nil
}

// Lanes returns the lanes, for a caller that turns them itself, as a simulation
// does.
func (r *Relay) Lanes() []*Lane { return r.lanes }

// Stop ends what Start began. Run does it by itself.
func (r *Relay) Stop() {
	for _, f := range r.end {
		f()
	}
	r.end = nil
}

// Start subscribes to what every relay hears, and begins to hold shards. Run does it
// by itself if it was not done.
func (r *Relay) Start() error {
	r.started = true
	s := r.cfg.Subjects
	subs := subscriptions{bus: r.cfg.Bus}
	if r.cfg.Wildcard {
		subs.add(s.PublishAll(), func(m bus.Msg) { r.deal(kindPublish, m, s.ParsePublish) })
		subs.add(s.GetAll(), func(m bus.Msg) { r.deal(kindGet, m, s.ParseGet) })
	}
	r.cfg.Bus.OnChange(r.busChanged)
	subs.add(s.Event("*"), r.presence)
	subs.add(r.inbox+".*", r.present)
	if r.cfg.Leases != nil {
		subs.add(s.HeadAll(), r.fence)
		r.cfg.Leases.OnEvent(r.leaseEvent)
	}
	r.end = subs.end
	if subs.err != nil {
		return fmt.Errorf("relay: %w", subs.err)
	}
	for n := range r.cfg.Shards {
		if r.cfg.Leases == nil {
			r.lane(n).acquire(time.Time{}, n, r.cfg.Epoch) // no loop runs yet, and there is no space whose time could matter
		}
	}
	return nil
}

// subscribeShard brings the messages of a shard to its lane.
func (r *Relay) subscribeShard(l *Lane, n int) (end []func()) {
	s := r.cfg.Subjects
	subs := subscriptions{bus: r.cfg.Bus}
	subs.add(s.ShardPublishAll(n), func(m bus.Msg) { l.post(kindPublish, n, m) })
	subs.add(s.ShardGetAll(n), func(m bus.Msg) { l.post(kindGet, n, m) })
	subs.add(s.Repair(n), func(m bus.Msg) { l.post(kindRepair, n, m) })
	subs.add(s.Write(n), func(m bus.Msg) { l.post(kindWrite, n, m) })
	if subs.err != nil { // the bus is closed, so this relay is about to end
		r.cfg.Log.Error("a shard cannot be served", "shard", n, "error", subs.err)
	}
	return subs.end
}

// subscriptions are some of a bus that begin and end together.
type subscriptions struct {
	bus bus.Bus
	end []func()
	err error
}

func (s *subscriptions) add(subject string, handle func(bus.Msg)) {
	if s.err != nil {
		return
	}
	end, err := s.bus.Subscribe(subject, handle)
	if err != nil {
		s.err = fmt.Errorf("subscribe to %s: %w", subject, err)
		return
	}
	s.end = append(s.end, end)
}

// fence tells the leases of an epoch that another relay speaks in, so that a holder
// whose time is over stops before it hears of it from the store.
func (r *Relay) fence(m bus.Msg) {
	shard, ok := r.cfg.Subjects.ParseShard(m.Subject)
	if !ok {
		return
	}
	if epoch, ok := replication.HeadEpoch(m.Data); ok {
		r.cfg.Leases.Fence(shard, epoch)
	}
}

// eventMsg returns the message that carries an event.
func (r *Relay) eventMsg(e *replication.Event) bus.Msg {
	return bus.Msg{Subject: r.cfg.Subjects.Event(e.Space), Data: payload.JSON.AppendEvent(nil, e)}
}

func (r *Relay) lane(shard int) *Lane { return r.lanes[shard%len(r.lanes)] }

// deal gives a message that was not mapped to the lane of its shard.
func (r *Relay) deal(k kind, m bus.Msg, parse func(string) (subject.Address, bool)) {
	shard := 0 // an address that is no address is answered by any lane
	if a, ok := parse(m.Subject); ok {
		shard = cluster.Shard(a.Space, r.cfg.Shards)
	}
	r.lane(shard).post(k, shard, m)
}
