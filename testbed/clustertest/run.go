//go:build linux

// Package clustertest runs a whole cluster in network namespaces, breaks it, and measures
// what players and game servers notice: three NATS servers, three relays and two edges,
// each a process in a namespace of its own, joined by a bridge. It needs root.
//
//	report, err := clustertest.Run(ctx, clustertest.Config{Bin: "bin", NATSConf: "helm/relay/charts/nats/files/nats-server.conf", Rounds: 3})
//
// Each round causes one fault, heals it, and measures for how long no publish was accepted and
// no client received anything. The README has the deployment, the faults and the violations.
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
	"github.com/dnprelay/dnprelay/internal/proctest"
	"github.com/dnprelay/dnprelay/testbed/history"
	"github.com/dnprelay/dnprelay/testbed/play"
	"github.com/dnprelay/dnprelay/testbed/rig"
)

// A Config describes a run.
type Config struct {
	rig.Config // Bin, NATSConf and Dir

	Rounds   int                              // of each fault; fewer of those that take long, see Fault
	Faults   []string                         // names; empty means all
	Seed     uint64                           // of all random choices
	Progress func(format string, args ...any) // gets one line at a time
}

// impaired is what the bad path of some clients does.
var impaired = play.Impairment{Loss: 0.02, Duplicate: 0.01, Delay: 10 * time.Millisecond, Jitter: 10 * time.Millisecond}

// A Fault is a failure that heals again.
type Fault struct {
	Name  string
	About string
	Few   bool // takes long, so it has a tenth of the rounds

	cause func(*scene, context.Context) error // returns when the fault has healed
}

// Faults returns all faults in the order in which they run.
func Faults() []Fault {
	return []Fault{
		{Name: "kill", About: "kill -9 of the holder, restarted once another holds the shard", cause: (*scene).kill},
		{Name: "pause", About: "SIGSTOP of the holder for 0.1 to 10 s, then SIGCONT", cause: (*scene).pause},
		{Name: "partition", About: "the holder is cut off from all other hosts for 0.1 to 10 s", cause: (*scene).partition},
		{Name: "nats-leader", About: "kill -9 of the NATS server that leads the shard's stream, restarted after 2 to 8 s", cause: (*scene).natsLeader},
		{Name: "link", About: "an edge's connections to NATS are reset, or stall for up to 4 s", Few: true, cause: (*scene).link},
		{Name: "nats-down", About: "kill -9 of all NATS servers, restarted after 30 s", Few: true, cause: (*scene).natsDown},
	}
}

func (c *Config) roundsOf(f Fault) int {
	if f.Few {
		return max(1, c.Rounds/10)
	}
	return c.Rounds
}

func (c *Config) chosen() ([]Fault, error) {
	return play.Choose(Faults(), func(f Fault) string { return f.Name }, c.Faults)
}

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

// Run starts the cluster, causes the faults and ends everything. With an error, the report
// has the rounds before it.
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
	cfg.Progress("%d NATS servers, %d relays and %d edges run", servers, relays, edges)
	r := &run{testCluster: c, cfg: &cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 100))}
	stop, err := r.populate(ctx)
	defer stop()
	if err != nil {
		return report, err
	}
	for _, f := range faults {
		for n := range cfg.roundsOf(f) {
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
	running.Go(func() { rig.Every(ctx, pace, r.game.publish) })
	if err := r.join(ctx, &running); err != nil {
		return stop, err
	}
	r.lamp = &lamp{player: r.players[0].Player}
	running.Go(func() { rig.Every(ctx, lampPace, r.lamp.write) })
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
				Name: fmt.Sprintf("%s%d@%s", c.b.Name, len(r.players), e.Name), Behaviour: c.b, Server: c.to, Host: r.Here, Note: p.note, LinkDown: p.down,
			}
			r.players = append(r.players, p)
			running.Go(func() { p.Run(ctx) })
		}
	}
	for _, p := range r.players {
		if err := proctest.Await(ctx, rig.StartTimeout, p.Name+" connects", func() bool { return p.Playing(time.Now()) }); err != nil {
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
