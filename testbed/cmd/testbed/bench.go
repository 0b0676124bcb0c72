//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/internal/bench"
	"github.com/dnprelay/dnprelay/testbed/lab"
)

func runBench(ctx context.Context, args []string) error {
	var cfg bench.Config
	c := newFlags("bench")
	c.IntVar(&cfg.Rounds, "rounds", 5, "windows per case, each with its baselines; the table has medians")
	c.DurationVar(&cfg.Window, "window", 1200*time.Millisecond, "how long one window takes")
	c.IntVar(&cfg.Workers, "workers", 1, "workers of each edge")
	c.DurationVar(&cfg.Tick, "tick", 10*time.Millisecond, "tick of the relay")
	c.DurationVar(&cfg.Flush, "flush", 5*time.Millisecond, "flush interval of the edges")
	c.BoolVar(&cfg.Pin, "pin", false, "edges on core 0, everything else on core 1")
	only := c.String("only", "", "only this series: "+strings.Join(lab.Series(), ", "))
	oneCase := c.String("case", "", "only this case: STATES,HZ,CLIENTS,EDGES[,LINKS]")
	model := c.String("model", "all", "what changes with -case: all values, tenth = every tenth, sine = slowly and filtered by precision")
	flood := c.Bool("flood", false, "only a flood: a million forged connection requests while clients play, 50,000 per second while more connect, and forged closes")
	profile := c.String("profile", "", "folder for CPU and allocation profiles of the first edge; they cost some of the figures")
	if err := c.parse(args); err != nil {
		return err
	}
	defer os.RemoveAll(c.dir) // nothing is written there
	cfg.Bin, cfg.Self, cfg.Progress = c.bin, filepath.Join(c.bin, "dnpctl"), progress
	if *profile != "" {
		if err := os.MkdirAll(*profile, 0o755); err != nil {
			return err
		}
		cfg.Watch = lab.Profile(*profile)
	}
	if *flood {
		res, err := lab.Flood(ctx, cfg)
		if err == nil && !res.Write(os.Stdout) {
			err = errors.New("flood: a bar was missed")
		}
		return err
	}
	var results []bench.Result
	var err error
	if *oneCase != "" {
		one, wrong := bench.ParseCase(*oneCase, *model)
		if wrong != nil {
			fmt.Fprintln(os.Stderr, "bench:", wrong)
			return errUsage
		}
		if err := one.Validate(); err != nil {
			return err
		}
		results, err = lab.RunCases(ctx, bench.New(cfg), []bench.Case{one})
	} else {
		results, err = lab.Run(ctx, cfg, *only)
	}
	err = errors.Join(err, bench.Write(os.Stdout, results), writeJSON(c.json, results))
	lab.WriteSeries(os.Stdout, results)
	for i := range results {
		for _, line := range results[i].Warnings() {
			fmt.Println("warning:", line)
		}
	}
	return err
}
