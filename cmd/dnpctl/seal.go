package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/dnprelay/dnprelay/cluster/natslease"
)

type sealCommand struct {
	Open bool `env:"-" help:"Open the streams again, which relays of the last release need."`

	JSON bool `name:"json" env:"-" help:"Print a JSON object: sealed."`

	NATSFlags `group:"NATS"`
}

// Run seals the streams of the store, or opens them.
func (c *sealCommand) Run(ctx context.Context, _ *slog.Logger) error {
	nc, err := c.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := natslease.SetSealed(ctx, nc, c.subjects(), !c.Open); err != nil {
		return err
	}
	fmt.Println(c.sealed())
	return nil
}

// sealed returns what the command prints.
func (c *sealCommand) sealed() string {
	switch {
	case c.JSON:
		return fmt.Sprintf(`{"sealed":%t}`, !c.Open)
	case c.Open:
		return "the store takes records on subjects without secrets, too"
	}
	return "the store takes records only on subjects with secrets, which relays of the last release do not know"
}
