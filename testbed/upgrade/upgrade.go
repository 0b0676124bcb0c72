//go:build linux

// Package upgrade runs the last release beside the tree: under load it replaces the
// relays and edges of a deployment one after the other, by those of the tree and back
// again, and crashes edges while both releases serve. Sessions are in a log, and clients
// and the game server send each other reliable messages all the time. Package history
// judges what they record; no interruption is excused.
package upgrade

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dnprelay/dnprelay/internal/proc"
	"github.com/dnprelay/dnprelay/testbed/history"
	"github.com/dnprelay/dnprelay/testbed/play"
	"github.com/dnprelay/dnprelay/testbed/rig"
)

// Sizes of the deployment.
const (
	relays = 2
	edges  = 3
	space  = "match"
)

// Times of a replacement.
const (
	moveAfter = 200 * time.Millisecond // from an edge that is not ready to the move of its flows
	drainMost = 90 * time.Second
	pause     = time.Second // between two steps
	checkMost = 10 * time.Second
)

// A Config describes a run.
type Config struct {
	Bin      string // folder with the programs of the tree, and nats-server
	Old      string // folder with relay, edge and dnpctl of the last release; empty = build them
	Release  string // file that names the commit of the last release
	Source   string // the repository
	NATSConf string // configuration of a NATS server, deploy/nats/nats-server.conf
	Redis    string // the program redis-server
	Dir      string // for logs and streams; it must exist
	File     string // the history

	Seed     uint64
	NATS     int // servers, 1 or 3
	Clients  int
	Rounds   int // upgrades, each with its rollback
	Progress func(format string, args ...any)
}

// A run is a deployment of which some nodes are of the last release and some of the tree.
type run struct {
	*rig.Deployment
	*play.Table
	cfg *Config
	log *history.Log
}

// Run writes a history, and checks it.
func Run(ctx context.Context, cfg Config) (v history.Verdict, err error) {
	if cfg.Old == "" {
		if cfg.Old, err = build(ctx, &cfg); err != nil {
			return v, err
		}
	}
	r := &run{cfg: &cfg}
	cfg.Progress("seed %d; logs are in %s, the history in %s; the last release is in %s", cfg.Seed, cfg.Dir, cfg.File, cfg.Old)
	r.Deployment, err = rig.Deploy(ctx, rig.Config{
		Bin: cfg.Bin, NATSConf: cfg.NATSConf, Redis: cfg.Redis, Dir: cfg.Dir, NATS: cfg.NATS, Relays: relays, Edges: edges,
		EdgeFlags: []string{
			"--workers", "1", "--open-space", space, "--sessions-per-address", "0", "--address-rate", "0",
			"--session-durability", "log", "--session-replicas", strconv.Itoa(cfg.NATS),
		},
		Programs: cfg.Old,
	})
	defer r.Deployment.Close()
	defer r.Kill()
	if err != nil {
		return v, err
	}
	if r.log, err = history.Create(cfg.File); err != nil {
		return v, err
	}
	r.log.Add(history.Record{Kind: history.Run, Note: fmt.Sprintf("seed %d, %d clients, %d relays, %d edges, %d NATS servers, %d rounds", cfg.Seed, cfg.Clients, relays, edges, cfg.NATS, cfg.Rounds)})
	err = r.play(ctx)
	if err = errors.Join(err, r.log.Close()); err != nil {
		return v, err
	}
	return history.CheckFile(cfg.File)
}

// build builds the last release, once for each commit, and returns the folder of its
// programs.
func build(ctx context.Context, cfg *Config) (string, error) {
	text, err := os.ReadFile(cfg.Release)
	if err != nil {
		return "", err
	}
	commit := strings.TrimSpace(string(text))
	dir, err := filepath.Abs(filepath.Join(cfg.Source, "tmp", "last-release", commit))
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "bin")
	if _, err := os.Stat(filepath.Join(bin, "dnpctl")); err == nil {
		return bin, nil
	}
	if err := exec.CommandContext(ctx, "git", "-C", cfg.Source, "cat-file", "-e", commit+"^{commit}").Run(); err != nil {
		return "", fmt.Errorf("%s names commit %s, which this clone does not have; `git fetch --unshallow` brings it: %w", cfg.Release, commit, err)
	}
	cfg.Progress("building the last release, %s", commit)
	source := filepath.Join(dir, "source")
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(source, 0o755)); err != nil {
		return "", err
	}
	unpack := fmt.Sprintf("git -C %q archive %s | tar -x -C %q && cd %q && go build -trimpath -o ../bin.new/ ./cmd/...", cfg.Source, commit, source, source)
	if err := rig.Command("bash", "-euo", "pipefail", "-c", unpack); err != nil {
		return "", err
	}
	return bin, errors.Join(os.RemoveAll(source), os.Rename(filepath.Join(dir, "bin.new"), bin))
}

// play runs all rounds and waits until everything is delivered.
func (r *run) play(ctx context.Context) (err error) {
	var addrs []netip.AddrPort
	for _, e := range r.Edges {
		addrs = append(addrs, e.Host.AddrPort(rig.DNPPort))
	}
	r.Table, err = play.Open(ctx, play.TableConfig{
		Edges: addrs, Players: r.cfg.Clients, Seed: r.cfg.Seed, Log: r.log,
		Game: play.GameConfig{URL: strings.Join(r.NATSURLs, ","), Space: space, Log: true},
	})
	if err != nil {
		return err
	}
	defer r.Table.Close()
	if err := r.Await(ctx); err != nil {
		return err
	}
	for n := range r.cfg.Rounds {
		if err := r.round(ctx, n); err != nil {
			return fmt.Errorf("round %d: %w", n+1, err)
		}
	}
	r.Settle(ctx)
	return nil
}

// round upgrades everything and rolls it back. Odd rounds begin with the edges, even ones
// with the relays.
func (r *run) round(ctx context.Context, n int) error {
	kinds := [][]*rig.Node{r.Relays, r.Edges}
	if n%2 == 1 {
		kinds[0], kinds[1] = kinds[1], kinds[0]
	}
	for _, to := range []struct{ name, bin string }{{"upgrade", r.cfg.Bin}, {"rollback", r.cfg.Old}} {
		for _, nodes := range kinds {
			if err := r.replaceAll(ctx, to.name, nodes, to.bin); err != nil {
				return err
			}
		}
	}
	return nil
}

// replaceAll replaces the program of some nodes, one after the other. Between the first
// and the second edge it crashes one edge of each release.
func (r *run) replaceAll(ctx context.Context, how string, nodes []*rig.Node, bin string) error {
	program := filepath.Base(nodes[0].File)
	r.log.Phase(how+" of "+program+"s", false)
	for i, n := range nodes {
		r.cfg.Progress("%s of %s; %d interruptions so far", how, n.Name, r.Interrupted())
		err := r.log.During(how, n.Name, func() error { return r.replace(ctx, n, i, filepath.Join(bin, program)) })
		if err == nil {
			err = r.Check()
		}
		if err != nil {
			return fmt.Errorf("%s of %s: %w", how, n.Name, err)
		}
		proc.Sleep(ctx, pause)
		if program == "edge" && i == 0 {
			if err := r.mixed(ctx, how); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// replace ends a node in order, and starts another program in its place.
func (r *run) replace(ctx context.Context, n *rig.Node, i int, file string) error {
	edge := n == r.Edges[i]
	if edge {
		r.Avoid(i, true)
	}
	if err := n.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	gone := func() bool { return n.Ended() != nil }
	if edge {
		err := proc.Await(ctx, drainMost, n.Name+" has handed its sessions over", func() bool { return gone() || !r.IsReady(n) })
		if err != nil {
			return err
		}
		proc.Sleep(ctx, moveAfter)
		r.Reroute(i, false)
	}
	if err := proc.Await(ctx, drainMost, n.Name+" has ended", gone); err != nil {
		return err
	}
	n.File = file
	return r.start(ctx, n, i, edge)
}

func (r *run) start(ctx context.Context, n *rig.Node, i int, edge bool) error {
	err := n.Start()
	if err == nil {
		err = r.AwaitReady(ctx, n)
	}
	if err == nil && edge {
		r.Avoid(i, false)
	}
	return err
}

// mixed checks the deployment with the dnpctl of both releases, and crashes an edge of
// each while both serve.
func (r *run) mixed(ctx context.Context, how string) error {
	for _, bin := range []string{r.cfg.Bin, r.cfg.Old} {
		for _, e := range r.Edges[:2] { // one of each release
			ctx, cancel := context.WithTimeout(ctx, checkMost)
			out, err := exec.CommandContext(ctx, filepath.Join(bin, "dnpctl"), "check", space, e.Host.At(rig.DNPPort), "--nats-url", strings.Join(r.NATSURLs, ",")).CombinedOutput()
			cancel()
			if err != nil {
				r.log.Add(history.Record{Kind: history.Problem, Note: fmt.Sprintf("%s/dnpctl check at %s (%s): %v: %s", bin, e.Name, e.File, err, out)})
			}
		}
	}
	for i, e := range r.Edges[:2] {
		r.cfg.Progress("%s: kill -9 of %s (%s)", how, e.Name, e.File)
		err := r.log.During("kill", e.Name, func() error {
			if err := e.Kill(); err != nil {
				return err
			}
			proc.Sleep(ctx, moveAfter)
			r.Reroute(i, true)
			proc.Sleep(ctx, 1500*time.Millisecond)
			return nil
		})
		if err == nil {
			err = r.start(ctx, e, i, true)
		}
		if err != nil {
			return err
		}
		proc.Sleep(ctx, pause)
	}
	return nil
}
