package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/subject"
)

type publishCommand struct {
	Space  string   `arg:"" help:"Space of the state."`
	Key    string   `arg:"" optional:"" help:"Name of the state in the space."`
	Values []string `arg:"" optional:"" help:"Values. NAME:TYPE=VALUE makes the state with these values, in this order; NAME=VALUE changes values of a state that exists. VALUE is a number, text, 1,2,3 for vectors, or null. NAME:TYPE~0.1= sends only changes beyond 0.1, NAME:TYPE?= may be null. Data is base64, or @FILE."`

	Message  *string  `env:"-" placeholder:"TEXT" help:"What clients are told about the state when it is linked (default: the key)."`
	Farewell *string  `env:"-" placeholder:"TEXT" help:"Message to each client whose link to the state ends."`
	Access   string   `env:"-" placeholder:"WHO" help:"Who may write: read-only, read-write, or client names with commas (default read-only)."`
	Audience []string `env:"-" placeholder:"WHO" help:"Who is offered the state: all, nobody, group=NAME, client=NAME; may be repeated (default all)."`
	Remove   bool     `env:"-" help:"Remove the state."`
	File     string   `env:"-" short:"f" placeholder:"FILE" help:"Publish the JSON in this file as it is; - is standard input."`
	JSON     bool     `name:"json" env:"-" help:"Print the answer as JSON."`

	NATSFlags `group:"NATS"`

	stdin io.Reader // nil = os.Stdin
}

// Problems lists what is wrong with c.
func (c *publishCommand) Problems() (list config.Problems) {
	note := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	checkSpace(note, c.Space)
	if c.Key != "" && !subject.ValidKey(c.Key) {
		note("KEY: want up to 8 names joined by dots, got %q", c.Key)
	}
	switch {
	case c.File != "" && (len(c.Values) > 0 || c.Remove || c.describes()):
		note("--file: says everything, so leave out values and other flags")
	case c.File != "":
	case c.Key == "":
		note("KEY: is missing, as tower in: dnpctl publish %s tower hp:float32=93.5", c.Space)
	case c.Remove && (len(c.Values) > 0 || c.describes()):
		note("--remove: removes the state, so leave out values and other flags")
	case !c.Remove:
		if _, err := c.op(); err != nil {
			list = append(list, err...)
		}
	}
	return list
}

func checkSpace(note func(string, ...any), space string) {
	if !subject.ValidToken(space) {
		note("SPACE: want 1 to 64 letters, digits, _ or -, got %q", space)
	}
}

// describes reports whether a flag says what the state is.
func (c *publishCommand) describes() bool {
	return c.Message != nil || c.Farewell != nil || c.Access != "" || len(c.Audience) > 0
}

// Run publishes and prints the position of the change.
func (c *publishCommand) Run(ctx context.Context, _ *slog.Logger) error {
	body, err := c.body()
	if err != nil {
		return err
	}
	data, err := c.requestHolder(ctx, c.Space, c.subjects().Publish(c.Space, c.Key), body)
	if err != nil {
		return err
	}
	a, err := parseAnswer(data)
	if c.JSON {
		fmt.Printf("%s\n", data)
	}
	if err != nil || c.JSON {
		return err
	}
	late := ""
	if a.Durable != nil && !*a.Durable {
		late = ", not yet durable"
	}
	fmt.Printf("ok, position %d:%d%s\n", a.Epoch, a.Seq, late)
	return nil
}

func (c *publishCommand) body() ([]byte, error) {
	switch {
	case c.File == "-":
		in := c.stdin
		if in == nil {
			in = os.Stdin
		}
		return io.ReadAll(in)
	case c.File != "":
		return os.ReadFile(c.File)
	case c.Remove:
		return json.Marshal(map[string]any{"op": "remove"})
	}
	op, problems := c.op()
	if problems != nil {
		return nil, &config.UsageError{Problem: problems[0]}
	}
	return json.Marshal(op)
}
