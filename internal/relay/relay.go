package relay

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/replication"
)

// Config is what a relay is made of.
type Config struct {
	// Node is the name of this relay. It must not be empty.
	Node string

	// Bus carries everything.
	Bus      replication.Bus
	Subjects replication.Subjects

	// Shards is the number of shards of the deployment. 0 means 64.
	Shards int

	// Epoch is the number of this holding. It must be above 0 and above that of
	// every relay before.
	Epoch uint64

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
}

func (c *Config) setDefaults() {
	if c.Shards == 0 {
		c.Shards = 64
	}
	if c.Spaces == 0 {
		c.Spaces = 10_000
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
	if c.Epoch == 0 {
		errs = append(errs, errors.New("relay: no epoch"))
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
}

// New returns a relay, or an error that names every problem of cfg.
func New(cfg Config) (*Relay, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	r := &Relay{cfg: cfg, inbox: "_INBOX.dnp." + cfg.NewID()}
	for range cfg.Lanes {
		r.lanes = append(r.lanes, newLane(r))
	}
	return r, nil
}

// Ready reports whether publishers can be answered.
func (r *Relay) Ready() bool { return r.cfg.Bus.Connected() }

// Run serves until ctx ends. The error says what failed; it is nil after a
// shutdown that was asked for.
func (r *Relay) Run(ctx context.Context) error {
	defer r.Stop()
	if err := r.Start(); err != nil {
		return err
	}
	r.cfg.Log.Info("holding", "node", r.cfg.Node, "shards", r.cfg.Shards, "epoch", r.cfg.Epoch)
	var running sync.WaitGroup
	for _, l := range r.lanes {
		running.Go(func() { l.loop(ctx) })
	}
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

// Start subscribes to the messages of all shards and brings them to their lanes.
// Run does it by itself.
func (r *Relay) Start() (err error) {
	s := r.cfg.Subjects
	on := func(subject string, handle func(replication.Msg)) {
		if err != nil {
			return
		}
		var f func()
		if f, err = r.cfg.Bus.Subscribe(subject, handle); err != nil {
			err = fmt.Errorf("relay: subscribe to %s: %w", subject, err)
			return
		}
		r.end = append(r.end, f)
	}
	for n := range r.cfg.Shards {
		l := r.lane(n)
		on(s.ShardPublishAll(n), func(m replication.Msg) { l.post(kindPublish, n, m) })
		on(s.ShardGetAll(n), func(m replication.Msg) { l.post(kindGet, n, m) })
		on(s.Repair(n), func(m replication.Msg) { l.post(kindRepair, n, m) })
		on(s.Write(n), func(m replication.Msg) { l.post(kindWrite, n, m) })
	}
	if r.cfg.Wildcard {
		on(s.PublishAll(), func(m replication.Msg) { r.deal(kindPublish, m, s.ParsePublish) })
		on(s.GetAll(), func(m replication.Msg) { r.deal(kindGet, m, s.ParseGet) })
	}
	r.cfg.Bus.OnChange(r.busChanged)
	on(s.Event("*"), r.presence)
	on(r.inbox+".*", r.present)
	return err
}

func (r *Relay) lane(shard int) *Lane { return r.lanes[shard%len(r.lanes)] }

// deal gives a message that was not mapped to the lane of its shard.
func (r *Relay) deal(k kind, m replication.Msg, parse func(string) (replication.Address, bool)) {
	shard := 0 // an address that is no address is answered by any lane
	if a, ok := parse(m.Subject); ok {
		shard = cluster.Shard(a.Space, r.cfg.Shards)
	}
	r.lane(shard).post(k, shard, m)
}
