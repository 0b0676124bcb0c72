//go:build linux

package clustertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/internal/proc"
	"github.com/dnprelay/dnprelay/testbed/history"
	"github.com/dnprelay/dnprelay/testbed/play"
	"github.com/dnprelay/dnprelay/testbed/rig"
)

// A run is a cluster with a game server and players, to which faults happen.
type run struct {
	*testCluster
	cfg     *Config
	rng     *rand.Rand
	game    *game
	ledger  *ledger
	lamp    *lamp
	players []*player
}

// A player is a client that collects its problems.
type player struct {
	*play.Player
	clean bool // its datagrams take the direct path, so they arrive in order

	mu       sync.Mutex // the client's goroutine adds, the run takes
	problems []string
}

// Run starts the cluster, causes the faults and ends everything. The report has what was
// measured until then also with an error.
func Run(ctx context.Context, cfg Config) (report Report, err error) {
	faults, err := cfg.chosen()
	if err != nil {
		return report, err
	}
	report = Report{Seed: cfg.Seed, Started: time.Now()}
	cfg.Progress("seed %d; logs and streams are in %s", cfg.Seed, cfg.Dir)
	c, err := deploy(ctx, &cfg)
	if c != nil {
		defer c.close()
	}
	if err != nil {
		return report, err
	}
	cfg.Progress("%d NATS servers, %d relays and %d edges run; hosts are cut off by %s", servers, relays, edges, c.CutMeans())
	r := &run{testCluster: c, cfg: &cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 100))}
	stop, err := r.populate(ctx)
	defer stop()
	if err != nil {
		return report, err
	}
	for _, f := range faults {
		for n := range cfg.roundsOf(f) {
			if ctx.Err() != nil || cfg.StopAfter > 0 && time.Since(report.Started) > cfg.StopAfter {
				report.Cut = true
				return report, ctx.Err()
			}
			round, err := r.round(ctx, f)
			if err != nil {
				return report, fmt.Errorf("%s, round %d: %w", f.Name, n+1, err)
			}
			report.Rounds = append(report.Rounds, round)
			cfg.Progress("%s %d/%d: %s", f.Name, n+1, cfg.roundsOf(f), round)
		}
	}
	report.Took = time.Since(report.Started)
	return report, nil
}

// populate starts the game server and the players, and waits until players see everything.
func (r *run) populate(ctx context.Context) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	stop = func() {
		cancel()
		running.Wait()
		if r.game != nil {
			r.game.nc.Close()
		}
	}
	if r.game, err = newGame(r.testCluster); err != nil {
		return stop, err
	}
	r.ledger = &ledger{game: r.game}
	if err := r.game.once(ctx, putOp(lampKey, 0, "read-write")); err != nil {
		return stop, err
	}
	running.Go(func() { r.game.run(ctx) })
	if err := r.join(ctx, &running); err != nil {
		return stop, err
	}
	r.lamp = &lamp{player: r.players[0].Player}
	running.Go(func() { r.lamp.run(ctx) })
	_, err = r.equalSince(ctx, true)
	return stop, err
}

// join connects players to all edges: to each edge one over a clean path, and two with the
// behaviours of different libraries through the proxies.
func (r *run) join(ctx context.Context, running *sync.WaitGroup) error {
	for i, e := range r.Edges {
		direct, proxy := e.Host.AddrPort(rig.DNPPort), r.toEdge[i].Addr()
		for _, c := range []struct {
			to    netip.AddrPort
			b     dnptest.Behaviour
			clean bool
		}{{direct, dnptest.Cpp(), true}, {proxy, dnptest.Cpp(), false}, {proxy, dnptest.Java(), false}} {
			p := &player{clean: c.clean}
			p.Player = &play.Player{
				Name: fmt.Sprintf("%s%d@%s", c.b.Name, len(r.players), e.Name), Behaviour: c.b, Server: c.to, In: r.testCluster.players.In, Note: p.note, LinkDown: p.down,
			}
			r.players = append(r.players, p)
			running.Go(func() { p.Run(ctx) })
		}
	}
	for _, p := range r.players {
		if err := proc.Await(ctx, rig.StartTimeout, p.Name+" connects", func() bool { return p.Playing(time.Now()) }); err != nil {
			return err
		}
	}
	return nil
}

// note collects the records that are problems of a player.
func (p *player) note(r history.Record) {
	switch r.Kind {
	case history.Closed:
		p.problem("%s was disconnected: %s", p.Name, r.Note)
	case history.Problem:
		p.problem("%s", r.Note)
	}
}

func (p *player) down(key string) {
	if !strings.HasPrefix(key, ledgerPrefix) {
		p.problem("%s lost its link to %s", p.Name, key)
	}
}

func (p *player) problem(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = append(p.problems, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (p *player) takeProblems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	problems := p.problems
	p.problems = nil
	return problems
}

func addrs(nodes ...*rig.Node) (list []netip.AddrPort) {
	for _, n := range nodes {
		list = append(list, n.Host.AddrPort(rig.DNPPort))
	}
	return list
}
