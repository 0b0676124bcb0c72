package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cmd/dnpctl/completion"
)

// completions are lines, and what a shell offers at the end of each.
var completions = []struct{ why, line, want string }{
	{"commands by their first letters", "dnpctl wh", "who why"},
	{"the only command", "dnpctl conso", "console"},
	{"a command of an operator", "dnpctl ki", "kick"},
	{"subcommands", "dnpctl token ", "issue keygen"},
	{"a subcommand by its first letter", "dnpctl token k", "keygen"},
	{"a flag of a command", "dnpctl why --js", "--json"},
	{"a flag of a subcommand", "dnpctl token issue --gr", "--groups"},
	{"all flags of a subcommand", "dnpctl token keygen --", "--help --json --out --version"},
	{"a flag behind an argument", "dnpctl clients demo --js", "--json"},
	{"a flag of the program", "dnpctl --ver", "--version"},
	{"no flag of another command", "dnpctl who --once", ""},
	{"no command behind a command", "dnpctl spaces wh", ""},
	{"no such command", "dnpctl xyz", ""},
}

// shellPatience is how long a shell has for all lines.
const shellPatience = 2 * time.Minute

// TestCompletion has the shells themselves complete lines with the scripts that dnpctl completion prints.
func TestCompletion(t *testing.T) {
	commands := model(t)
	for shell, args := range map[string][]string{"bash": {"--norc"}, "zsh": {"-f"}, "fish": {"--no-config"}} {
		t.Run(shell, func(t *testing.T) {
			program, err := exec.LookPath(shell)
			if err != nil {
				t.Skipf("%s is not installed", shell)
			}
			dir := t.TempDir()
			script, err := os.Create(filepath.Join(dir, "complete"))
			if err != nil {
				t.Fatal(err)
			}
			if err := completion.Write(script, shell, commands); err != nil {
				t.Fatal(err)
			}
			if err := script.Close(); err != nil {
				t.Fatal(err)
			}
			driver, err := filepath.Abs(filepath.Join("testdata/completion", shell))
			if err != nil {
				t.Fatal(err)
			}
			args := append(args, driver)
			if shell == "zsh" {
				args = append(args, driver)
			}
			for _, c := range completions {
				args = append(args, c.line)
			}
			ctx, cancel := context.WithTimeout(t.Context(), shellPatience)
			defer cancel()
			cmd := exec.CommandContext(ctx, program, args...)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CACHE_HOME="+dir, "TERM=xterm")
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: %s%s", err, out, stderr.String())
			}
			offers := strings.Split(string(out), ".\n")
			if len(offers) != len(completions)+1 {
				t.Fatalf("%s answers %d lines, want %d:\n%s%s", shell, len(offers)-1, len(completions), out, stderr.String())
			}
			for i, c := range completions {
				got := strings.Fields(offers[i])
				slices.Sort(got)
				if strings.Join(slices.Compact(got), " ") != c.want {
					t.Errorf("%s: %q offers %q, want %q", c.why, c.line, got, c.want)
				}
			}
		})
	}
}
