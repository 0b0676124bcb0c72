//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/testbed/bench"
	"github.com/dnprelay/dnprelay/testbed/clustertest"
	"github.com/dnprelay/dnprelay/testbed/history"
	"github.com/dnprelay/dnprelay/testbed/k8stest"
	"github.com/dnprelay/dnprelay/testbed/play"
	"github.com/dnprelay/dnprelay/testbed/torture"
	"github.com/dnprelay/dnprelay/testbed/upgrade"
)

func clusterTest(ctx context.Context, args []string) error {
	var cfg clustertest.Config
	var faults string
	c := newFlags("cluster-test")
	c.IntVar(&cfg.Rounds, "rounds", 30, "rounds of each fault; faults that take long have a tenth")
	c.StringVar(&faults, "faults", "", "faults to cause, joined by commas (default: all)")
	var about []string
	for _, f := range clustertest.Faults() {
		about = append(about, fmt.Sprintf("%-12s %s", f.Name, f.About))
	}
	c.usage("cluster-test [flags]; needs root. Faults:", about)
	if err := c.parse(args); err != nil {
		return err
	}
	cfg.Bin, cfg.NATSConf, cfg.Dir, cfg.Seed, cfg.Faults, cfg.Progress = c.bin, c.natsConf, c.dir, c.seed, list(faults), bench.Progress
	report, err := clustertest.Run(ctx, cfg)
	if len(report.Rounds) > 0 {
		err = errors.Join(err, report.Write(os.Stdout))
	}
	err = errors.Join(err, bench.WriteJSON(c.json, report))
	if n := report.Violations(); n > 0 {
		err = errors.Join(err, fmt.Errorf("%d violations", n))
	}
	return c.finish(err)
}

func runTorture(ctx context.Context, args []string) error {
	if len(args) == 2 && args[0] == "check" {
		v, err := history.CheckFile(args[1], history.Everyone)
		return tell(v, err, "")
	}
	var cfg torture.Config
	var phases string
	var listening float64
	c := newFlags("torture")
	c.redisFlag()
	c.IntVar(&cfg.NATS, "nats", 3, "NATS servers: 1 or 3")
	c.IntVar(&cfg.Clients, "clients", 50, "clients")
	c.Float64Var(&listening, "listening", 0.5, "share of the clients that only listen")
	c.StringVar(&cfg.Durability, "durability", "log", "session durability of the edges: log, or none, whose losses the check must notice")
	c.StringVar(&phases, "phases", "", "phases, joined by commas (default: all that -nats and the privileges allow)")
	c.Float64Var(&cfg.Scale, "scale", 1, "factor on the number of faults")
	c.IntVar(&cfg.Rounds, "rounds", 0, "faults of each phase (default: as -scale says)")
	c.BoolVar(&cfg.Web, "websocket", false, "clients come by WebSocket, as browsers do")
	c.DurationVar(&cfg.Reroute, "reroute", 200*time.Millisecond, "from the death of an edge until its flows move")
	c.DurationVar(&cfg.StopAfter, "stop-after", 0, "begin no fault later than this; 0 = no limit")
	var about []string
	for _, p := range torture.Phases() {
		about = append(about, fmt.Sprintf("%-14s %s (%d)", p.Name, p.About, p.Count))
	}
	c.usage("torture [flags], or testbed torture check FILE. Phases:", about)
	if err := c.parse(args); err != nil {
		return err
	}
	if listening < 0 || listening > 1 {
		return fmt.Errorf("-listening %g is not a share, 0 to 1", listening)
	}
	cfg.Listeners = int(listening * float64(cfg.Clients))
	cfg.Phases = list(phases)
	c.match(&cfg.MatchConfig)
	v, err := torture.Run(ctx, cfg)
	return tell(v, err, c.json) // the history stays: `testbed torture check` reads it again
}

func upgradeTest(ctx context.Context, args []string) error {
	var cfg upgrade.Config
	var rounds int
	c := newFlags("upgrade-test")
	c.redisFlag()
	c.StringVar(&cfg.Programs, "old", "", "folder with relay and edge of the last release (default: built from git)")
	c.IntVar(&cfg.NATS, "nats", 1, "NATS servers: 1 or 3")
	c.IntVar(&cfg.Clients, "clients", 30, "clients")
	c.IntVar(&rounds, "rounds", 2, "upgrades of a new deployment each: in the first all nodes end in order, in the second the relays by kill -9, and so on")
	if err := c.parse(args); err != nil {
		return err
	}
	c.match(&cfg.MatchConfig)
	var verdicts []history.Verdict
	for n := range rounds {
		cfg.Kill, cfg.Dir = n%2 == 1, filepath.Join(c.dir, fmt.Sprint("round", n+1))
		if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
			return err
		}
		cfg.File = filepath.Join(cfg.Dir, "history.jsonl")
		v, err := upgrade.Run(ctx, cfg)
		if err = tell(v, err, ""); err != nil {
			return fmt.Errorf("round %d: %w", n+1, err)
		}
		verdicts = append(verdicts, v)
	}
	return c.finish(bench.WriteJSON(c.json, verdicts))
}

// match sets the fields of a match that common flags have.
func (c *common) match(m *play.MatchConfig) {
	m.Bin, m.NATSConf, m.Redis, m.Dir, m.File = c.bin, c.natsConf, c.redis, c.dir, filepath.Join(c.dir, "history.jsonl")
	m.Seed, m.Progress = c.seed, bench.Progress
}

// tell prints a verdict and returns an error for violations.
func tell(v history.Verdict, err error, file string) error {
	if v.Run != "" {
		err = errors.Join(err, v.Write(os.Stdout))
	}
	if err == nil {
		err = bench.WriteJSON(file, v)
	}
	if v.Bad() {
		err = errors.Join(err, errors.New("there are violations"))
	}
	return err
}

func k8sTest(ctx context.Context, args []string) (err error) {
	var cfg k8stest.Config
	var file string
	f := flag.NewFlagSet("k8s-test", flag.ExitOnError)
	f.StringVar(&cfg.Helm, "helm", "bin/tools/helm", "program")
	f.StringVar(&cfg.Chart, "chart", "helm/relay", "folder of the chart")
	f.StringVar(&cfg.Cluster, "cluster", "testbed/k8s/cluster", "program that cuts nodes off")
	f.Func("set", "values for every installation, as helm --set takes them; may be repeated", func(v string) error {
		cfg.Values = strings.Trim(cfg.Values+","+v, ",")
		return nil
	})
	f.StringVar(&cfg.Adapter, "adapter", "deploy/prometheus-adapter.yaml", "values of prometheus-adapter, whose rules are used")
	f.StringVar(&cfg.Durability, "session-durability", "log", "log or none")
	f.IntVar(&cfg.Players, "players", 50, "clients")
	f.StringVar(&cfg.Only, "only", "", "steps, joined by commas")
	f.StringVar(&cfg.Rows, "rows", "", "rows of the table of players, from 1 on, joined by commas")
	f.StringVar(&cfg.Dir, "dir", "", "folder for histories and the logs of pods (default: a temporary one)")
	f.StringVar(&file, "json", "", "file for all figures")
	f.BoolVar(&cfg.Keep, "keep", false, "leave everything installed at the end")
	f.DurationVar(&cfg.Settle, "settle", 2*time.Minute, "most time until all clients play again")
	if f.Parse(args) != nil {
		return errUsage
	}
	if cfg.Dir, err = folder(cfg.Dir, f.Name()); err != nil {
		return err
	}
	rows, err := k8stest.Run(ctx, cfg)
	k8stest.PrintTable(os.Stdout, rows)
	if rows != nil {
		err = errors.Join(err, bench.WriteJSON(file, rows))
	}
	return err
}

// otlpSink is a collector of traces over OTLP/HTTP that drops everything; `make
// bench-trace` sends spans to it.
func otlpSink(_ context.Context, args []string) error {
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "usage: testbed otlpsink ADDRESS:PORT")
		return errUsage
	}
	return http.ListenAndServe(args[0], http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // an exporter that does not finish its request gets no answer
	}))
}
