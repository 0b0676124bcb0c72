package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/conform"
)

type conformCommand struct {
	Listen  string        `default:"127.0.0.1:3413" env:"-" placeholder:"ADDRESS:PORT" help:"Address on which to wait for the client (default 127.0.0.1:3413)."`
	Timeout time.Duration `default:"5s" env:"-" help:"How long to wait for anything that the client has to do."`
	Token   string        `env:"-" placeholder:"TOKEN" help:"Token with which the client has to log in; empty = it does not log in."`
	Quick   bool          `env:"-" help:"Leave out the steps that take many seconds: loss, and numbers that begin again."`
}

// Problems lists what is wrong with c.
func (c *conformCommand) Problems() (list config.Problems) {
	if c.Timeout <= 0 {
		list.Add("--timeout", "want more than 0, got %v", c.Timeout)
	}
	if _, err := net.ResolveUDPAddr("udp", c.Listen); err != nil {
		list.Add("--listen", "%v", err)
	}
	return list
}

// Run proves the first client that connects.
func (c *conformCommand) Run(ctx context.Context, _ *slog.Logger) error {
	addr, err := net.ResolveUDPAddr("udp", c.Listen)
	if err != nil {
		return err
	}
	socket, err := net.ListenUDP("udp", addr)
	if err != nil {
		return err
	}
	defer socket.Close()
	fmt.Printf("waiting for a client at udp://%s; clients/CONFORMANCE.md says what it has to do\n", socket.LocalAddr())
	results, err := conform.Run(ctx, socket, conform.Config{Patience: c.Timeout, Token: c.Token, Quick: c.Quick, Out: os.Stdout})
	if err != nil {
		return err
	}
	passed, failed := 0, conform.Failed(results)
	for _, r := range results {
		if r.Passed() {
			passed++
		}
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", passed, failed, len(results)-passed-failed)
	if failed > 0 {
		return fmt.Errorf("the client fails %d of %d steps", failed, len(results))
	}
	return nil
}
