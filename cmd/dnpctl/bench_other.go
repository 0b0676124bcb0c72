//go:build !linux

package main

import (
	"context"
	"errors"
	"log/slog"
)

// Run says why there is nothing to run.
func (c *benchCommand) Run(context.Context, *slog.Logger) error { return errBench }

// Run says why there is nothing to run.
func (c *benchInterestCommand) Run(context.Context, *slog.Logger) error { return errBench }

var errBench = errors.New("bench needs Linux, for /proc, sendmmsg and the addresses of its loopback")

// BenchProcesses are the commands that a benchmark runs.
type BenchProcesses struct{}
