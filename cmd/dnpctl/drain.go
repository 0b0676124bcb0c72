package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/telemetry"
)

type drainCommand struct {
	Wait      bool          `help:"Wait until the process is gone, and print how many sessions are left."`
	Timeout   time.Duration `default:"90s" help:"With --wait: fail after this long. An edge needs up to its --drain-timeout and --drain-linger."`
	Node      string        `arg:"" help:"Where the edge serves /readyz: ADDRESS:PORT or http://ADDRESS:PORT."`
	HTTPToken string        `name:"http-token" aliases:"token" env:"DNP_HTTP_TOKEN" placeholder:"FILE" help:"File with the token that the edge has in its own --http-token; empty = none, which does for an edge on this machine that has none."`
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
	if c.Wait && c.Timeout <= 0 {
		list = append(list, fmt.Sprintf("--timeout: want more than 0, got %v", c.Timeout))
	}
	return list
}

func (c *drainCommand) host() string {
	return strings.TrimSuffix(strings.TrimPrefix(c.Node, "http://"), "/")
}

// Run tells the edge to leave, and waits for it if that is wanted.
func (c *drainCommand) Run(ctx context.Context, _ *slog.Logger) error {
	var before drainLook // which process it is
	if c.Wait {
		if before = c.look(ctx); before.err != nil {
			return before.err
		}
	}
	what, err := c.ask(ctx)
	if err != nil {
		return err
	}
	fmt.Println(what)
	if !c.Wait {
		return nil
	}
	return c.follow(ctx, before)
}

// ask asks the edge to leave and returns what it does, for people.
func (c *drainCommand) ask(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.host()+"/drain", nil)
	if err != nil {
		return "", err
	}
	if c.HTTPToken != "" {
		token, err := telemetry.ReadToken(c.HTTPToken)
		if err != nil {
			return "", err
		}
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := drainClient.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusAccepted:
		return drainText(answer.Body), nil
	case http.StatusUnauthorized:
		return "", fmt.Errorf("%s answers %s; --http-token has to be that of the edge", c.host(), answer.Status)
	case http.StatusForbidden:
		return "", fmt.Errorf("%s answers %s; from another machine it takes this only if both have --http-token", c.host(), answer.Status)
	}
	return "", fmt.Errorf("%s answers %s; is it an edge?", c.host(), answer.Status)
}

// drainText is what the answer of an edge means.
func drainText(body io.Reader) string {
	var d telemetry.Drain
	_ = json.NewDecoder(io.LimitReader(body, 4096)).Decode(&d) // one of another release may say nothing
	switch d.Sessions {
	case telemetry.SessionsHandedOver:
		return "it hands its sessions over and ends"
	case telemetry.SessionsClosed:
		return "it closes its sessions and ends; only edges with --session-durability log hand them over"
	}
	return "it ends"
}

// drainClient follows nobody to another address: the token is for the edge alone.
var drainClient = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
