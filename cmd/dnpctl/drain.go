package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dnprelay/dnprelay/cmd/dnpctl/progress"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/proc"
	"github.com/dnprelay/dnprelay/internal/telemetry"
)

type drainCommand struct {
	Wait      bool          `help:"Wait until the process has ended, and print how many sessions are left."`
	Timeout   time.Duration `default:"90s" help:"With --wait: fail after this time. An edge needs up to its --drain-timeout and --drain-linger."`
	JSON      bool          `name:"json" env:"-" help:"Print one JSON object per line: event (draining, sessions, ended), sessions (how many), outcome (handed_over, closed, or nothing if the edge does not say), reason."`
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
	var before map[string]float64 // identifies the process
	var err error
	if c.Wait {
		if before, err = c.look(ctx); err != nil {
			return err
		}
	}
	what, err := c.ask(ctx)
	if err != nil {
		return err
	}
	text := drainText(what)
	if c.JSON {
		text = drainEvent{Event: "draining", Outcome: what.Sessions, Reason: what.Reason}.json()
	}
	fmt.Println(text)
	if !c.Wait {
		return nil
	}
	return c.follow(ctx, before[metricStarted])
}

// A drainEvent is a line of --json.
type drainEvent struct {
	Event    string   `json:"event"`
	Sessions *float64 `json:"sessions,omitempty"`
	Outcome  string   `json:"outcome,omitempty"`
	Reason   string   `json:"reason,omitempty"`
}

func (e drainEvent) json() string {
	line, _ := json.Marshal(e) // never fails: the sessions are a number of the metrics, and those are finite
	return string(line)
}

// ask makes the edge drain and returns what happens.
func (c *drainCommand) ask(ctx context.Context) (what telemetry.Drain, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.host()+"/drain", nil)
	if err != nil {
		return what, err
	}
	if c.HTTPToken != "" {
		token, err := telemetry.ReadToken(c.HTTPToken)
		if err != nil {
			return what, err
		}
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := drainClient.Do(r)
	if err != nil {
		return what, err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusAccepted:
		_ = json.NewDecoder(io.LimitReader(answer.Body, 4096)).Decode(&what) // an edge of another release may not say
		return what, nil
	case http.StatusUnauthorized:
		return what, fmt.Errorf("%s answers %s; --http-token must be that of the edge", c.host(), answer.Status)
	case http.StatusForbidden:
		return what, fmt.Errorf("%s answers %s; from another machine both need --http-token", c.host(), answer.Status)
	}
	return what, fmt.Errorf("%s answers %s; is it an edge?", c.host(), answer.Status)
}

// drainText explains the answer of an edge.
func drainText(d telemetry.Drain) string {
	switch d.Sessions {
	case telemetry.SessionsHandedOver:
		if d.Reason != "" {
			return "the edge ends, and closes the sessions that it cannot hand over: " + harmless(d.Reason)
		}
		return "the edge hands its sessions over and ends"
	case telemetry.SessionsClosed:
		return "the edge closes its sessions and ends; only edges with --session-durability log hand them over"
	}
	return "the edge ends"
}

// drainClient follows no redirect, because the token is for the edge alone, and keeps no
// connection open, because an edge that ends waits for those.
var drainClient = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
}

// Metrics that show the progress of a drain. metricStarted identifies the process: another
// one may have started at the same address.
const (
	metricStarted  = "process_start_time_seconds"
	metricSessions = "dnp_edge_sessions"
)

// drainPause is the pause between two reads of the metrics.
const drainPause = 200 * time.Millisecond

// follow waits until the process that started at a time has ended, and prints the number of
// sessions when it changes.
func (c *drainCommand) follow(ctx context.Context, started float64) error {
	over := time.After(c.Timeout)
	tick := time.NewTicker(drainPause)
	defer tick.Stop()
	var left atomic.Int64
	line := progress.Start(!c.JSON, func() progress.Status {
		return progress.Status{Text: fmt.Sprintf("of at most %v until the edge has ended, sessions: %d", c.Timeout, left.Load())}
	})
	defer line.End()
	tell := func(e drainEvent, text string) {
		if c.JSON {
			text = e.json()
		}
		line.Println(text)
	}
	for last := -1.0; ; {
		now, err := c.look(ctx)
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH) || err == nil && now[metricStarted] != started {
			tell(drainEvent{Event: "ended"}, "the edge has ended")
			return nil
		}
		sessions := now[metricSessions]
		if err == nil && sessions != last {
			tell(drainEvent{Event: "sessions", Sessions: &sessions}, fmt.Sprintf("sessions: %.0f", sessions))
			left.Store(int64(sessions))
			last = sessions
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-over:
			if err != nil {
				return fmt.Errorf("the edge does not answer, and was not seen to end within %v: %w", c.Timeout, err)
			}
			return fmt.Errorf("the edge has not ended after %v, sessions: %.0f", c.Timeout, sessions)
		case <-tick.C:
		}
	}
}

// look reads the metrics of the edge.
func (c *drainCommand) look(ctx context.Context) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return proc.Metrics(ctx, drainClient, c.host())
}
