//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/internal/proc"
	"github.com/nats-io/nats.go"
)

// settleMost is how long what is under way at the end may take.
const settleMost = 30 * time.Second

// A run is a deployment with a game on it.
type run struct {
	*deployment
	note        *history
	rng         *rand.Rand
	balancer    *balancer
	game        *game
	players     []*player
	nc          *nats.Conn
	faults      uint64
	started     time.Time
	quiet       atomic.Bool // nobody says anything more
	interrupted atomic.Int64
}

// Run writes a history, and checks it.
func Run(ctx context.Context, cfg Config) (v Verdict, err error) {
	phases, err := cfg.chosen()
	if err != nil {
		return v, err
	}
	r := &run{rng: rand.New(rand.NewPCG(cfg.Seed, 1)), started: time.Now()}
	cfg.Progress("seed %d; logs are in %s, the history in %s", cfg.Seed, cfg.Dir, cfg.File)
	r.deployment, err = deploy(ctx, &cfg)
	defer r.deployment.close()
	if err != nil {
		return v, err
	}
	if r.note, err = newHistory(cfg.File); err != nil {
		return v, err
	}
	r.note.add(Record{Kind: kindRun, Note: fmt.Sprintf("seed %d, %d clients, %d edges, %d NATS servers, durability %s, flows move after %v",
		cfg.Seed, cfg.Clients, edgeCount, cfg.NATS, cfg.Durability, cfg.Reroute)})
	err = r.play(ctx, phases)
	if err = errors.Join(err, r.note.close()); err != nil {
		return v, err
	}
	return CheckFile(cfg.File)
}

// CheckFile is Check for a file.
func CheckFile(name string) (v Verdict, err error) {
	f, err := os.Open(name)
	if err != nil {
		return v, err
	}
	defer f.Close()
	return Check(f)
}

// play brings everybody, lets the faults happen, and waits until all is delivered.
func (r *run) play(ctx context.Context, phases []PhaseKind) (err error) {
	var addrs []netip.AddrPort
	for _, e := range r.edges {
		addrs = append(addrs, e.dnp)
	}
	if r.balancer, err = newBalancer(addrs, r.cfg.Seed, r.note); err != nil {
		return err
	}
	defer r.balancer.close()
	if r.nc, err = nats.Connect(strings.Join(r.natsURLs, ","), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond)); err != nil {
		return err
	}
	defer r.nc.Close()
	if r.game, err = newGame(r, strings.Join(r.natsURLs, ","), r.cfg.Durability == "log"); err != nil {
		return err
	}
	defer r.game.p.Close()
	if err := r.game.open(ctx); err != nil {
		return err
	}
	watch, err := r.watchLogs()
	if err != nil {
		return err
	}
	defer watch.Unsubscribe() // fails only when the connection is closed
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer func() { cancel(); running.Wait() }()
	running.Go(func() { r.game.play(ctx) })
	for i := range r.cfg.Clients {
		p := &player{run: r, index: i, rng: rand.New(rand.NewPCG(r.cfg.Seed, uint64(100+i)))}
		r.players = append(r.players, p)
		running.Go(func() { p.play(ctx) })
	}
	if err := proc.Await(ctx, startTimeout, "everybody is heard", func() bool { return r.heard() == r.cfg.Clients }); err != nil {
		return err
	}
	for _, ph := range phases {
		if err := r.phase(ctx, ph); err != nil {
			return fmt.Errorf("%s: %w", ph.Name, err)
		}
	}
	r.settle(ctx)
	return nil
}

func (r *run) heard() int {
	r.game.mu.Lock()
	defer r.game.mu.Unlock()
	return len(r.game.heard)
}

// settle waits until all that was said is acknowledged and heard; what is not by then is
// lost, as the check will find.
func (r *run) settle(ctx context.Context) {
	r.quiet.Store(true)
	_ = proc.Await(ctx, settleMost, "all is acknowledged", func() bool {
		for _, p := range r.players {
			if !p.settled() {
				return false
			}
		}
		return r.game.settled()
	})
	r.sleep(ctx, 3*time.Second) // for what is on its way to the game server and the clients
}

func (r *run) phase(ctx context.Context, ph PhaseKind) error {
	name := ph.Name
	if ph.Excused {
		name += " (excused)"
	}
	r.note.add(Record{Kind: kindPhase, Note: name})
	for n := range ph.Count {
		if r.cfg.StopAfter > 0 && time.Since(r.started) > r.cfg.StopAfter {
			return nil
		}
		before := r.interrupted.Load()
		if err := r.fault(ctx, ph.Name, n); err != nil {
			return err
		}
		line := fmt.Sprintf("%s %d/%d", ph.Name, n+1, ph.Count)
		if d := r.interrupted.Load() - before; d > 0 {
			line += fmt.Sprintf(": %d clients interrupted", d)
		}
		r.cfg.Progress("%s", line)
		if err := r.check(); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// check returns an error if a process ended that was not told to.
func (r *run) check() (err error) {
	for _, n := range r.nodes() {
		err = errors.Join(err, n.Ended())
	}
	return err
}

func (r *run) sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (r *run) random(least, most time.Duration) time.Duration {
	return least + time.Duration(r.rng.Int64N(int64(most-least)))
}
