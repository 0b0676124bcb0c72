package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/internal/bench"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/natsembed"
	"github.com/dnprelay/dnprelay/subject"
)

// Run measures and prints a table.
func (c *benchCommand) Run(ctx context.Context, _ *slog.Logger) error {
	cases, err := c.cases()
	if err != nil {
		return err
	}
	runner, err := c.runner()
	if err != nil {
		return err
	}
	var results []bench.Result
	var failed []error
	for _, one := range cases {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r, err := runner.Case(ctx, one)
		if err != nil {
			failed = append(failed, err) // the other cases are worth measuring
			c.progress("%v", err)
			continue
		}
		results = append(results, r)
		c.progress("%s: %.2f M updates per edge CPU second", r.Case, r.PerEdgeCPU/1e6)
	}
	return errors.Join(append(failed, c.report(results))...)
}

func (c *benchCommand) runner() (*bench.Runner, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if c.Bin == "" {
		c.Bin = filepath.Dir(self)
	}
	for _, name := range []string{"relay", "edge"} {
		if _, err := os.Stat(filepath.Join(c.Bin, name)); err != nil {
			return nil, fmt.Errorf("%w; `make build` makes it, --bin says where it is", err)
		}
	}
	return bench.New(bench.Config{
		Self: self, Bin: c.Bin, Workers: c.Workers, Tick: c.Tick, Flush: c.Flush, Window: c.Window, Rounds: c.Rounds,
		Pin: c.Pin, Progress: c.progress,
	}), nil
}

func (c *benchCommand) progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// cases returns the cases that the flags choose.
func (c *benchCommand) cases() ([]bench.Case, error) {
	if c.Case != "" {
		one, err := bench.ParseCase(c.Case, c.Model)
		if err != nil {
			return nil, &config.UsageError{Problem: err.Error()}
		}
		return []bench.Case{one}, one.Validate()
	}
	if c.Quick {
		return bench.Quick(), nil
	}
	list := slices.DeleteFunc(bench.Sweep(), func(one bench.Case) bool { return c.Only != "" && one.Name != c.Only })
	if len(list) == 0 {
		return nil, &config.UsageError{Problem: fmt.Sprintf("--only: there is no series %q", c.Only)}
	}
	return list, nil
}

func (c *benchCommand) report(results []bench.Result) error {
	if err := bench.Write(os.Stdout, results); err != nil {
		return err
	}
	for i := range results {
		for _, line := range results[i].Warnings() {
			fmt.Fprintln(os.Stdout, "warning:", line)
		}
	}
	if c.JSON == "" {
		return nil
	}
	data, err := json.MarshalIndent(results, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(c.JSON, append(data, '\n'), 0o644)
}

// Run serves until ctx ends.
func (c *benchNATSCommand) Run(ctx context.Context, log *slog.Logger) error {
	s, err := natsembed.Start(natsembed.Config{Listen: c.Listen, Mappings: subject.Names{}.Mappings(64), Log: log})
	if err != nil {
		return err
	}
	<-ctx.Done()
	s.Shutdown()
	return nil
}

// Run sends the job of the standard input.
func (c *benchSendCommand) Run(ctx context.Context, _ *slog.Logger) error {
	return bench.Send(ctx, os.Stdin, os.Stdout)
}
