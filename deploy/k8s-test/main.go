//go:build linux

// Command k8s-test installs dnprelay on a Kubernetes cluster of deploy/k8s, plays 50
// clients and a game server, breaks things, and prints what clients noticed. It runs
// inside of the cluster's network: deploy/k8s-test/run starts it there.
//
// Exit codes: 0 all is well, 1 a violation or a failure with one line that says why.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// A config says what to run.
type config struct {
	helm, chart, cluster string
	values               string // for helm, as --set takes them: where images are
	adapter              string // file with values for the chart of prometheus-adapter
	durability           string // of sessions
	players              int
	only                 string // names of steps, joined by commas; empty = all
	rows                 string // numbers of what players go through, joined by commas; empty = all
	file                 string // for the figures as JSON
	keep                 bool   // do not uninstall at the end
	settle               time.Duration
}

func main() {
	var cfg config
	flag.StringVar(&cfg.helm, "helm", "bin/tools/helm", "program")
	flag.StringVar(&cfg.chart, "chart", "helm/relay", "folder of the chart")
	flag.StringVar(&cfg.cluster, "cluster", "deploy/k8s/cluster", "program that cuts nodes off")
	flag.StringVar(&cfg.values, "set", "", "values for every installation, as helm --set takes them")
	flag.StringVar(&cfg.adapter, "adapter", "deploy/prometheus-adapter.yaml", "values of prometheus-adapter, whose rules are used")
	flag.StringVar(&cfg.durability, "session-durability", "log", "log or none")
	flag.IntVar(&cfg.players, "players", 50, "clients")
	flag.StringVar(&cfg.only, "only", "", "steps, joined by commas")
	flag.StringVar(&cfg.rows, "rows", "", "rows of the table of players, from 1 on, joined by commas")
	flag.StringVar(&cfg.file, "json", "", "file for all figures")
	flag.BoolVar(&cfg.keep, "keep", false, "leave everything installed at the end")
	flag.DurationVar(&cfg.settle, "settle", 2*time.Minute, "most time until all clients play again")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, cfg); err != nil {
		fmt.Fprintln(os.Stderr, "k8s-test:", err)
		stop()
		os.Exit(1)
	}
}

// run does all that cfg wants and reports it.
func run(ctx context.Context, cfg config) error {
	k := &kube{ctx: ctx, cfg: cfg}
	var failed []error
	wanted := func(name string) bool {
		return listed(cfg.only, name)
	}
	step := func(name string, f func() error) {
		if !wanted(name) || ctx.Err() != nil {
			return
		}
		start := time.Now()
		err := f()
		fmt.Printf("%-22s %-6s %v\n", name, verdict(err), time.Since(start).Round(100*time.Millisecond))
		if err != nil {
			fmt.Println("  ", err)
			failed = append(failed, fmt.Errorf("%s: %w", name, err))
		}
	}
	step("dry-run", k.dryRun)
	step("defaults", k.defaults)
	var rows []row
	step("players", func() (err error) {
		rows, err = play(k)
		return err
	})
	step("scaling", func() error {
		scaled, err := scaling(k)
		rows = append(rows, scaled...)
		return err
	})
	step("recipe", k.recipe)
	step("wrong-nats-url", k.wrongURL)
	step("wrong-secret", k.wrongSecret)
	step("missing-mapping", k.missingMapping)
	printTable(os.Stdout, rows)
	if cfg.file != "" && rows != nil {
		b, err := json.MarshalIndent(rows, "", "  ")
		failed = append(failed, err, os.WriteFile(cfg.file, append(b, '\n'), 0o644))
	}
	return errors.Join(failed...)
}

// listed reports whether a list, joined by commas, is empty or has a name.
func listed(list, name string) bool {
	return list == "" || strings.Contains(","+list+",", ","+name+",")
}

func verdict(err error) string {
	if err != nil {
		return "FAILED"
	}
	return "ok"
}
