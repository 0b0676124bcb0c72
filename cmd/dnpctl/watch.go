package main

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
)

type watchCommand struct {
	Address string   `arg:"" optional:"" default:"127.0.0.1:3413" placeholder:"ADDRESS" help:"HOST:PORT of an edge (default 127.0.0.1:3413)."`
	JSON    bool     `name:"json" env:"-" help:"Print one JSON object per line: ts, type (connected, linked, changed, unlinked, message, closed), link, message, read_only, values [{index,type,value}], reliable, number, text, reason."`
	Send    []string `sep:"none" env:"-" placeholder:"TEXT" help:"Reliable message to send once connected; may be repeated."`

	LimitFlags
	DNPFlags
}

// A view shows what a watcher sees. flush is called after each turn and returns
// when it wants to be called again, the zero time for "when something happens".
type view interface {
	watcher
	closed(reason dnp.CloseReason)
	lines() int // how many things it has shown
	flush(now time.Time) (again time.Time, err error)
	end() error
}

// Run watches until it is interrupted, a limit is reached or the connection ends.
func (c *watchCommand) Run(ctx context.Context, _ *slog.Logger) (err error) {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	v := c.view()
	client, err := c.dial(c.Address, v)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.end(), client.close()) }()
	sent := false
	err = client.run(ctx, func(now time.Time) (time.Time, error) {
		if client.conn.Established() && !sent {
			sent = true
			if err := c.sendAll(client); err != nil {
				return time.Time{}, err
			}
		}
		if client.closed {
			v.closed(client.reason)
		}
		again, err := v.flush(now)
		if err == nil && c.Count > 0 && v.lines() >= c.Count {
			err = errStop
		}
		return again, err
	})
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

func (c *watchCommand) sendAll(client *dnpClient) error {
	for _, text := range c.Send {
		if err := client.conn.Send([]byte(text), 0); err != nil {
			return err
		}
	}
	return nil
}

func (c *watchCommand) view() view {
	out := bufio.NewWriter(os.Stdout)
	switch {
	case c.JSON:
		return &jsonView{out: out, max: c.Count, now: time.Now}
	case isTerminal():
		return newTableView(out)
	}
	return &lineView{out: out, max: c.Count}
}
