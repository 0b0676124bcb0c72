package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/dnprelay/dnprelay/cmd/dnpctl/progress"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/conform"
)

type conformCommand struct {
	Listen  string        `default:"127.0.0.1:3413" env:"-" placeholder:"ADDRESS:PORT" help:"Address on which to wait for the client (default 127.0.0.1:3413)."`
	Timeout time.Duration `default:"5s" env:"-" want:">0" help:"How long to wait for anything that the client has to do."`
	Token   string        `env:"-" placeholder:"TOKEN" help:"Token with which the client has to log in; empty = it does not log in."`
	JSON    bool          `name:"json" env:"-" help:"Print one JSON object per line: the address at which to connect (listening), then each step when it ends (step, rule, result: pass, fail or skip, reason), then passed, failed and skipped."`
	Quick   bool          `env:"-" help:"Leave out the steps that take many seconds: loss, and numbers that begin again."`
}

// Problems lists what is wrong with c.
func (c *conformCommand) Problems() (list config.Problems) {
	_, err := net.ResolveUDPAddr("udp", c.Listen)
	list.AddErr("--listen", err)
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
	line := progress.Start(!c.JSON)
	defer line.End()
	cfg := conform.Config{Patience: c.Timeout, Token: c.Token, Quick: c.Quick}
	cfg.At = func(step string, done, total int) { line.Set(conformStatus(step, done, total)) }
	cfg.Report = func(r conform.Result) { line.Println(lineOf(c.JSON, stepOf(r), r.String())) }
	address := "udp://" + socket.LocalAddr().String()
	fmt.Println(lineOf(c.JSON, map[string]string{"listening": address}, "waiting for a client at "+address+"; clients/CONFORMANCE.md describes what the client has to do"))
	results, err := conform.Run(ctx, socket, cfg)
	line.End()
	if err != nil {
		return err
	}
	var n conformCounts
	for _, r := range results {
		switch stepOf(r).Result {
		case "pass":
			n.Passed++
		case "fail":
			n.Failed++
		case "skip":
			n.Skipped++
		}
	}
	fmt.Println(lineOf(c.JSON, n, fmt.Sprintf("%d passed, %d failed, %d skipped", n.Passed, n.Failed, n.Skipped)))
	if n.Failed > 0 {
		return fmt.Errorf("the client fails %d of %d steps", n.Failed, len(results))
	}
	return nil
}

// conformCounts are the last line of --json.
type conformCounts struct {
	Passed  int `json:"passed"`
	Failed  int `json:"failed"`
	Skipped int `json:"skipped"`
}

// conformStatus says how far a run is.
func conformStatus(step string, done, total int) progress.Status {
	if done == 0 { // the first step lasts until a client is there
		return progress.Status{Text: "waiting for a client"}
	}
	return progress.Status{Done: done, Total: total, Text: fmt.Sprintf("step %d of %d: %s", done+1, total, step)}
}

// A conformStep is a step as a line of --json.
type conformStep struct {
	Step   string `json:"step"`
	Rule   string `json:"rule"`
	Result string `json:"result"`
	Reason string `json:"reason,omitempty"`
}

func stepOf(r conform.Result) conformStep {
	switch {
	case r.Err != nil:
		return conformStep{r.Name, r.Rule, "fail", r.Err.Error()}
	case r.Note != "":
		return conformStep{r.Name, r.Rule, "skip", r.Note}
	}
	return conformStep{r.Name, r.Rule, "pass", ""}
}
