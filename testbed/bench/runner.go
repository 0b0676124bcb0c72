//go:build linux

package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
)

// A Runner runs cases, one at a time.
type Runner struct {
	Flags
	Self   string // this program, which has the command bench-send
	Limits bool   // edges keep their default limits on addresses and sessions

	// Watch is called with each window and its duration while the window is measured. nil
	// means nothing.
	Watch func(s *Scene, d time.Duration) error
}

// Progress prints one line for each step of a run.
func Progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// Times of every case. They are arbitrary unless a reason is given.
const (
	LinkTimeout = 90 * time.Second
	SettleTime  = 2500 * time.Millisecond // an edge repeats values of a state that is quiet for 1.5 s
	warmTime    = 300 * time.Millisecond
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

// Cases runs cases one after the other. A case that fails does not end the run.
func (r *Runner) Cases(ctx context.Context, cases []Case) (results []Result, err error) {
	for i := range cases {
		if ctx.Err() != nil {
			return results, errors.Join(err, ctx.Err())
		}
		one, failed := r.Beside(ctx, cases[i:i+1])
		if failed != nil {
			err = errors.Join(err, failed)
			Progress("%v", failed)
			continue
		}
		results = append(results, one...)
		Progress("%s: %.2f M updates per edge CPU second", one[0].Case, one[0].PerEdgeCPU/1e6)
	}
	return results, err
}

// Beside runs cases side by side: their windows take turns, and results have their ratio to the first case.
func (r *Runner) Beside(ctx context.Context, cases []Case) (results []Result, err error) {
	scenes := make([]*Scene, len(cases))
	for i := range cases {
		s, err := r.Open(ctx, &cases[i])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", &cases[i], err)
		}
		defer s.Close()
		s.Swarm.rest(true)
		scenes[i] = s
	}
	rounds := make([][]Round, len(cases))
	for range cmp.Or(cases[0].Rounds, r.Rounds) {
		for i, s := range scenes {
			if err := ctx.Err(); err != nil {
				return nil, fmt.Errorf("%s: %w", s.Case, err)
			}
			s.Swarm.rest(false)
			one, err := s.round(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.Case, err)
			}
			s.Swarm.rest(true)
			rounds[i] = append(rounds[i], one)
		}
	}
	for i, s := range scenes {
		res := s.Result(rounds[i])
		if i > 0 {
			res.compare(rounds[i], rounds[0])
		}
		results = append(results, res)
	}
	return results, nil
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
func (r *Runner) Start(ctx context.Context, c *Case) (*Scene, error) {
	stack, err := r.StartStack(ctx, c)
	if err != nil {
		stack.Stop()
		return nil, err
	}
	return r.StartOn(ctx, c, stack)
}

// StartOn starts the publisher and the clients of a case beside a stack.
func (r *Runner) StartOn(ctx context.Context, c *Case, stack *Stack) (s *Scene, err error) {
	s = &Scene{Case: c, Stack: stack, r: r, script: newScript(c), next: 1}
	if s.Publisher, err = newPublisher(s.script, stack.URL); err == nil {
		err = s.Publisher.putAll(ctx)
	}
	if err == nil {
		s.Swarm, err = newSwarm(s.script, stack)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	s.Swarm.Start()
	return s, nil
}

// Close ends all processes and clients.
func (s *Scene) Close() {
	if s.raw != nil {
		s.raw.close()
	}
	if s.Swarm != nil {
		s.Swarm.Stop()
	}
	if s.Publisher != nil {
		s.Publisher.NC.Close()
	}
	s.Stack.Stop()
}

// link connects all clients and waits until they have all their links.
func (s *Scene) link(ctx context.Context) error {
	start, want := time.Now(), int64(s.Case.Clients*s.Case.linksPerClient())
	s.Swarm.Connect(s.Case.Clients)
	for s.Swarm.linked.Load() < want {
		if err := s.Publisher.groupJoined(ctx); err != nil {
			return err
		}
		if err := s.Stack.Check(); err != nil {
			return err
		}
		if time.Since(start) > LinkTimeout || ctx.Err() != nil {
			return fmt.Errorf("only %d of %d links came up, %d of %d clients, %d closed; edges dropped:%s; generator lost %d, and could not connect: %v", s.Swarm.linked.Load(),
				want, s.Swarm.connected.Load(), s.Case.Clients, s.Swarm.closed.Load(), s.Stack.Drops(), s.Swarm.carrier.overflows(), s.Swarm.carrier.failure())
		}
		time.Sleep(5 * time.Millisecond)
	}
	s.joining = time.Since(start)
	Progress("%s: %d links of %d clients up after %v", s.Case, want, s.Case.Clients, s.joining.Round(time.Millisecond))
	time.Sleep(SettleTime)
	s.full = s.Stack.RSS()
	return nil
}

// A Round is one window of the deployment and one of each baseline.
type Round struct {
	Window   Window
	Wall     time.Duration
	usage    usage
	before   metrics // of the edges
	after    metrics
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
	bare, err := s.r.job(ctx, &Job{Port: s.Swarm.socket().port, Sent: r.Window.record, Data: r.Window.sample})
	if err != nil {
		return r, err
	}
	r.bare = float64(bare) * Ratio(float64(r.Window.datagrams), float64(len(r.Window.record)))
	naive, err := s.r.job(ctx, &Job{Port: s.Swarm.socket().port, Peers: s.Case.Clients})
	if err != nil {
		return r, err
	}
	r.naive = float64(naive) / naiveCount
	r.raw, err = s.raw.window(ctx, s.Publisher, s.Stack, s.r.Window/2)
	return r, err
}

// Measure measures one window in which the publisher changes the first active states.
func (s *Scene) Measure(ctx context.Context, r *Round, active int) (err error) {
	period := s.Case.period()
	warm := max(2, uint32(warmTime/period))
	ticks := max(1, uint32(cmp.Or(s.Case.Window, s.r.Window)/period))
	line := timeline{start: time.Now().Add(20 * time.Millisecond), first: s.next, period: period}
	end := s.next + warm + ticks
	s.next = end
	s.Swarm.begin(line)
	if r.before, err = s.Stack.metrics(ctx); err != nil {
		return err
	}
	var tasks errgroup.Group
	tasks.Go(func() error { return s.Publisher.publish(ctx, line, end, active) })
	if s.r.Watch != nil {
		tasks.Go(func() error { return s.r.Watch(s, line.due(end).Sub(line.start)) })
	}
	s.count(r, line.due(line.first+warm).Add(-period/2), line.due(end).Add(-period/2))
	if err := tasks.Wait(); err != nil {
		return err
	}
	r.rss = s.Stack.RSS()
	r.offered = s.Case.offered(active)
	if r.after, err = s.Stack.metrics(ctx); err != nil {
		return err
	}
	return s.Stack.Check()
}

// During measures windows until f has returned, so that all states change meanwhile.
func (s *Scene) During(ctx context.Context, f func()) error {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	for {
		var round Round
		err := s.Measure(ctx, &round, s.Case.States)
		if err != nil {
			<-done
			return err
		}
		select {
		case <-done:
			return nil
		default:
		}
	}
}

// count lets the swarm count between two moments.
func (s *Scene) count(r *Round, from, to time.Time) {
	r.Window.record = make([]Sent, 0, 1<<17)
	time.Sleep(time.Until(from))
	overflow, before := s.Swarm.carrier.overflows(), s.Stack.usage()
	s.Swarm.count(&r.Window)
	for now := time.Now(); now.Before(to); now = time.Now() {
		pause := 20*time.Millisecond + rand.N(40*time.Millisecond)
		time.Sleep(min(pause, to.Sub(now)))
		s.Swarm.sample()
	}
	r.usage = s.Stack.usage()
	for kind := range before {
		r.usage[kind] -= before[kind]
	}
	s.Swarm.count(nil)
	r.Wall = time.Since(r.Window.start)
	r.overflow = s.Swarm.carrier.overflows() - overflow
}
