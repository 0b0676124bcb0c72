package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/dnprelay/dnprelay/cmd/dnpctl/progress"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/conform"
	"github.com/dnprelay/dnprelay/internal/inspect/ask"
	"github.com/nats-io/nats.go"
	"github.com/rogpeppe/go-internal/testscript"
)

// jsonLines is the command `jsonlines` of scripts: it wants that standard output is one JSON object per line, and at least one.
func jsonLines(ts *testscript.TestScript, _ bool, _ []string) {
	lines := strings.SplitSeq(strings.TrimSpace(ts.ReadFile("stdout")), "\n")
	for line := range lines {
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil || len(object) == 0 {
			ts.Fatalf("line %q is no JSON object: %v", line, err)
		}
	}
}

// A modelCommand keeps the model of the commands.
type modelCommand struct{ model *kong.Application }

func (c *modelCommand) SetModel(m *kong.Application)            { c.model = m }
func (c *modelCommand) Run(context.Context, *slog.Logger) error { return nil }

// model returns the model of the commands of dnpctl.
func model(t *testing.T) *kong.Application {
	t.Helper()
	all := struct {
		Commands commands     `embed:""`
		Model    modelCommand `cmd:"" hidden:""`
	}{}
	if code := (config.Program{Name: "dnpctl", Commands: &all}).Main([]string{"model"}); code != config.ExitOK {
		t.Fatalf("exit code %d", code)
	}
	return all.Model.model
}

// withoutJSON are the commands that print no data, and say why.
var withoutJSON = map[string]string{
	"console":    "it serves a page, and prints its address",
	"completion": "it prints a program for a shell",
}

// jsonElsewhere are the commands whose JSON a test in Go reads, because they need more than a script has.
var jsonElsewhere = map[string]string{
	"backup":  "TestBackup",
	"restore": "TestBackup",
	"conform": "TestConformJSON",
	"bench":   "TestBench",
	"command": "TestCommandJSON",
	"tap":     "TestTapJSON",
}

// TestEveryCommandHasJSON goes through all commands: each has --json, and a script or test that reads what it prints then. So a command that
// is added cannot go without.
func TestEveryCommandHasJSON(t *testing.T) {
	files, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	scripts := ""
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		scripts += string(text)
	}
	unused := make(map[string]bool)
	for name := range withoutJSON {
		unused[name] = true
	}
	for _, leaf := range model(t).Leaves(true) {
		name := strings.TrimPrefix(leaf.Path(), "dnpctl ")
		_, exempt := withoutJSON[name]
		delete(unused, name)
		has := false
		for _, group := range leaf.AllFlags(true) {
			for _, flag := range group {
				has = has || flag.Name == "json"
			}
		}
		if has == exempt {
			t.Errorf("dnpctl %s has --json: %t, and is exempt from it: %t", name, has, exempt)
		}
		read := regexp.MustCompile(`(?m)^!? ?(exec )?dnpctl ` + regexp.QuoteMeta(name) + ` .*--json.*\n(stdout .*\n)*jsonlines$`)
		if _, elsewhere := jsonElsewhere[name]; has && !elsewhere && !read.MatchString(scripts) {
			t.Errorf("no script reads what dnpctl %s prints with --json: it has no line jsonlines behind it", name)
		}
	}
	for name := range unused {
		t.Errorf("there is no command %s, which is exempt from --json", name)
	}
}

// TestConformJSON: a step passes, fails or is skipped.
func TestConformJSON(t *testing.T) {
	for _, c := range []struct {
		step conform.Result
		want string
	}{
		{conform.Result{Name: "hello", Rule: "3.1"}, `{"step":"hello","rule":"3.1","result":"pass"}`},
		{conform.Result{Name: "hello", Rule: "3.1", Err: errors.New("no \"ack\"")}, `{"step":"hello","rule":"3.1","result":"fail","reason":"no \"ack\""}`},
		{conform.Result{Name: "hello", Rule: "3.1", Note: "not tried"}, `{"step":"hello","rule":"3.1","result":"skip","reason":"not tried"}`},
	} {
		if got := jsonText(stepOf(c.step)); got != c.want {
			t.Errorf("%v is %s, want %s", c.step, got, c.want)
		}
	}
}

// TestCommandJSON: an answer that is no text is in base64.
func TestCommandJSON(t *testing.T) {
	c := commandCommand{Key: "lamp", Name: "switch"}
	for answer, want := range map[string]string{
		"done \"x\"": `{"key":"lamp","name":"switch","answer":"done \"x\""}`,
		"":           `{"key":"lamp","name":"switch","answer":""}`,
		"\xff\x00":   `{"key":"lamp","name":"switch","answer_base64":"/wA="}`,
	} {
		got, err := json.Marshal(c.object([]byte(answer)))
		if err != nil || string(got) != want {
			t.Errorf("answer %q is %s, %v; want %s", answer, got, err, want)
		}
	}
}

// TestConformStatus: the line of the progress waits for a client, and then counts steps.
func TestConformStatus(t *testing.T) {
	if s := conformStatus("request", 0, 40); s != (progress.Status{Text: "waiting for a client"}) {
		t.Errorf("before the first step ends: %+v", s)
	}
	if s := conformStatus("login", 3, 40); s != (progress.Status{Done: 3, Total: 40, Text: "step 4 of 40: login"}) {
		t.Errorf("in the fourth step: %+v", s)
	}
}

// TestPages: who asks for a list is told of each page, for the line of the progress.
func TestPages(t *testing.T) {
	nc, err := nats.Connect(startRelay(t))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	var pages []int
	a := ask.Asker{Conn: nc, Page: func(entries int) { pages = append(pages, entries) }}
	if all, err := a.Spaces(t.Context()); err != nil || len(all) != 2 || !slices.Equal(pages, []int{1, 1}) {
		t.Errorf("%d spaces, %v, in pages of %d; want two pages of one", len(all), err, pages)
	}
}

// TestExamples requires that the examples of --help name the command, flags that it has, and as many arguments as it wants. Each
// command that wants arguments has an example.
func TestExamples(t *testing.T) {
	for _, node := range model(t).Leaves(true) {
		path := strings.TrimPrefix(node.FullPath(), "dnpctl ")
		want, flags := 0, map[string]bool{}
		for _, p := range node.Positional {
			if p.Required {
				want++
			}
		}
		for _, group := range node.AllFlags(true) {
			for _, flag := range group {
				flags["--"+flag.Name] = true
			}
		}
		examples := regexp.MustCompile(`(?m)^  .*dnpctl (.*?)\)?$`).FindAllStringSubmatch(node.Detail, -1)
		if len(examples) == 0 && want > 0 {
			t.Errorf("%s has no example", path)
		}
		for _, example := range examples {
			arguments, ok := strings.CutPrefix(example[1]+" ", path+" ")
			before, _, _ := strings.Cut(arguments, "--")
			if !ok || len(strings.Fields(before)) < want {
				t.Errorf("%q is no example of %s, which wants %d arguments", example[1], path, want)
			}
			for _, flag := range regexp.MustCompile(`--[a-z-]+`).FindAllString(arguments, -1) {
				if !flags[flag] {
					t.Errorf("%s has no %s, but an example has it", path, flag)
				}
			}
		}
	}
}
