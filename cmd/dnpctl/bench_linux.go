package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/cmd/dnpctl/progress"
	"github.com/dnprelay/dnprelay/internal/bench"
	"github.com/dnprelay/dnprelay/internal/bench/nearby"
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
	self, bin, err := benchPrograms(c.Bin)
	if err != nil {
		return err
	}
	c.Bin = bin
	line := progress.Start(c.JSON != "-")
	defer line.End()
	runner := &bench.Runner{Flags: c.Flags, Self: self}
	runner.Report = func(format string, args ...any) {
		line.Fprintln(os.Stderr, time.Now().Format("15:04:05 ")+fmt.Sprintf(format, args...))
	}
	runner.At = func(done, total int, c *bench.Case) {
		line.Set(progress.Status{Done: done, Total: total, Text: fmt.Sprintf("round %d of %d, case %s", done+1, total, c)})
	}
	run := runner.Cases
	if len(c.Carrier) > 1 && c.Case != "" {
		run = runner.Beside
	}
	results, err := run(ctx, cases)
	line.End()
	if c.JSON != "-" {
		err = errors.Join(err, bench.Write(os.Stdout, results))
	}
	return errors.Join(err, bench.WriteJSON(c.JSON, results))
}

// benchPrograms returns this program, and the folder of the others: bin, or else that of this program.
func benchPrograms(bin string) (self, folder string, err error) {
	if self, err = os.Executable(); err != nil {
		return "", "", err
	}
	if folder = bin; folder == "" {
		folder = filepath.Dir(self)
	}
	for _, name := range []string{"relay", "edge"} {
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			return "", "", fmt.Errorf("%w; `make build` makes it, --bin says where it is", err)
		}
	}
	return self, folder, nil
}

// cases returns the cases that the flags choose.
func (c *benchCommand) cases() ([]bench.Case, error) {
	if c.Case != "" || c.Idle > 0 {
		return c.byCarriers()
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

// byCarriers returns the one case, for each carrier.
func (c *benchCommand) byCarriers() ([]bench.Case, error) {
	one := bench.Idle(c.Idle)
	carriers, err := bench.ParseCarriers(c.Carrier)
	if err == nil && c.Case != "" {
		one, err = bench.ParseCase(c.Case, c.Model)
	}
	if err != nil {
		return nil, &config.UsageError{Problem: err.Error()}
	}
	return bench.ByCarriers(one, carriers), one.Validate()
}

// Run measures and prints a table.
func (c *benchInterestCommand) Run(ctx context.Context, _ *slog.Logger) error {
	self, bin, err := benchPrograms(c.Bin)
	if err != nil {
		return err
	}
	load, err := c.load()
	if err != nil {
		return err
	}
	r := nearby.Runner{
		Flags: bench.Flags{Rounds: c.Rounds, Window: c.Window, Workers: c.Workers, Tick: c.Tick, Flush: c.Flush, Bin: bin},
		Load:  load, Self: self, Profile: c.Profile,
	}
	figures, err := r.Run(ctx)
	if figures == nil {
		return err
	}
	if c.JSON != "-" {
		err = errors.Join(err, nearby.Write(os.Stdout, figures))
	}
	return errors.Join(err, bench.WriteJSON(c.JSON, figures), figures.WriteSVG(c.SVG))
}

// BenchProcesses are the commands that a benchmark runs in processes of their own.
type BenchProcesses struct {
	BenchNATS benchNATSCommand `cmd:"" hidden:"" name:"bench-nats"`
	BenchSend benchSendCommand `cmd:"" hidden:"" name:"bench-send"`
}

// benchNATSCommand is the NATS server.
type benchNATSCommand struct {
	Listen  string `arg:"" help:"ADDRESS:PORT."`
	Monitor string `arg:"" optional:"" help:"ADDRESS:PORT at which to tell figures by HTTP."`
}

// Run serves until ctx ends.
func (c *benchNATSCommand) Run(ctx context.Context, log *slog.Logger) error {
	s, err := natsembed.Start(natsembed.Config{Listen: c.Listen, Monitor: c.Monitor, Mappings: subject.Names{}.Mappings(64), Log: log})
	if err != nil {
		return err
	}
	<-ctx.Done()
	s.Shutdown()
	return nil
}

// benchSendCommand is a baseline.
type benchSendCommand struct{}

// Run sends the job of the standard input.
func (c *benchSendCommand) Run(ctx context.Context, _ *slog.Logger) error {
	return bench.Send(ctx, os.Stdin, os.Stdout)
}
