//go:build linux

// Package upgrade stops a deployment of the last release under load, starts the programs of
// the tree on what NATS has stored, and looks for everything that was acknowledged: states
// with all that describes them, values, what clients wrote, and messages in both directions.
// The relays of the last release end in order, or by kill -9 before everything else.
// Package history judges the messages. Sessions may end, because no edge runs for a while.
package upgrade

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dnprelay/dnprelay/internal/proctest"
	"github.com/dnprelay/dnprelay/testbed/history"
	"github.com/dnprelay/dnprelay/testbed/play"
	"github.com/dnprelay/dnprelay/testbed/rig"
)

// Sizes of the deployment.
const (
	relays = 2
	edges  = 2
)

// Times of a run.
const (
	loadTime   = 4 * time.Second // under load, before and after the upgrade
	endMost    = 75 * time.Second
	playMost   = 30 * time.Second // until all players play again
	storedMost = 20 * time.Second
	metricsAge = time.Second // of what a relay shows, at the most
	checkMost  = 10 * time.Second
	ghostsMost = time.Minute // until sessions have ended whose clients are gone
)

// A Config describes a run.
type Config struct {
	play.MatchConfig // Bin has the programs of the tree, and Programs those of the last release; empty = built from git

	Kill bool // the relays of the last release end by kill -9
}

// lastRelease names the commit of the last release, from the folder of the repository on.
const lastRelease = "testbed/last-release"

// A run is a match that is stopped and started again.
type run struct {
	*play.Match
	cfg    *Config
	ledger *ledger
}

// Run upgrades one deployment, writes a history, and checks it.
func Run(ctx context.Context, cfg Config) (v history.Verdict, err error) {
	if cfg.Programs == "" {
		if cfg.Programs, err = build(ctx, &cfg); err != nil {
			return v, err
		}
	}
	cfg.Progress("the last release is in %s", cfg.Programs)
	r := &run{cfg: &cfg}
	cfg.Durability, cfg.Relays, cfg.Edges = "log", relays, edges
	r.Match, err = play.Open(ctx, cfg.MatchConfig)
	defer r.Close()
	if err == nil {
		r.ledger = newLedger(r.NC, r.Players)
		err = r.upgrade(ctx)
	}
	if err != nil {
		return v, err
	}
	if v, err = r.Finish(ctx); err != nil {
		return v, err
	}
	for _, p := range v.Phases {
		if n := p.Messages.Lost; n > 0 {
			err = errors.Join(err, fmt.Errorf("%s: the game server never heard %d messages of clients that an edge had acknowledged", p.Name, n))
		}
	}
	return v, err
}

// build builds the last release, once for each commit, and returns the folder of its
// programs.
func build(ctx context.Context, cfg *Config) (string, error) {
	text, err := os.ReadFile(lastRelease)
	if err != nil {
		return "", err
	}
	commit := strings.TrimSpace(string(text))
	dir, err := filepath.Abs(filepath.Join("tmp", "last-release", commit))
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "bin")
	if _, err := os.Stat(filepath.Join(bin, "dnpctl")); err == nil {
		return bin, nil
	}
	if err := exec.CommandContext(ctx, "git", "cat-file", "-e", commit+"^{commit}").Run(); err != nil {
		return "", fmt.Errorf("%s names commit %s, which this clone does not have; `git fetch --unshallow` brings it: %w", lastRelease, commit, err)
	}
	cfg.Progress("building the last release, %s", commit)
	source := filepath.Join(dir, "source")
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(source, 0o755)); err != nil {
		return "", err
	}
	unpack := fmt.Sprintf("git archive %s | tar -x -C %q && cd %q && go build -o ../bin.new/ ./cmd/...", commit, source, source)
	if err := rig.Command("bash", "-euo", "pipefail", "-c", unpack); err != nil {
		return "", err
	}
	return bin, errors.Join(os.RemoveAll(source), os.Rename(filepath.Join(dir, "bin.new"), bin))
}

// upgrade plays with the last release, stops everything, starts the tree, and plays again.
func (r *run) upgrade(ctx context.Context) error {
	r.Log.Phase("last release", 0)
	if err := r.ledger.put(ctx); err != nil {
		return err
	}
	if err := r.joinTeam(ctx); err != nil {
		return err
	}
	load := r.ledger.load(ctx)
	rig.Sleep(ctx, loadTime)
	err := r.ledger.awaitWrites(ctx, nil)
	if err == nil {
		err = r.markStored(ctx)
	}
	if err != nil {
		load()
		return err
	}
	r.Log.Phase("upgrade", 0)
	r.cut(history.CutStart)
	err = r.Log.During("upgrade", "all nodes", func() error {
		err := r.stop(ctx)
		load()
		return errors.Join(err, r.startTree(ctx))
	})
	if err != nil {
		return err
	}
	r.cut(history.CutEnd)
	r.Log.Phase("tree", 0)
	if err := r.checkEdges(ctx); err != nil {
		return err
	}
	if err := r.joinTeam(ctx); err != nil {
		return err
	}
	load = r.ledger.load(ctx)
	rig.Sleep(ctx, loadTime)
	err = r.ledger.awaitWrites(ctx, r.ledger.floor)
	load()
	r.ledger.settle()
	return errors.Join(err, r.ledger.compare(ctx), r.Check())
}

// cut records that no datagram of a player reaches an edge, or that they do again.
func (r *run) cut(note string) {
	for _, p := range r.Players {
		r.Log.Add(history.Record{Kind: history.Cut, Who: p.Name, Note: note})
	}
}

// markStored waits until the relays have stored all that was acknowledged before: a relay
// that ends by kill -9 may take what came later with it.
func (r *run) markStored(ctx context.Context) error {
	mark, err := r.ledger.acknowledged(ctx)
	if err != nil {
		return err
	}
	waiting, begin := slices.Clone(r.Relays), time.Now()
	err = proctest.Await(ctx, storedMost, "all relays have stored what was acknowledged", func() bool {
		waiting = slices.DeleteFunc(waiting, func(n *rig.Node) bool {
			oldest, ok := r.Web.Metric(n.Host.At(rig.HTTPPort), "dnp_relay_durable_age_seconds")
			return ok && oldest < (time.Since(begin)-metricsAge).Seconds()
		})
		return len(waiting) == 0
	})
	r.ledger.floor = mark
	return err
}

// stop ends all nodes in the order edges, relays, Redis, NATS, or relays first, by kill -9.
func (r *run) stop(ctx context.Context) error {
	if r.cfg.Kill {
		r.cfg.Progress("kill -9 of the relays, then the edges end in order")
		for _, n := range r.Relays {
			if err := n.Kill(); err != nil {
				return err
			}
		}
		if err := r.end(ctx, r.Edges...); err != nil {
			return err
		}
		return r.end(ctx, append(slices.Clone(r.NATS), r.Redis)...)
	}
	r.cfg.Progress("edges and relays end in order")
	if err := r.end(ctx, r.Edges...); err != nil {
		return err
	}
	mark, err := r.ledger.acknowledged(ctx)
	if err != nil {
		return err
	}
	r.ledger.floor = mark
	if err := r.end(ctx, r.Relays...); err != nil {
		return err
	}
	r.ledger.settle()
	return r.end(ctx, append(slices.Clone(r.NATS), r.Redis)...)
}

// end ends nodes in order, all at once.
func (r *run) end(ctx context.Context, nodes ...*rig.Node) error {
	for _, n := range nodes {
		if err := n.Signal(syscall.SIGTERM); err != nil {
			return err
		}
	}
	return proctest.Await(ctx, endMost, "the nodes have ended", func() bool {
		return !slices.ContainsFunc(nodes, func(n *rig.Node) bool { return n.Ended() == nil })
	})
}

// startTree starts NATS, Redis, and the relays and edges of the tree, and waits until all
// players play. It compares what the relays serve before an edge runs.
func (r *run) startTree(ctx context.Context) error {
	r.cfg.Progress("the tree starts")
	for _, n := range append(slices.Clone(r.NATS), r.Redis) {
		if err := n.Start(); err != nil {
			return err
		}
	}
	for i, nodes := range [][]*rig.Node{r.Relays, r.Edges} {
		for _, n := range nodes {
			n.File = filepath.Join(r.cfg.Bin, filepath.Base(n.File))
			if err := n.Start(); err != nil {
				return err
			}
		}
		for _, n := range nodes {
			if err := r.AwaitReady(ctx, n); err != nil {
				return err
			}
		}
		if i == 0 {
			if err := r.ledger.compare(ctx); err != nil {
				return fmt.Errorf("relays of the tree serve something else than was stored: %w", err)
			}
		}
	}
	return proctest.Await(ctx, playMost, "all players play", func() bool {
		return !slices.ContainsFunc(r.Players, func(p *play.Player) bool { return !p.Playing(time.Now()) })
	})
}

func (r *run) dnpctl(ctx context.Context, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, checkMost)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(r.cfg.Bin, "dnpctl"), append(args, "--nats-url", strings.Join(r.NATSURLs, ","))...).Output()
	if err != nil {
		err = fmt.Errorf("dnpctl %s: %w: %s", args[0], err, out)
	}
	return out, err
}

// checkEdges has dnpctl publish a state and see it at each edge.
func (r *run) checkEdges(ctx context.Context) error {
	for _, e := range r.Edges {
		if _, err := r.dnpctl(ctx, "check", play.Space, e.Host.At(rig.DNPPort)); err != nil {
			return fmt.Errorf("%s: %w", e.Name, err)
		}
	}
	return nil
}

// joinTeam puts all clients into the group that may see the state of the team, and waits
// until they do.
func (r *run) joinTeam(ctx context.Context) error {
	clients, err := r.clients(ctx)
	for _, c := range clients {
		if err == nil {
			err = r.ledger.insist(ctx, play.Space, `{"op":"group","client":%q,"join":["red"]}`, c)
		}
	}
	if err != nil {
		return err
	}
	return proctest.Await(ctx, playMost, "all players see the state of their team", func() bool {
		return !slices.ContainsFunc(r.Players, func(p *play.Player) bool { return p.Value(teamKey) == 0 })
	})
}

// clients waits until the edges have no other sessions than those of the players, and returns
// the names of the clients. Edges continue sessions that clients gave up, until they time out.
func (r *run) clients(ctx context.Context) (names []string, err error) {
	until := time.Now().Add(ghostsMost)
	for {
		out, err := r.dnpctl(ctx, "clients", play.Space, "--json")
		if err != nil {
			return nil, err
		}
		names = nil
		for lines := json.NewDecoder(bytes.NewReader(out)); lines.More(); {
			var c struct{ Client string }
			if err := lines.Decode(&c); err != nil {
				return nil, err
			}
			names = append(names, c.Client)
		}
		if len(names) == len(r.Players) {
			return names, nil
		}
		if ctx.Err() != nil || time.Now().After(until) {
			return nil, fmt.Errorf("%d clients are in the space, and %d play", len(names), len(r.Players))
		}
		rig.Sleep(ctx, metricsAge)
	}
}
