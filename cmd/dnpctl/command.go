package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/dnp/command"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/subject"
)

type commandCommand struct {
	Address string `arg:"" placeholder:"HOST:PORT" help:"Edge to connect to as a client; or a URL: udp://, ws://, wss:// or wt://."`
	Key     string `arg:"" placeholder:"KEY" help:"Key of a state that this client may write."`
	Name    string `arg:"" placeholder:"NAME" help:"Name of the command."`
	Body    string `arg:"" optional:"" placeholder:"BODY" help:"Body of the command; - reads it from standard input."`

	DNPFlags
}

// Problems lists what is wrong with c.
func (c *commandCommand) Problems() config.Problems {
	list := c.DNPFlags.Problems()
	if !subject.ValidKey(c.Key) {
		list.Add("KEY", "want up to 8 tokens joined by dots, got %q", c.Key)
	}
	if !subject.ValidToken(c.Name) {
		list.Add("NAME", "want 1 to 64 letters, digits, _ or -, got %q", c.Name)
	}
	return list
}

// linkPause is the time between two attempts while the edge may not have linked the state yet.
const linkPause = 100 * time.Millisecond

// Run sends the command and prints the answer.
func (c *commandCommand) Run(ctx context.Context, _ *slog.Logger) error {
	body := []byte(c.Body)
	if c.Body == "-" {
		var err error
		if body, err = io.ReadAll(os.Stdin); err != nil {
			return err
		}
	}
	conn, err := c.dial(ctx, c.Address, client.Config{})
	if err != nil {
		return err
	}
	defer conn.Close()
	waiting, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	answer, err := conn.Command(waiting, c.Key, c.Name, body)
	for refused := (*client.CommandError)(nil); errors.As(err, &refused) && refused.Code == command.UnknownState.String() && waiting.Err() == nil; {
		if err := stay(waiting, conn, linkPause); err != nil {
			return err
		}
		if again, next := conn.Command(waiting, c.Key, c.Name, body); waiting.Err() == nil {
			answer, err = again, next
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer to the command within %v", c.Timeout)
	}
	if err != nil {
		return err
	}
	fmt.Printf("%s\n", answer)
	return nil
}
