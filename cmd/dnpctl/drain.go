package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dnprelay/dnprelay/cmd/dnpctl/progress"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/inspect"
	"github.com/dnprelay/dnprelay/internal/inspect/ask"
	"github.com/dnprelay/dnprelay/internal/proc"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/internal/top"
	"github.com/dnprelay/dnprelay/subject"
)

type drainCommand struct {
	Wait      bool          `help:"Wait until the process has ended, and print how many sessions are left."`
	Timeout   time.Duration `default:"90s" help:"With --wait: fail after this time. An edge needs up to its --drain-timeout and --drain-linger."`
	JSON      bool          `name:"json" env:"-" help:"Print one JSON object per line: event (draining, sessions, ended), sessions (how many), outcome (handed_over, closed, or nothing if the edge does not say), reason."`
	Node      string        `arg:"" help:"Name of the edge, as dnpctl nodes lists it, to ask over NATS; or the address of its --http, ADDRESS:PORT or http://ADDRESS:PORT, to ask there."`
	HTTPToken string        `name:"http-token" env:"DNP_HTTP_TOKEN" placeholder:"FILE" help:"With an address: file with the token of the edge's own --http-token; empty = none, for an edge on this machine without --http-token."`

	NATSLogin `group:"NATS"`
}

// Problems lists what is wrong with c.
func (c *drainCommand) Problems() (list config.Problems) {
	_, _, err := net.SplitHostPort(c.host())
	list.AddIf(err != nil && !c.byName(), "NODE", "want the name of an edge, or ADDRESS:PORT, got %q", c.Node)
	if c.HTTPToken != "" {
		_, err := telemetry.ReadToken(c.HTTPToken)
		list.AddErr("--http-token", err)
	}
	list.AddIf(c.Wait && c.Timeout <= 0, "--timeout", "want more than 0, got %v", c.Timeout)
	return list
}

// byName reports whether the edge is named. An address has a colon, which no name has.
func (c *drainCommand) byName() bool { return subject.ValidToken(c.Node) }

func (c *drainCommand) host() string {
	return strings.TrimSuffix(strings.TrimPrefix(c.Node, "http://"), "/")
}

// A drainTarget is an edge that drains.
type drainTarget interface {
	// drain makes the edge drain, and returns what happens.
	drain(ctx context.Context) (telemetry.Drain, error)

	// look returns how many sessions the edge has, or gone if the process that the first look found has ended.
	look(ctx context.Context) (sessions int, gone bool, err error)
}

// Run makes the edge drain, and waits for its end with --wait.
func (c *drainCommand) Run(ctx context.Context, _ *slog.Logger) error {
	var edge drainTarget = &edgeAtAddress{command: c}
	if c.byName() {
		nc, err := c.connect(drainConnect)
		if err != nil {
			return err
		}
		defer nc.Close()
		edge = &namedEdge{name: c.Node, asker: &ask.Asker{Conn: nc, Subjects: c.subjects()}}
	}
	if c.Wait {
		if _, _, err := edge.look(ctx); err != nil {
			return err
		}
	}
	what, err := edge.drain(ctx)
	if err != nil {
		return err
	}
	fmt.Println(lineOf(c.JSON, drainEvent{Event: "draining", Outcome: what.Sessions, Reason: what.Reason}, drainText(what)))
	if !c.Wait {
		return nil
	}
	return c.follow(ctx, edge)
}

// A drainEvent is a line of --json.
type drainEvent struct {
	Event    string `json:"event"`
	Sessions *int   `json:"sessions,omitempty"`
	Outcome  string `json:"outcome,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// An edgeAtAddress is asked over HTTP.
type edgeAtAddress struct {
	command *drainCommand
	started float64 // when the process of the first look started; 0 before
}

func (e *edgeAtAddress) drain(ctx context.Context) (what telemetry.Drain, err error) {
	c := e.command
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
	if answer.StatusCode == http.StatusAccepted {
		_ = json.NewDecoder(io.LimitReader(answer.Body, 4096)).Decode(&what) // an edge of another release may not say
		return what, nil
	}
	hints := map[int]string{
		http.StatusUnauthorized: "--http-token must be that of the edge", http.StatusForbidden: "from another machine both need --http-token",
	}
	return what, fmt.Errorf("%s answers %s; %s", c.host(), answer.Status, cmp.Or(hints[answer.StatusCode], "is it an edge?"))
}

// drainText explains the answer of an edge.
func drainText(d telemetry.Drain) string {
	switch d.Sessions {
	case telemetry.SessionsHandedOver:
		if d.Reason != "" {
			return "the edge ends, and closes the sessions that it cannot hand over: " + top.Printable(d.Reason)
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

// drainPause is the pause between two looks at the edge.
const drainPause = 200 * time.Millisecond

// drainConnect is how long NATS may take to answer.
const drainConnect = 5 * time.Second

// look reads the metrics of the edge.
func (e *edgeAtAddress) look(ctx context.Context) (sessions int, gone bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	now, err := proc.Metrics(ctx, drainClient, e.command.host())
	switch {
	case e.started != 0 && (errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH)):
		return 0, true, nil
	case err != nil:
		return 0, false, err
	case e.started != 0 && now[metricStarted] != e.started:
		return 0, true, nil
	}
	e.started = now[metricStarted]
	return int(now[metricSessions]), false, nil
}

// A namedEdge is asked over NATS.
type namedEdge struct {
	name   string
	asker  *ask.Asker
	uptime inspect.Millis // at the last look; that of another process is less
	last   int            // sessions at the last look
	silent int            // looks at which it did not answer and no other node knew it
}

// silentMax is how many such looks end an edge: a busy one may miss a question. It is arbitrary.
const silentMax = 3

func (e *namedEdge) drain(ctx context.Context) (telemetry.Drain, error) {
	if nodes, missing, err := e.asker.Nodes(ctx); err == nil { // if that may not be asked, the answer to Drain says why
		if err := e.known(nodes, missing); err != nil {
			return telemetry.Drain{}, err
		}
	}
	d, err := e.asker.Drain(ctx, e.name)
	return telemetry.Drain{Sessions: d.Sessions, Reason: d.Reason}, err
}

// known returns an error if there are nodes and none of them is the edge.
func (e *namedEdge) known(nodes []inspect.NodesAnswer, missing []inspect.Member) error {
	var edges []string
	for _, n := range nodes {
		switch {
		case n.Head.Node == e.name && n.Role == "edge":
			return nil
		case n.Head.Node == e.name:
			return fmt.Errorf("%s is a %s, and only edges drain by this command; SIGTERM makes a %s hand over and end", e.name, n.Role, n.Role)
		case n.Role == "edge":
			edges = append(edges, top.Printable(n.Head.Node))
		}
	}
	switch {
	case slices.ContainsFunc(missing, func(m inspect.Member) bool { return m.Node == e.name }):
		return nil
	case len(edges) == 0:
		return fmt.Errorf("no edge is named %s; no edge answers at all", e.name)
	}
	return fmt.Errorf("no edge is named %s; there are: %s", e.name, strings.Join(edges, ", "))
}

// look asks the nodes.
func (e *namedEdge) look(ctx context.Context) (sessions int, gone bool, err error) {
	nodes, missing, err := e.asker.Nodes(ctx)
	switch {
	case err != nil && !errors.Is(err, ask.ErrNone):
		return 0, false, err
	case !e.asker.Conn.IsConnected():
		return 0, false, errors.New("the connection to NATS is lost")
	case e.uptime == 0:
		if err := cmp.Or(err, e.known(nodes, missing)); err != nil {
			return 0, false, err
		}
	}
	for _, n := range nodes {
		if n.Head.Node == e.name && n.NodeFacts != nil {
			gone = n.Uptime < e.uptime
			e.uptime, e.last, e.silent = max(1, n.Uptime), n.Clients, 0
			return e.last, gone, nil
		}
	}
	if !slices.ContainsFunc(missing, func(m inspect.Member) bool { return m.Node == e.name }) {
		e.silent++
	}
	return e.last, e.silent >= silentMax, nil
}

// follow waits until the edge has ended, and prints the number of sessions when it changes.
func (c *drainCommand) follow(ctx context.Context, edge drainTarget) error {
	over := time.After(c.Timeout)
	tick := time.NewTicker(drainPause)
	defer tick.Stop()
	line := progress.Start(!c.JSON)
	defer line.End()
	status := func(sessions int) {
		line.Set(progress.Status{Text: fmt.Sprintf("of at most %v until the edge has ended, sessions: %d", c.Timeout, sessions)})
	}
	status(0)
	tell := func(e drainEvent, text string) { line.Println(lineOf(c.JSON, e, text)) }
	for last := -1; ; {
		sessions, gone, err := edge.look(ctx)
		if gone {
			tell(drainEvent{Event: "ended"}, "the edge has ended")
			return nil
		}
		if err == nil && sessions != last {
			tell(drainEvent{Event: "sessions", Sessions: &sessions}, fmt.Sprintf("sessions: %d", sessions))
			status(sessions)
			last = sessions
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-over:
			if err != nil {
				return fmt.Errorf("the edge does not answer, and was not seen to end within %v: %w", c.Timeout, err)
			}
			return fmt.Errorf("the edge has not ended after %v, sessions: %d", c.Timeout, sessions)
		case <-tick.C:
		}
	}
}
