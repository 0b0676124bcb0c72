package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/nats-io/nats.go"
)

type whoCommand struct {
	Space string        `arg:"" help:"Space to look into."`
	Wait  time.Duration `default:"300ms" help:"How long to wait for further edges after each answer."`

	NATSFlags `group:"NATS"`
}

// Problems lists what is wrong with c.
func (c *whoCommand) Problems() (list config.Problems) {
	checkSpace(func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }, c.Space)
	return list
}

// Run prints the answer of each edge, one JSON object per line. Nobody knows how
// many edges there are, so it waits a moment after each.
func (c *whoCommand) Run(ctx context.Context, _ *slog.Logger) error {
	nc, err := c.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	inbox := nc.NewInbox()
	answers, err := nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	if err := nc.PublishRequest(c.subjects().Who(c.Space), inbox, nil); err != nil {
		return err
	}
	edges, err := c.collect(ctx, answers)
	if err != nil {
		return err
	}
	if edges == 0 {
		return fmt.Errorf("no edge answers for space %s", c.Space)
	}
	return nil
}

func (c *whoCommand) collect(ctx context.Context, answers *nats.Subscription) (edges int, err error) {
	for {
		wait, cancel := context.WithTimeout(ctx, c.Wait)
		m, err := answers.NextMsgWithContext(wait)
		cancel()
		switch {
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
			return edges, nil
		case errors.Is(err, nats.ErrNoResponders):
			return edges, nil
		case err != nil:
			return edges, err
		}
		edges++
		fmt.Fprintf(os.Stdout, "%s\n", m.Data)
	}
}
