//go:build !linux

package main

import (
	"context"
	"errors"
	"log/slog"
)

var errBench = errors.New("bench needs Linux, for /proc, sendmmsg and the addresses of its loopback")

// Run says why there is nothing to run.
func (c *benchCommand) Run(context.Context, *slog.Logger) error { return errBench }

// Run says why there is nothing to run.
func (c *benchNATSCommand) Run(context.Context, *slog.Logger) error { return errBench }

// Run says why there is nothing to run.
func (c *benchSendCommand) Run(context.Context, *slog.Logger) error { return errBench }
