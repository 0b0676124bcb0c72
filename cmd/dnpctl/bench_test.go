package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/dnprelaytest"
)

// TestBench measures a relay and an edge: all updates arrive, with latencies and bytes, and nothing of the bench stays. Clients that join
// another space receive nothing, which is an error. An interrupt ends a bench early, and well.
func TestBench(t *testing.T) {
	srv := dnprelaytest.Start(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bench := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), program, append([]string{"bench", "--nats-url", srv.NATS, "--clients", "3", "--states", "4", "--json"}, args...)...)
		cmd.Args[0] = "dnpctl" // by which the test knows what it is
		return cmd
	}
	read := func(out []byte) (f benchFigures) {
		t.Helper()
		if err := json.Unmarshal(out, &f); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		return f
	}
	run := func(cmd *exec.Cmd) (f benchFigures, text string) {
		t.Helper()
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		return read(out), fmt.Sprint(err, errs.String())
	}

	f, text := run(bench(srv.Space, srv.Edge, "--for", "2s", "--rate", "10"))
	if f.Clients != 3 || f.Links != 12 || f.Published != 4*20 || f.Expected != 3*4*20 {
		t.Errorf("the figures are of another load: %+v: %s", f, text)
	}
	if f.Delivered == 0 || f.Delivered+f.Lost != f.Expected || f.Behind > 0 || f.Closed > 0 {
		t.Errorf("want that most updates arrive, and all last ones: %+v: %s", f, text)
	}
	if f.Latency.P50 <= 0 || f.Latency.P50 > f.Latency.P99 || f.Latency.P99 > f.Latency.Max || f.BytesPerClient < 50 {
		t.Errorf("want latencies in order, and more bytes than the values have: %+v", f)
	}

	f, text = run(bench("elsewhere", srv.Edge, "--for", "1s", "--timeout", "1s"))
	if f.Delivered > 0 || len(f.Warnings) == 0 || !strings.Contains(text, "exit status 1") || !strings.Contains(text, "no client received a change") {
		t.Errorf("clients of another space: %+v: %s", f, text)
	}

	cmd := bench(srv.Space, srv.Edge, "--for", "1h")
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	player, err := client.Dial(t.Context(), srv.Edge, client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer player.Close()
	await := func(why string, so func(states []*client.State) bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := player.Until(ctx, func() bool { return so(player.States()) }); err != nil {
			t.Fatalf("%s: %v", why, err)
		}
	}
	await("the bench changes its states", func(states []*client.State) bool {
		return len(states) == 4 && !slices.ContainsFunc(states, func(s *client.State) bool { return s.At(0).Uint() == 0 })
	})
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("a bench that is interrupted: %v", err)
	}
	if f := read([]byte(out.String())); f.Delivered == 0 || f.Seconds > 600 {
		t.Errorf("want the figures until the interrupt: %+v", f)
	}
	await("a bench that has ended leaves no states", func(states []*client.State) bool { return len(states) == 0 })
}

// TestBenchRefuses: more than one machine can do, and tokens of which clients would end each other's sessions.
func TestBenchRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("one\ntwo\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ok := benchCommand{Clients: 2, States: 20, Rate: 20, Tokens: file}
	if list := ok.Problems(); len(list) > 0 {
		t.Errorf("%v, want no problem", list)
	}
	for want, change := range map[string]func(c *benchCommand){
		"--clients: want at most 500000 with all states, got 1000 × 1000": func(c *benchCommand) { c.Clients, c.States, c.Tokens = 1000, 1000, "" },
		"--rate: want at most 1000000 updates a second":                   func(c *benchCommand) { c.Clients, c.States, c.Rate, c.Tokens = 1000, 100, 60, "" },
		"--tokens: conflicts with --token":                                func(c *benchCommand) { c.Token = "one" },
		"--clients: want 1 with --token, got 2":                           func(c *benchCommand) { c.Token, c.Tokens = "one", "" },
		"--tokens: want a token for each of 3 clients, got 2":             func(c *benchCommand) { c.Clients = 3 },
	} {
		c := ok
		change(&c)
		if list := c.Problems(); len(list) != 1 || !strings.Contains(fmt.Sprint(list), want) {
			t.Errorf("%v, want %q", list, want)
		}
	}
}
