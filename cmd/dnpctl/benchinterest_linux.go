package main

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/dnprelay/dnprelay/internal/bench"
	"github.com/dnprelay/dnprelay/internal/bench/nearby"
)

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
	return errors.Join(err, nearby.Write(os.Stdout, figures), bench.WriteJSON(c.JSON, figures), figures.WriteSVG(c.SVG))
}
