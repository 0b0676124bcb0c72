package main

import (
	"context"
	"encoding/gob"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/dnprelay/dnprelay/internal/compose"
	"github.com/dnprelay/dnprelay/internal/config"
)

// A devEdgeCommand is the command by which relay dev --edges runs each edge in a process of its own, so that one can
// die. The flags come on standard input, as a compose.EdgeCommand. It ends when that is closed, as it is when relay dev
// ends, for whatever reason.
type devEdgeCommand struct {
	Node string `arg:"" help:"Name of the edge."`
}

// Run serves until ctx ends, an operator requests a drain, or relay dev ends.
func (c *devEdgeCommand) Run(ctx context.Context, _ *slog.Logger) error {
	edge := compose.EdgeCommand{OpenAffinity: openAffinity}
	if err := gob.NewDecoder(os.Stdin).Decode(&edge); err != nil {
		return fmt.Errorf("only relay dev starts this command, and tells it its flags: %w", err)
	}
	ignoreInterrupt()
	go func() {
		untilClosed()
		os.Exit(config.ExitFailed) // NATS and the other edges end, too, so no edge could take the sessions
	}()
	return edge.Run(ctx, edge.Logger(os.Stderr).With("edge", c.Node))
}

// A devRedisCommand runs the Redis of relay dev --edges and prints its URL. It ends when its standard input is closed.
type devRedisCommand struct{}

// Run serves until relay dev ends.
func (*devRedisCommand) Run(context.Context, *slog.Logger) error {
	redis := miniredis.NewMiniRedis()
	if err := redis.StartAddr("127.0.0.1:0"); err != nil {
		return err
	}
	defer redis.Close()
	ignoreInterrupt()
	fmt.Printf("redis://%s\n", redis.Addr())
	go age(redis)
	untilClosed()
	return nil
}

// age has claims and leases of edges expire: this Redis has no clock of its own.
func age(redis *miniredis.Miniredis) {
	last := time.Now()
	for now := range time.Tick(100 * time.Millisecond) {
		redis.FastForward(now.Sub(last))
		last = now
	}
}

// ignoreInterrupt leaves the key of a terminal to relay dev, which gets it, too, and ends what it started.
func ignoreInterrupt() { signal.Ignore(os.Interrupt) }

// untilClosed returns when relay dev has ended.
func untilClosed() { _, _ = io.Copy(io.Discard, os.Stdin) }
