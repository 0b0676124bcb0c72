//go:build linux

// Command cluster-test runs a cluster of dnprelay in network namespaces, breaks it in
// several ways, and prints what players and game servers noticed. It needs root.
//
// Exit codes: 0 no violation, 1 a violation or a failure with one line that says why,
// 2 bad arguments.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/dnprelay/dnprelay/internal/clustertest"
)

func main() {
	cfg, file, keep := configure()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, cfg, file, keep); err != nil {
		fmt.Fprintln(os.Stderr, "cluster-test:", err)
		stop()
		os.Exit(1)
	}
}

// configure reads the flags.
func configure() (cfg clustertest.Config, file string, keep bool) {
	var faults string
	flag.StringVar(&cfg.Bin, "bin", "bin", "folder with relay, edge and nats-server")
	flag.StringVar(&cfg.NATSConf, "nats-conf", "deploy/nats/nats-server.conf", "configuration of the NATS servers")
	flag.StringVar(&cfg.Dir, "dir", "", "folder for logs and streams, which is kept (default: a temporary one, kept after a failure)")
	flag.IntVar(&cfg.Rounds, "rounds", 30, "rounds of each fault; faults that take long have a tenth")
	flag.StringVar(&faults, "faults", "", "faults to try, joined by commas (default: all)")
	flag.Uint64Var(&cfg.Seed, "seed", uint64(time.Now().UnixNano()), "seed of all random choices")
	flag.DurationVar(&cfg.StopAfter, "stop-after", 0, "begin no round later than this; 0 = never stop early")
	flag.Float64Var(&cfg.Impaired.Loss, "loss", 0.02, "loss of datagrams of clients behind a bad path, 0 to 1")
	flag.Float64Var(&cfg.Impaired.Duplicate, "duplicate", 0.01, "share of them that comes twice")
	flag.DurationVar(&cfg.Impaired.Delay, "delay", 10*time.Millisecond, "delay of them")
	flag.DurationVar(&cfg.Impaired.Jitter, "jitter", 10*time.Millisecond, "most that is added to the delay; what overtakes is reordered")
	flag.StringVar(&file, "json", "", "file for all figures")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "Usage: cluster-test [flags]; needs root. Faults:")
		for _, f := range clustertest.Faults() {
			fmt.Fprintf(flag.CommandLine.Output(), "  %-12s %s\n", f.Name, f.About)
		}
		flag.PrintDefaults()
	}
	flag.Parse()
	if faults != "" {
		cfg.Faults = strings.Split(faults, ",")
	}
	cfg.Progress = func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
	}
	return cfg, file, cfg.Dir != ""
}

func run(ctx context.Context, cfg clustertest.Config, file string, keep bool) (err error) {
	for _, path := range []string{filepath.Join(cfg.Bin, "relay"), filepath.Join(cfg.Bin, "edge"), filepath.Join(cfg.Bin, "nats-server")} {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%w; `make cluster-test` makes it, -bin says where it is", err)
		}
	}
	if !keep {
		if cfg.Dir, err = os.MkdirTemp("", "cluster-test-"); err != nil {
			return err
		}
	} else if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return err
	}
	if cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil {
		return err
	}
	report, err := clustertest.Run(ctx, cfg)
	if len(report.Rounds) > 0 {
		err = errors.Join(err, report.Write(os.Stdout))
	}
	if file != "" {
		data, _ := json.MarshalIndent(report, "", " ") // numbers and words always can be
		err = errors.Join(err, os.WriteFile(file, append(data, '\n'), 0o644))
	}
	if n := report.Violations(); n > 0 {
		err = errors.Join(err, fmt.Errorf("%d violations", n))
	}
	if err == nil && !keep {
		return os.RemoveAll(cfg.Dir)
	}
	return err
}
