package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/telemetry"
)

type drainCommand struct {
	Wait      bool          `help:"Wait until the process has ended, and print how many sessions are left."`
	Timeout   time.Duration `default:"90s" help:"With --wait: fail after this time. An edge needs up to its --drain-timeout and --drain-linger."`
	Node      string        `arg:"" help:"Address of the edge's --http: ADDRESS:PORT or http://ADDRESS:PORT."`
	HTTPToken string        `name:"http-token" aliases:"token" env:"DNP_HTTP_TOKEN" placeholder:"FILE" help:"File with the token of the edge's own --http-token; empty = none, for an edge on this machine without --http-token."`
}

// Problems lists what is wrong with c.
func (c *drainCommand) Problems() (list config.Problems) {
	if _, _, err := net.SplitHostPort(c.host()); err != nil {
		list.Add("NODE", "want ADDRESS:PORT, got %q", c.Node)
	}
	if c.HTTPToken != "" {
		if _, err := telemetry.ReadToken(c.HTTPToken); err != nil {
			list.Add("--http-token", "%v", err)
		}
	}
	if c.Wait && c.Timeout <= 0 {
		list.Add("--timeout", "want more than 0, got %v", c.Timeout)
	}
	return list
}

func (c *drainCommand) host() string {
	return strings.TrimSuffix(strings.TrimPrefix(c.Node, "http://"), "/")
}

// Run makes the edge drain, and waits for its end with --wait.
func (c *drainCommand) Run(ctx context.Context, _ *slog.Logger) error {
	var before drainLook // identifies the process
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

// ask makes the edge drain and returns what happens, for people.
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
		return "", fmt.Errorf("%s answers %s; --http-token must be that of the edge", c.host(), answer.Status)
	case http.StatusForbidden:
		return "", fmt.Errorf("%s answers %s; from another machine both need --http-token", c.host(), answer.Status)
	}
	return "", fmt.Errorf("%s answers %s; is it an edge?", c.host(), answer.Status)
}

// drainText explains the answer of an edge.
func drainText(body io.Reader) string {
	var d telemetry.Drain
	_ = json.NewDecoder(io.LimitReader(body, 4096)).Decode(&d) // an edge of another release may not say
	switch d.Sessions {
	case telemetry.SessionsHandedOver:
		return "the edge hands its sessions over and ends"
	case telemetry.SessionsClosed:
		return "the edge closes its sessions and ends; only edges with --session-durability log hand them over"
	}
	return "the edge ends"
}

// drainClient follows no redirect: the token is for the edge alone.
var drainClient = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// Metrics that show the progress of a drain. metricStarted identifies the process: another
// one may have started at the same address.
const (
	metricStarted  = "process_start_time_seconds"
	metricSessions = "dnp_edge_sessions"
)

// drainPause is the pause between two reads of the metrics.
const drainPause = 200 * time.Millisecond

// metricsMax bounds the answer; that of an edge has about 50 KiB.
const metricsMax = 4 << 20

// A drainLook has the metrics of an edge. Those that the edge does not show are empty.
type drainLook struct {
	started, sessions string
	err               error // the edge did not answer
}

// gone reports whether the process of an earlier look has ended.
func (l drainLook) gone(before drainLook) bool {
	return errors.Is(l.err, syscall.ECONNREFUSED) || errors.Is(l.err, syscall.EHOSTUNREACH) ||
		l.err == nil && l.started != before.started
}

// follow waits until the process has ended, and prints the number of sessions when it
// changes.
func (c *drainCommand) follow(ctx context.Context, before drainLook) error {
	over := time.After(c.Timeout)
	tick := time.NewTicker(drainPause)
	defer tick.Stop()
	for last := ""; ; {
		l := c.look(ctx)
		if l.gone(before) {
			fmt.Println("the edge has ended")
			return nil
		}
		if l.err == nil && l.sessions != last {
			fmt.Println("sessions:", l.sessions)
			last = l.sessions
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-over:
			if l.err != nil {
				return fmt.Errorf("the edge does not answer, and was not seen to end within %v: %w", c.Timeout, l.err)
			}
			return fmt.Errorf("the edge has not ended after %v, sessions: %s", c.Timeout, l.sessions)
		case <-tick.C:
		}
	}
}

// look reads the metrics of the edge.
func (c *drainCommand) look(ctx context.Context) (l drainLook) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.host()+"/metrics", nil)
	if err != nil {
		return drainLook{err: err}
	}
	r.Close = true // an edge that ends waits for open connections
	answer, err := drainClient.Do(r)
	if err != nil {
		return drainLook{err: err}
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return drainLook{err: fmt.Errorf("%s/metrics answers %s", c.host(), answer.Status)}
	}
	lines := bufio.NewScanner(io.LimitReader(answer.Body, metricsMax))
	for lines.Scan() {
		switch name, value, _ := strings.Cut(lines.Text(), " "); name {
		case metricStarted:
			l.started = value
		case metricSessions:
			l.sessions = value
		}
	}
	l.err = lines.Err()
	return l
}
