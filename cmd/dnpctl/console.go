package main

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"

	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/internal/compose"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/console"
)

type consoleCommand struct {
	Space string `arg:"" optional:"" want:"token" default:"demo" help:"Space that the page shows first (demo)."`

	Listen string `default:"127.0.0.1:8415" placeholder:"ADDRESS:PORT" want:"address" help:"Where to serve the page (default 127.0.0.1:8415). Beyond this machine a browser needs the token in the address that the command prints; put a proxy with TLS before it."`
	Edit   bool   `help:"Let the page change and remove states, walk eyes and kick clients, which needs the NATS user game or admin, and drain edges, which needs admin."`
	Token  string `placeholder:"TOKEN" help:"What a browser has to know (default: a new one, and none if --listen is an address of this machine)."`

	NATSFlags       `group:"NATS"`
	config.Sharding `set:"shards=64"`
}

// Run serves the page until it is interrupted.
func (c *consoleCommand) Run(ctx context.Context, log *slog.Logger) error {
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer l.Close()
	b, err := natsbus.Dial(ctx, natsbus.Config{
		URL: c.NATSURL, Name: "dnpctl console", Security: compose.Security(&c.NATS), MayAnswer: c.subjects().MayAnswer, ReadEvery: console.ReadEvery,
		OnError: func(err error) { log.Warn("NATS", "err", err) },
	}, c.Timeout, log)
	if err != nil {
		return err
	}
	defer b.Close()
	token := c.Token
	address := l.Addr().(*net.TCPAddr).AddrPort()
	if token == "" && !address.Addr().Unmap().IsLoopback() {
		token = crand.Text()
	}
	url := "http://" + compose.Reachable(address).String() + "/"
	if token != "" {
		url += "?token=" + token
	}
	fmt.Fprintf(os.Stdout, "console: %s\n", url)
	s := console.New(console.Config{Bus: b, Subjects: c.subjects(), Shards: c.Shards, Space: c.Space, Token: token, Edit: c.Edit, Log: log})
	if err := s.Serve(ctx, l); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
