package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/dnprelay/dnprelay/internal/config"
)

type eventsCommand struct {
	Space string `arg:"" help:"Space to listen to."`
	LimitFlags

	NATSFlags `group:"NATS"`
}

// LimitFlags end a command that would otherwise go on until it is interrupted.
type LimitFlags struct {
	Count int           `placeholder:"N" env:"-" help:"End after this many lines; 0 = never."`
	For   time.Duration `placeholder:"TIME" env:"-" help:"End after this time; 0 = never."`
}

// Problems lists what is wrong with f.
func (f *LimitFlags) Problems() (list config.Problems) {
	if f.Count < 0 {
		list = append(list, fmt.Sprintf("--count: want 0 or more, got %d", f.Count))
	}
	if f.For < 0 {
		list = append(list, fmt.Sprintf("--for: want 0 or more, got %v", f.For))
	}
	return list
}

// limit returns ctx with the end that --for says.
func (f *LimitFlags) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if f.For == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, f.For)
}

// Problems lists what is wrong with c.
func (c *eventsCommand) Problems() (list config.Problems) {
	checkSpace(func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }, c.Space)
	return list
}

// Run prints events until it is interrupted or a limit is reached.
func (c *eventsCommand) Run(ctx context.Context, _ *slog.Logger) error {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	nc, err := c.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	events, err := nc.SubscribeSync(c.subjects().Event(c.Space))
	if err != nil {
		return err
	}
	for n := 0; c.Count == 0 || n < c.Count; n++ {
		m, err := events.NextMsgWithContext(ctx)
		switch {
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
			return nil
		case err != nil:
			return fmt.Errorf("events of space %s: %w", c.Space, err)
		}
		fmt.Printf("%s\n", m.Data)
	}
	return nil
}
