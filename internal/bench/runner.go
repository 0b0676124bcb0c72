//go:build linux

package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"
)

// A Config says how to run cases.
type Config struct {
	Self    string        // this program, which knows bench-nats and bench-send
	Bin     string        // folder of relay and edge
	Workers int           // of each edge
	Tick    time.Duration // of the relay
	Flush   time.Duration // of the edges
	Window  time.Duration // how long one measurement takes
	Rounds  int           // measurements of a case, each with its baselines
	Pin     bool          // edges on core 0, everything else on core 1
	Profile string        // folder for profiles of the edge; empty = none

	limits bool // edges have the limits that they have by default

	// Progress is told what happens; nil means nobody is.
	Progress func(format string, args ...any)
}

// A Runner runs cases, one at a time.
type Runner struct {
	cfg     Config
	starter starter
}

// New returns a Runner.
func New(cfg Config) *Runner {
	if cfg.Progress == nil {
		cfg.Progress = func(string, ...any) {}
	}
	return &Runner{cfg: cfg}
}

// Times that hold for every case. They are arbitrary but for what they follow.
const (
	linkTimeout = 90 * time.Second
	settleTime  = 2500 * time.Millisecond // edges repeat what went quiet for 1.5 s
	warmTime    = 300 * time.Millisecond
	naiveCount  = 50_000
	naiveBytes  = 37 // a LinkUpdate with one link of 28 bytes in two values
)

// A scene is a case with everything that it needs running.
type scene struct {
	r         *Runner
	c         *Case
	stack     *stack
	script    *script
	publisher *publisher
	swarm     *swarm
	raw       *rawClients
	next      uint32 // tick
	empty     int64  // memory of the edges before clients came, in bytes
	full      int64  // and with all links
	joining   time.Duration
}

// Case runs one case.
func (r *Runner) Case(ctx context.Context, c Case) (Result, error) {
	s, err := r.open(ctx, &c)
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", c.String(), err)
	}
	defer s.close()
	res, err := s.measure(ctx)
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", c.String(), err)
	}
	return res, nil
}

// open starts everything and links all clients.
func (r *Runner) open(ctx context.Context, c *Case) (s *scene, err error) {
	s = &scene{r: r, c: c, script: newScript(c), next: 1}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.stack, err = r.startStack(ctx, c.Edges); err != nil {
		return s, err
	}
	if s.publisher, err = newPublisher(c, s.script, s.stack.url); err != nil {
		return s, err
	}
	if err = s.publisher.putAll(ctx); err != nil {
		return s, err
	}
	if s.swarm, err = newSwarm(c, s.script, s.stack.ports); err != nil {
		return s, err
	}
	go s.swarm.run()
	s.empty = s.stack.rss()
	if err = s.link(ctx); err != nil || c.Alone {
		return s, err
	}
	s.raw, err = dialRaw(c, s.stack.url)
	return s, err
}

func (s *scene) close() {
	if s.raw != nil {
		s.raw.close()
	}
	if s.swarm != nil {
		s.swarm.stop()
	}
	if s.publisher != nil {
		s.publisher.close()
	}
	if s.stack != nil {
		s.stack.stop()
	}
}

// link connects all clients and waits until they have all their links.
func (s *scene) link(ctx context.Context) error {
	start, want := time.Now(), int64(s.c.Clients*s.c.linksPerClient())
	s.swarm.connect(s.c.Clients)
	for s.swarm.linked.Load() < want {
		if _, err := s.publisher.groupJoined(ctx); err != nil {
			return err
		}
		if err := s.stack.check(); err != nil {
			return err
		}
		if time.Since(start) > linkTimeout || ctx.Err() != nil {
			return fmt.Errorf("only %d of %d links came up, %d of %d clients, %d closed; edges dropped:%s; generator lost %d", s.swarm.linked.Load(),
				want, s.swarm.connected.Load(), s.c.Clients, s.swarm.closed.Load(), s.stack.drops(), s.swarm.socket.overflows())
		}
		time.Sleep(5 * time.Millisecond)
	}
	s.joining = time.Since(start)
	s.r.cfg.Progress("%s: %d links of %d clients up after %v", s.c, want, s.c.Clients, s.joining.Round(time.Millisecond))
	time.Sleep(settleTime)
	s.full = s.stack.rss()
	return nil
}

// measure runs the rounds of a case.
func (s *scene) measure(ctx context.Context) (Result, error) {
	rounds := s.r.cfg.Rounds
	if s.c.Rounds > 0 {
		rounds = s.c.Rounds
	}
	var all []round
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
	return s.result(all), nil
}

// A round is one window of ours and of each baseline.
type round struct {
	window   window
	wall     time.Duration
	usage    usage
	before   memory // of the edges
	after    memory
	rss      int64
	overflow uint32 // datagrams that the generator was too slow for
	offered  float64

	bare  float64 // CPU ns of sendmmsg for the same datagrams
	raw   float64 // CPU ns of NATS per update
	naive float64 // CPU ns per update
}

func (s *scene) round(ctx context.Context) (r round, err error) {
	if err := s.ours(ctx, &r, s.c.active()); err != nil || s.c.Alone {
		return r, err
	}
	time.Sleep(100 * time.Millisecond)
	spent, err := s.r.job(ctx, &Job{Port: s.swarm.socket.port, Sent: r.window.record, Data: r.window.sample})
	if err != nil {
		return r, err
	}
	r.bare = float64(spent.CPU) * float64(r.window.datagrams) / float64(max(1, spent.Datagrams))
	if spent, err = s.r.job(ctx, &Job{Port: s.swarm.socket.port, Naive: naiveCount, Bytes: naiveBytes, Peers: s.c.Clients}); err != nil {
		return r, err
	}
	r.naive = float64(spent.CPU) / float64(spent.Datagrams)
	r.raw, err = s.raw.window(ctx, s.publisher, s.stack, s.r.cfg.Window/2)
	return r, err
}

// ours measures one window in which the publisher changes some states.
func (s *scene) ours(ctx context.Context, r *round, active int) (err error) {
	period := s.c.period()
	warm := max(2, uint32(warmTime/period))
	ticks := max(1, uint32(s.windowTime()/period))
	line := timeline{start: time.Now().Add(20 * time.Millisecond), first: s.next, period: period}
	end := s.next + warm + ticks
	s.next = end
	s.swarm.begin(line)
	if r.before, err = s.stack.scrape(); err != nil {
		return err
	}
	published := make(chan error, 1)
	go func() { published <- s.publisher.publish(ctx, line, end, active) }()
	profiled := s.profile(ctx, line.due(end).Sub(line.start))
	s.count(r, line.due(line.first+warm).Add(-period/2), line.due(end).Add(-period/2))
	if err := <-published; err != nil {
		return err
	}
	if err := <-profiled; err != nil {
		return err
	}
	r.rss = s.stack.rss()
	r.offered = s.c.offered(active)
	if r.after, err = s.stack.scrape(); err != nil {
		return err
	}
	return s.stack.check()
}

func (s *scene) windowTime() time.Duration {
	if s.c.Window > 0 {
		return s.c.Window
	}
	return s.r.cfg.Window
}

// count has the swarm count between two moments.
func (s *scene) count(r *round, from, to time.Time) {
	r.window.record = make([]Sent, 0, 1<<17)
	time.Sleep(time.Until(from))
	overflow, before := s.swarm.socket.overflows(), s.stack.usage()
	s.swarm.openWindow(&r.window)
	for now := time.Now(); now.Before(to); now = time.Now() {
		pause := 20*time.Millisecond + rand.N(40*time.Millisecond)
		time.Sleep(min(pause, to.Sub(now)))
		s.swarm.sample()
	}
	r.usage = s.stack.usage().sub(before)
	s.swarm.closeWindow()
	r.wall = time.Since(r.window.start)
	r.overflow = s.swarm.socket.overflows() - overflow
}

// profile takes a CPU profile of the first edge during d, if that is wanted, and
// tells what its allocations were.
func (s *scene) profile(_ context.Context, d time.Duration) <-chan error {
	done := make(chan error, 1)
	if s.r.cfg.Profile == "" {
		done <- nil
		return done
	}
	name := strings.NewReplacer("×", "x", "/", "-").Replace(s.c.String())
	base := "http://" + s.stack.http[0] + "/debug/pprof/"
	go func() {
		err := fetch(fmt.Sprintf("%sprofile?seconds=%d", base, max(1, int(d.Seconds()))), filepath.Join(s.r.cfg.Profile, name+".cpu.pprof"))
		if err == nil {
			err = fetch(base+"allocs", filepath.Join(s.r.cfg.Profile, name+".allocs.pprof"))
		}
		done <- err
	}()
	return done
}
