//go:build linux

// Command torture breaks edges under running sessions, writes what everybody saw to a
// file, and checks it.
//
//	torture [flags]        run, check, print
//	torture check FILE     check and print a history
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
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/dnprelay/dnprelay/internal/torture"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	if len(os.Args) == 3 && os.Args[1] == "check" {
		v, err := torture.CheckFile(os.Args[2])
		return tell(v, err, "")
	}
	cfg, file, err := configure()
	if err != nil {
		return err
	}
	v, err := torture.Run(ctx, cfg)
	return tell(v, err, file)
}

func configure() (cfg torture.Config, file string, err error) {
	var phases string
	flag.StringVar(&cfg.Bin, "bin", "bin", "folder with relay, edge and nats-server")
	flag.StringVar(&cfg.NATSConf, "nats-conf", "deploy/nats/nats-server.conf", "configuration of the NATS servers")
	flag.StringVar(&cfg.Redis, "redis", "redis-server", "the program redis-server")
	flag.StringVar(&cfg.Dir, "dir", "", "folder for logs, streams and the history (default: a temporary one)")
	flag.Uint64Var(&cfg.Seed, "seed", uint64(time.Now().UnixNano()), "seed of all random choices")
	flag.IntVar(&cfg.NATS, "nats", 1, "NATS servers: 1 or 3")
	flag.IntVar(&cfg.Clients, "clients", 50, "clients")
	flag.StringVar(&cfg.Durability, "durability", "log", "session durability of the edges: log, or none to see what is noticed")
	flag.StringVar(&phases, "phases", "", "phases, joined by commas (default: all)")
	flag.Float64Var(&cfg.Scale, "scale", 1, "factor on the number of faults")
	flag.DurationVar(&cfg.Reroute, "reroute", 200*time.Millisecond, "from the death of an edge until its flows move")
	flag.DurationVar(&cfg.StopAfter, "stop-after", 0, "begin no fault later than this; 0 = never stop early")
	flag.StringVar(&file, "json", "", "file for all figures")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "Usage: torture [flags], or torture check FILE. Phases:")
		for _, p := range torture.Phases() {
			fmt.Fprintf(flag.CommandLine.Output(), "  %-12s %s (%d)\n", p.Name, p.About, p.Count)
		}
		flag.PrintDefaults()
	}
	flag.Parse()
	if phases != "" {
		cfg.Phases = strings.Split(phases, ",")
	}
	cfg.Progress = func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
	}
	if cfg.Redis, err = exec.LookPath(cfg.Redis); err != nil {
		return cfg, file, fmt.Errorf("%w (Debian package redis-server)", err)
	}
	for _, name := range []string{"relay", "edge", "nats-server"} {
		if _, err := os.Stat(filepath.Join(cfg.Bin, name)); err != nil {
			return cfg, file, fmt.Errorf("%w; `make torture` makes it, -bin says where it is", err)
		}
	}
	if cfg.Dir == "" {
		cfg.Dir, err = os.MkdirTemp("", "torture-")
	} else if err = os.MkdirAll(cfg.Dir, 0o755); err == nil {
		cfg.Dir, err = filepath.Abs(cfg.Dir)
	}
	cfg.File = filepath.Join(cfg.Dir, "history.jsonl")
	return cfg, file, err
}

// tell prints a verdict and returns what is wrong.
func tell(v torture.Verdict, err error, file string) error {
	if v.Run != "" {
		err = errors.Join(err, v.Write(os.Stdout))
	}
	if file != "" && err == nil {
		data, _ := json.MarshalIndent(v, "", " ") // numbers and words always can be
		err = os.WriteFile(file, append(data, '\n'), 0o644)
	}
	if v.Bad() {
		err = errors.Join(err, errors.New("there are violations"))
	}
	return err
}
