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
	"strconv"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/internal/bench"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/natsembed"
	"github.com/dnprelay/dnprelay/subject"
)

// Run measures and prints a table.
func (c *benchCommand) Run(ctx context.Context, _ *slog.Logger) error {
	cases, series, err := c.cases()
	if err != nil {
		return err
	}
	runner, err := c.runner()
	if err != nil {
		return err
	}
	if c.Flood {
		return c.flood(ctx, runner)
	}
	var results []bench.Result
	var failed []error
	for _, one := range cases {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r, err := runner.Case(ctx, one)
		if err != nil {
			failed = append(failed, err) // the others are worth having
			c.progress("%v", err)
			continue
		}
		results = append(results, r)
		c.progress("%s: %.2f M updates per edge CPU second", r.Case, r.PerEdgeCPU/1e6)
	}
	for _, run := range series {
		more, err := run(runner, ctx)
		failed = append(failed, err)
		results = append(results, more...)
	}
	return errors.Join(append(failed, c.report(results))...)
}

// flood prints what forged requests do to an edge, and fails if that is too much.
func (c *benchCommand) flood(ctx context.Context, runner *bench.Runner) error {
	res, err := runner.Flood(ctx)
	if err != nil {
		return err
	}
	if !res.Write(os.Stdout) {
		return errors.New("flood: the bar was missed")
	}
	return nil
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
	if c.Profile != "" {
		if err := os.MkdirAll(c.Profile, 0o755); err != nil {
			return nil, err
		}
	}
	return bench.New(bench.Config{
		Self: self, Bin: c.Bin, Workers: c.Workers, Tick: c.Tick, Flush: c.Flush, Window: c.Window, Rounds: c.Rounds,
		Pin: c.Pin, Profile: c.Profile, Progress: c.progress,
	}), nil
}

func (c *benchCommand) progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// A series is cases of which one decides about the next.
type series = func(*bench.Runner, context.Context) ([]bench.Result, error)

// cases returns what the flags choose.
func (c *benchCommand) cases() (list []bench.Case, more []series, err error) {
	switch {
	case c.Case != "":
		one, err := c.oneCase()
		return []bench.Case{one}, nil, err
	case c.Quick:
		return bench.Quick(), nil, nil
	}
	list = slices.Concat(bench.Sweep(), bench.Growth(), bench.Idle())
	switch c.Only {
	case "":
		return list, []series{(*bench.Runner).Disturbed, (*bench.Runner).Overload}, nil
	case "disturbed":
		return nil, []series{(*bench.Runner).Disturbed}, nil
	case "overload":
		return nil, []series{(*bench.Runner).Overload}, nil
	}
	list = slices.DeleteFunc(list, func(one bench.Case) bool { return one.Name != c.Only })
	if len(list) == 0 {
		return nil, nil, &config.UsageError{Problem: fmt.Sprintf("--only: there is no series %q", c.Only)}
	}
	return list, nil, nil
}

func (c *benchCommand) oneCase() (one bench.Case, err error) {
	one.Name = "case"
	fields := []*int{&one.States, &one.Hz, &one.Clients, &one.Edges, &one.Links}
	parts := strings.Split(c.Case, ",")
	wrong := len(parts) < 4 || len(parts) > len(fields)
	for i := 0; i < len(parts) && !wrong; i++ {
		*fields[i], err = strconv.Atoi(strings.TrimSpace(parts[i]))
		wrong = err != nil || *fields[i] < 1
	}
	if wrong {
		return one, &config.UsageError{Problem: fmt.Sprintf("--case: want STATES,HZ,CLIENTS,EDGES[,LINKS], got %q", c.Case)}
	}
	var ok bool
	if one.Model, ok = bench.ParseModel(c.Model); !ok {
		return one, &config.UsageError{Problem: fmt.Sprintf("--model: want all, tenth or sine, got %q", c.Model)}
	}
	return one, one.Validate()
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

// Run sends what standard input says.
func (c *benchSendCommand) Run(ctx context.Context, _ *slog.Logger) error {
	return bench.Send(ctx, os.Stdin, os.Stdout)
}
