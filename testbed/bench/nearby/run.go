//go:build linux

package nearby

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/internal/proctest"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/dnprelay/dnprelay/testbed/bench"
	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"
)

// A Runner plays one load.
type Runner struct {
	bench.Flags
	Load    Load
	Profile string // folder for CPU profiles of the edge, the relay and this process; empty for none
}

// Spaces with and without interest. Their names have the same length, so that the same messages have the same.
const (
	nearSpace  = "bench-near"
	plainSpace = "bench-none"
)

// Times of a run. They are arbitrary unless a reason is given.
const (
	warmTime   = 1500 * time.Millisecond // the edge refreshes values that stood still while the other space moved
	quietTime  = 500 * time.Millisecond  // after the last change has left the relay, for what is still on its way
	startPause = 20 * time.Millisecond
	lookPause  = time.Millisecond       // between two looks of the clients at what has arrived, which costs as much as 20 updates
	joinPause  = 200 * time.Millisecond // clients do not answer while all that is in their sight is compared
)

// A scene is a load and its processes, publisher and clients.
type scene struct {
	*Runner
	stack    *bench.Stack
	nc       *nats.Conn
	events   *nats.Subscription // until all clients have joined
	subjects subject.Names
	swarm    *bench.Swarm
	plain    *bench.Swarm // the one client of the space without interest
	near     *world
	bare     *world // the same objects in the other space
	watch    *watch

	mu     sync.Mutex // the goroutine of the subscription adds names
	joined []string
}

// Run starts everything, plays the windows, and ends everything.
func (r *Runner) Run(ctx context.Context) (*Figures, error) {
	if err := r.Load.Validate(); err != nil {
		return nil, err
	}
	s := &scene{Runner: r, near: newWorld(&r.Load), bare: newWorld(&r.Load)}
	s.watch = newWatch(&r.Load, s.near)
	defer s.close()
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	if err := s.join(ctx); err != nil {
		return nil, err
	}
	var rounds []round
	for i := range r.Rounds {
		one, err := s.round(ctx, i == 0)
		if err != nil {
			return nil, err
		}
		rounds = append(rounds, one)
		bench.Progress("round %d of %d: p99 latency %.1f ms, %.2f edge cores", i+1, r.Rounds, ms(one.near.latency.Quantile(0.99)), one.edgeCores())
	}
	f := s.summary(rounds)
	return f, f.doubt()
}

// open starts the processes, makes all states, and lets the clients connect.
func (s *scene) open(ctx context.Context) (err error) {
	c := &bench.Case{States: s.Load.States, Hz: s.Load.Hz, Clients: s.Load.Clients, Edges: 2, Spaces: []string{nearSpace, plainSpace}}
	if s.stack, err = s.start(ctx, c); err != nil {
		return err
	}
	if s.nc, err = nats.Connect(s.stack.URL, nats.Name("bench")); err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	if s.events, err = s.nc.Subscribe(s.subjects.Event(nearSpace), s.event); err != nil {
		return err
	}
	if err := s.put(ctx); err != nil {
		return err
	}
	if s.swarm, err = s.connect(c, s.stack.Edges[:1], s.watch); err != nil {
		return err
	}
	one := *c
	one.Clients = 1
	s.plain, err = s.connect(&one, s.stack.Edges[1:], nil)
	return err
}

func (s *scene) start(ctx context.Context, c *bench.Case) (*bench.Stack, error) {
	r := bench.Runner{Flags: s.Flags}
	return r.StartStack(ctx, c)
}

// event records clients that join.
func (s *scene) event(m *nats.Msg) {
	var e struct{ Type, Client string }
	if json.Unmarshal(m.Data, &e) != nil || e.Type != "joined" {
		return
	}
	s.mu.Lock()
	s.joined = append(s.joined, e.Client)
	s.mu.Unlock()
}

func (s *scene) close() {
	for _, swarm := range []*bench.Swarm{s.swarm, s.plain} {
		if swarm != nil {
			swarm.Stop()
		}
	}
	if s.nc != nil {
		s.nc.Close()
	}
	if s.stack != nil {
		s.stack.Stop()
	}
}

// round plays one window of each space.
func (s *scene) round(ctx context.Context, profile bool) (r round, err error) {
	var profiles errgroup.Group
	if profile && s.Profile != "" {
		profiles.Go(func() error {
			return errors.Join(s.profile(ctx, s.stack.HTTP[0], "edge"), s.profile(ctx, s.stack.Relay, "relay"), s.profileSelf())
		})
	}
	if r.with, err = s.play(ctx, nearSpace, s.near, s.swarm); err != nil {
		return r, err
	}
	if err := profiles.Wait(); err != nil {
		return r, err
	}
	s.swarm.Do(func([]bench.Client) {
		r.near = s.watch.figures
		for i := range s.watch.clients {
			r.bytes = append(r.bytes, s.watch.clients[i].bytes)
		}
	})
	r.without, err = s.play(ctx, plainSpace, s.bare, nil)
	return r, errors.Join(err, s.stack.Check())
}

// profileTime is that of one profile, of which three fit into a window.
func (s *scene) profileTime() time.Duration { return max(time.Second, s.Window/3) }

// profile writes a profile of a process.
func (s *scene) profile(ctx context.Context, addr, name string) error {
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", addr, int(s.profileTime().Seconds()))
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return fmt.Errorf("profile: %s: %w", answer.Status, err)
	}
	return s.writeProfile(name, data)
}

// profileSelf writes a profile of this process: the publisher and the clients.
func (s *scene) profileSelf() error {
	var data bytes.Buffer
	if err := pprof.StartCPUProfile(&data); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	time.Sleep(s.profileTime())
	pprof.StopCPUProfile()
	return s.writeProfile("generator", data.Bytes())
}

func (s *scene) writeProfile(name string, data []byte) error {
	if err := os.MkdirAll(s.Profile, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.Profile, name+".cpu.pprof"), data, 0o644)
}

// Roles are the CPU times of those who share the machine in a window.
type roles struct {
	generator time.Duration // this process: the publisher and the clients
	nats      time.Duration
	relay     time.Duration
	edge      time.Duration // of the space
}

func (r roles) sum() time.Duration { return r.generator + r.nats + r.relay + r.edge }

func (r roles) minus(o roles) roles {
	return roles{r.generator - o.generator, r.nats - o.nats, r.relay - o.relay, r.edge - o.edge}
}

// A played window is what the processes did in it.
type played struct {
	wall time.Duration // of what was counted
	cpu  roles         // in that
	busy time.Duration // of all cores, whoever used them, in that
	idle time.Duration // of all cores

	// From before the first tick until all changes have gone to the edges, so that what is late counts too.
	all     roles
	nats    int64         // bytes of messages in and out
	changes int           // of states
	late    time.Duration // the most by which the publisher was late
}

// roles returns what the processes have used so far, with the edge of one space.
func (s *scene) roles(edge int) roles {
	e := s.stack.Expense()
	return roles{e.Generator, e.NATS, e.Relay, e.Edges[edge]}
}

// play plays the ticks of a window in a space. With a swarm, its clients count.
func (s *scene) play(ctx context.Context, space string, w *world, swarm *bench.Swarm) (p played, err error) {
	line := newTimeline(&s.Load, time.Now().Add(startPause), w.tick+1, s.Load.ticks(warmTime), s.Load.ticks(s.Window))
	if swarm != nil {
		swarm.Do(func([]bench.Client) { s.watch.begin(line) })
	}
	inBefore, outBefore, err := s.stack.NATSBytes(ctx)
	if err != nil {
		return p, err
	}
	edge := edgeOf(space)
	before := s.roles(edge)
	var tasks errgroup.Group
	tasks.Go(func() error { return s.publish(ctx, space, w, &line, swarm, &p.late) })
	s.count(&p, &line, edge, swarm)
	if err := tasks.Wait(); err != nil {
		return p, err
	}
	if err := s.drain(ctx, space, w); err != nil {
		return p, err
	}
	time.Sleep(quietTime)
	p.all = s.roles(edge).minus(before)
	p.changes = int(line.end-line.first) * s.Load.States
	in, out, err := s.stack.NATSBytes(ctx)
	p.nats = in - inBefore + out - outBefore
	return p, err
}

// drain waits until the relay has published all changes: it answers one more behind them.
func (s *scene) drain(ctx context.Context, space string, w *world) error {
	if err := s.request(ctx, space, 0, 1, func(b []byte, i int) []byte { return appendSet(b, w, i) }); err != nil {
		return fmt.Errorf("wait for the relay: %w", err)
	}
	return nil
}

// edgeOf returns the index of the edge that serves a space.
func edgeOf(space string) int {
	if space == nearSpace {
		return 0
	}
	return 1
}

// count counts from the first tick that counts until the last.
func (s *scene) count(p *played, line *timeline, edge int, swarm *bench.Swarm) {
	set := func(on bool) {
		if swarm != nil {
			swarm.DoNow(func([]bench.Client) { s.watch.count(time.Now(), on) })
		}
	}
	time.Sleep(time.Until(line.due(line.counted, 0)))
	set(true)
	start, before := time.Now(), s.roles(edge)
	busy, idle := proctest.Machine()
	time.Sleep(time.Until(line.due(line.end, 0)))
	p.cpu = s.roles(edge).minus(before)
	p.busy, p.idle = proctest.Machine()
	set(false)
	p.wall = time.Since(start)
	p.busy, p.idle = p.busy-busy, p.idle-idle
}
