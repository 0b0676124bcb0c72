//go:build linux

// Package upgrade runs the last release beside the tree: under load it replaces the
// relays and edges of a deployment one after the other, by those of the tree and back
// again, and crashes edges while both releases serve. Sessions are in a log, and clients
// and the game server send each other reliable messages all the time. The dnpctl of both
// releases checks the deployment before, during and after. Package history
// judges the records; no interruption is excused, and no check that fails.
package upgrade

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dnprelay/dnprelay/testbed/history"
	"github.com/dnprelay/dnprelay/testbed/play"
	"github.com/dnprelay/dnprelay/testbed/rig"
)

// Sizes of the deployment.
const (
	relays = 2
	edges  = 3
)

// Times of a replacement.
const (
	moveAfter = 200 * time.Millisecond // from an edge that is not ready to the move of its flows
	pause     = time.Second            // between two steps
	checkMost = 10 * time.Second
)

// A Config describes a run.
type Config struct {
	play.MatchConfig // Bin has the programs of the tree, and Programs those of the last release; empty = built from git

	Rounds int // upgrades, each with its rollback
}

// lastRelease names the commit of the last release, from the folder of the repository on.
const lastRelease = "testbed/last-release"

// A run is a match in which some nodes are of the last release and some of the tree.
type run struct {
	*play.Match
	cfg  *Config
	mode string // log mode of the edges of the tree

	checks atomic.Int64 // with dnpctl
}

// Run writes a history, and checks it.
func Run(ctx context.Context, cfg Config) (v history.Verdict, err error) {
	if cfg.Programs == "" {
		if cfg.Programs, err = build(ctx, &cfg); err != nil {
			return v, err
		}
	}
	cfg.Progress("the last release is in %s", cfg.Programs)
	r := &run{cfg: &cfg, mode: cfg.LogMode} // the last release need not know it
	cfg.LogMode, cfg.Durability, cfg.Reroute, cfg.Relays, cfg.Edges = "", "log", moveAfter, relays, edges
	r.Match, err = play.Open(ctx, cfg.MatchConfig)
	defer r.Close()
	if err != nil {
		return v, err
	}
	r.check(ctx, r.Edges...)
	for n := range cfg.Rounds {
		if err = r.round(ctx, n); err != nil {
			return v, fmt.Errorf("round %d: %w", n+1, err)
		}
	}
	cfg.Progress("dnpctl checked the deployment %d times", r.checks.Load())
	return r.Finish(ctx)
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

// round upgrades everything and rolls it back. Odd rounds begin with the edges, even ones
// with the relays.
func (r *run) round(ctx context.Context, n int) error {
	kinds := [][]*rig.Node{r.Relays, r.Edges}
	if n%2 == 1 {
		kinds[0], kinds[1] = kinds[1], kinds[0]
	}
	for _, to := range []struct{ name, bin string }{{"upgrade", r.cfg.Bin}, {"rollback", r.cfg.Programs}} {
		for _, nodes := range kinds {
			if err := r.replaceAll(ctx, to.name, nodes, to.bin); err != nil {
				return err
			}
		}
		r.check(ctx, r.Edges...)
	}
	return nil
}

// replaceAll replaces the program of some nodes, one after the other. Between the first
// and the second edge it crashes one edge of each release.
func (r *run) replaceAll(ctx context.Context, how string, nodes []*rig.Node, bin string) error {
	program := filepath.Base(nodes[0].File)
	r.Log.Phase(how+" of "+program+"s", 0)
	for i, n := range nodes {
		r.cfg.Progress("%s of %s; %d interruptions so far", how, n.Name, r.Interrupted())
		var checking sync.WaitGroup
		checking.Go(func() { r.check(ctx, r.Edges[(i+1)%len(r.Edges)]) }) // an edge that stays
		err := r.Log.During(how, n.Name, func() error { return r.replace(ctx, n, i, filepath.Join(bin, program)) })
		checking.Wait()
		if err == nil {
			err = r.Check()
		}
		if err != nil {
			return fmt.Errorf("%s of %s: %w", how, n.Name, err)
		}
		rig.Sleep(ctx, pause)
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
	if slices.Contains(r.Edges, n) {
		if err := r.Drain(ctx, i, false); err != nil {
			return err
		}
		if n.SetLogMode(""); filepath.Dir(file) == filepath.Clean(r.cfg.Bin) {
			n.SetLogMode(r.mode)
		}
		n.File = file
		return r.Restart(ctx, i)
	}
	if err := n.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := r.AwaitEnd(ctx, n); err != nil {
		return err
	}
	n.File = file
	return r.Deployment.Restart(ctx, n)
}

// check has the dnpctl of both releases publish a state and see it at some edges.
func (r *run) check(ctx context.Context, edges ...*rig.Node) {
	for _, bin := range []string{r.cfg.Bin, r.cfg.Programs} {
		for _, e := range edges {
			r.checks.Add(1)
			ctx, cancel := context.WithTimeout(ctx, checkMost)
			out, err := exec.CommandContext(ctx, filepath.Join(bin, "dnpctl"), "check", play.Space, e.Host.At(rig.DNPPort), "--nats-url", strings.Join(r.NATSURLs, ",")).CombinedOutput()
			cancel()
			if err != nil {
				r.Log.Add(history.Record{Kind: history.Problem, Note: fmt.Sprintf("%s/dnpctl check at %s (%s): %v: %s", bin, e.Name, e.File, err, out)})
			}
		}
	}
}

// mixed checks edges of both releases while both serve, and crashes one of each.
func (r *run) mixed(ctx context.Context, how string) error {
	both := r.Edges[:2] // one of each release
	r.check(ctx, both...)
	for i, e := range both {
		r.cfg.Progress("%s: kill -9 of %s (%s)", how, e.Name, e.File)
		if err := r.Crash(ctx, "kill", i); err != nil {
			return err
		}
		rig.Sleep(ctx, pause)
	}
	return nil
}
