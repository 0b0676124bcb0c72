//go:build linux

package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// A Config describes how to run cases.
type Config struct {
	Self    string        // the program dnpctl, which has the commands bench-nats and bench-send
	Bin     string        // folder of relay and edge
	Workers int           // of each edge
	Tick    time.Duration // of the relay
	Flush   time.Duration // of the edges
	Window  time.Duration // length of one measurement
	Rounds  int           // measurements of a case, each with its baselines
	Pin     bool          // edges on core 0, everything else on core 1
	Limits  bool          // edges keep their default limits on addresses and sessions

	// Watch is called with each window and its duration while the window is measured. nil
	// means nothing.
	Watch func(s *Scene, d time.Duration) error

	// Progress gets one line for each step. nil means nothing.
	Progress func(format string, args ...any)
}

// A Runner runs cases, one at a time.
type Runner struct{ cfg Config }

// New returns a Runner with defaults for the functions of cfg.
func New(cfg Config) *Runner {
	if cfg.Progress == nil {
		cfg.Progress = func(string, ...any) {}
	}
	if cfg.Watch == nil {
		cfg.Watch = func(*Scene, time.Duration) error { return nil }
	}
	return &Runner{cfg: cfg}
}

// Times of every case. They are arbitrary unless a reason is given.
const (
	LinkTimeout = 90 * time.Second
	SettleTime  = 2500 * time.Millisecond // an edge repeats values of a state that is quiet for 1.5 s
	warmTime    = 300 * time.Millisecond
	naiveCount  = 50_000
	naiveBytes  = 37 // a LinkUpdate with one link of 28 bytes in two values
)

// A Scene is a case and its processes, publisher and clients.
type Scene struct {
	Case      *Case
	Stack     *Stack
	Publisher *Publisher
	Swarm     *Swarm

	r       *Runner
	script  *script
	raw     *rawClients
	next    uint32 // the next tick
	empty   int64  // memory of the edges before clients connected, in bytes
	full    int64  // memory of the edges with all links, in bytes
	joining time.Duration
}

// Case runs one case.
func (r *Runner) Case(ctx context.Context, c Case) (Result, error) {
	s, err := r.Open(ctx, &c)
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", c.String(), err)
	}
	defer s.Close()
	res, err := s.rounds(ctx)
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", c.String(), err)
	}
	return res, nil
}

// Open starts everything and links all clients.
func (r *Runner) Open(ctx context.Context, c *Case) (*Scene, error) {
	s, err := r.Start(ctx, c)
	if err != nil {
		return nil, err
	}
	s.empty = s.Stack.RSS()
	if err = s.link(ctx); err == nil && !c.Alone {
		s.raw, err = dialRaw(c, s.Stack.URL)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Start starts everything; clients connect when the swarm is told to.
func (r *Runner) Start(ctx context.Context, c *Case) (s *Scene, err error) {
	s = &Scene{Case: c, r: r, script: newScript(c), next: 1}
	if s.Stack, err = r.startStack(ctx, c.Edges); err == nil {
		s.Publisher, err = newPublisher(c, s.script, s.Stack.URL)
	}
	if err == nil {
		err = s.Publisher.putAll(ctx)
	}
	if err == nil {
		s.Swarm, err = newSwarm(c, s.script, s.Stack.Ports)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	go s.Swarm.run()
	return s, nil
}

// Close ends all processes and clients.
func (s *Scene) Close() {
	if s.raw != nil {
		s.raw.close()
	}
	if s.Swarm != nil {
		s.Swarm.stop()
	}
	if s.Publisher != nil {
		s.Publisher.close()
	}
	if s.Stack != nil {
		s.Stack.stop()
	}
}

// link connects all clients and waits until they have all their links.
func (s *Scene) link(ctx context.Context) error {
	start, want := time.Now(), int64(s.Case.Clients*s.Case.linksPerClient())
	s.Swarm.Connect(s.Case.Clients)
	for s.Swarm.linked.Load() < want {
		if _, err := s.Publisher.groupJoined(ctx); err != nil {
			return err
		}
		if err := s.Stack.check(); err != nil {
			return err
		}
		if time.Since(start) > LinkTimeout || ctx.Err() != nil {
			return fmt.Errorf("only %d of %d links came up, %d of %d clients, %d closed; edges dropped:%s; generator lost %d", s.Swarm.linked.Load(),
				want, s.Swarm.connected.Load(), s.Case.Clients, s.Swarm.closed.Load(), s.Stack.Drops(), s.Swarm.socket.overflows())
		}
		time.Sleep(5 * time.Millisecond)
	}
	s.joining = time.Since(start)
	s.r.cfg.Progress("%s: %d links of %d clients up after %v", s.Case, want, s.Case.Clients, s.joining.Round(time.Millisecond))
	time.Sleep(SettleTime)
	s.full = s.Stack.RSS()
	return nil
}

// rounds measures all rounds of a case.
func (s *Scene) rounds(ctx context.Context) (Result, error) {
	rounds := s.r.cfg.Rounds
	if s.Case.Rounds > 0 {
		rounds = s.Case.Rounds
	}
	var all []Round
	for range rounds {
		if err := ctx.Err(); err != nil {
			return Result{}, err
		}
		one, err := s.round(ctx)
		if err != nil {
			return Result{}, err
		}
		all = append(all, one)
	}
	return s.Result(all), nil
}

// A Round is one window of the deployment and one of each baseline.
type Round struct {
	Window   Window
	Wall     time.Duration
	usage    usage
	before   memory // of the edges
	after    memory
	rss      int64
	overflow uint32 // datagrams that the generator lost because it was too slow
	offered  float64

	bare  float64 // CPU ns of sendmmsg for the same datagrams
	raw   float64 // CPU ns of NATS per update
	naive float64 // CPU ns per update
}

func (s *Scene) round(ctx context.Context) (r Round, err error) {
	if err := s.Measure(ctx, &r, s.Case.active()); err != nil || s.Case.Alone {
		return r, err
	}
	time.Sleep(100 * time.Millisecond)
	spent, err := s.r.job(ctx, &Job{Port: s.Swarm.socket.port, Sent: r.Window.record, Data: r.Window.sample})
	if err != nil {
		return r, err
	}
	r.bare = float64(spent.CPU) * float64(r.Window.datagrams) / float64(max(1, spent.Datagrams))
	if spent, err = s.r.job(ctx, &Job{Port: s.Swarm.socket.port, Naive: naiveCount, Bytes: naiveBytes, Peers: s.Case.Clients}); err != nil {
		return r, err
	}
	r.naive = float64(spent.CPU) / float64(spent.Datagrams)
	r.raw, err = s.raw.window(ctx, s.Publisher, s.Stack, s.r.cfg.Window/2)
	return r, err
}

// Measure measures one window in which the publisher changes the first active states.
func (s *Scene) Measure(ctx context.Context, r *Round, active int) (err error) {
	period := s.Case.period()
	warm := max(2, uint32(warmTime/period))
	ticks := max(1, uint32(s.windowTime()/period))
	line := timeline{start: time.Now().Add(20 * time.Millisecond), first: s.next, period: period}
	end := s.next + warm + ticks
	s.next = end
	s.Swarm.begin(line)
	if r.before, err = s.Stack.scrape(); err != nil {
		return err
	}
	published := make(chan error, 1)
	go func() { published <- s.Publisher.publish(ctx, line, end, active) }()
	watched := make(chan error, 1)
	go func() { watched <- s.r.cfg.Watch(s, line.due(end).Sub(line.start)) }()
	s.count(r, line.due(line.first+warm).Add(-period/2), line.due(end).Add(-period/2))
	if err := <-published; err != nil {
		return err
	}
	if err := <-watched; err != nil {
		return err
	}
	r.rss = s.Stack.RSS()
	r.offered = s.Case.offered(active)
	if r.after, err = s.Stack.scrape(); err != nil {
		return err
	}
	return s.Stack.check()
}

func (s *Scene) windowTime() time.Duration {
	if s.Case.Window > 0 {
		return s.Case.Window
	}
	return s.r.cfg.Window
}

// count lets the swarm count between two moments.
func (s *Scene) count(r *Round, from, to time.Time) {
	r.Window.record = make([]Sent, 0, 1<<17)
	time.Sleep(time.Until(from))
	overflow, before := s.Swarm.socket.overflows(), s.Stack.usage()
	s.Swarm.openWindow(&r.Window)
	for now := time.Now(); now.Before(to); now = time.Now() {
		pause := 20*time.Millisecond + rand.N(40*time.Millisecond)
		time.Sleep(min(pause, to.Sub(now)))
		s.Swarm.sample()
	}
	r.usage = s.Stack.usage().sub(before)
	s.Swarm.closeWindow()
	r.Wall = time.Since(r.Window.start)
	r.overflow = s.Swarm.socket.overflows() - overflow
}
