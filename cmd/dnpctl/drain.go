package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/internal/config"
)

type drainCommand struct {
	Node string `arg:"" help:"Where the edge serves /readyz: ADDRESS:PORT or http://ADDRESS:PORT."`
}

// Problems lists what is wrong with c.
func (c *drainCommand) Problems() (list config.Problems) {
	if _, _, err := net.SplitHostPort(c.host()); err != nil {
		list = append(list, fmt.Sprintf("NODE: want ADDRESS:PORT, got %q", c.Node))
	}
	return list
}

func (c *drainCommand) host() string {
	return strings.TrimSuffix(strings.TrimPrefix(c.Node, "http://"), "/")
}

// Run tells the edge to hand its sessions over and to end.
func (c *drainCommand) Run(ctx context.Context, _ *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.host()+"/drain", nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusAccepted {
		return fmt.Errorf("%s answers %s; is it an edge?", c.host(), answer.Status)
	}
	fmt.Println("it hands its sessions over and ends")
	return nil
}
