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
	"github.com/dnprelay/dnprelay/internal/telemetry"
)

type drainCommand struct {
	Node      string `arg:"" help:"Where the edge serves /readyz: ADDRESS:PORT or http://ADDRESS:PORT."`
	HTTPToken string `name:"http-token" aliases:"token" env:"DNP_HTTP_TOKEN" placeholder:"FILE" help:"File with the token that the edge has in its own --http-token; empty = none, which does for an edge on this machine that has none."`
}

// Problems lists what is wrong with c.
func (c *drainCommand) Problems() (list config.Problems) {
	if _, _, err := net.SplitHostPort(c.host()); err != nil {
		list = append(list, fmt.Sprintf("NODE: want ADDRESS:PORT, got %q", c.Node))
	}
	if c.HTTPToken != "" {
		if _, err := telemetry.ReadToken(c.HTTPToken); err != nil {
			list = append(list, "--http-token: "+err.Error())
		}
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
	if c.HTTPToken != "" {
		token, err := telemetry.ReadToken(c.HTTPToken)
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := drainClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusAccepted:
		fmt.Println("it hands its sessions over and ends")
		return nil
	case http.StatusUnauthorized:
		return fmt.Errorf("%s answers %s; --http-token has to be that of the edge", c.host(), answer.Status)
	case http.StatusForbidden:
		return fmt.Errorf("%s answers %s; from another machine it takes this only if both have --http-token", c.host(), answer.Status)
	}
	return fmt.Errorf("%s answers %s; is it an edge?", c.host(), answer.Status)
}

// drainClient follows nobody to another address: the token is for the edge alone.
var drainClient = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
