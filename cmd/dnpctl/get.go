package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/subject"
)

type getCommand struct {
	Space string `arg:"" help:"Space to look into."`
	Key   string `arg:"" optional:"" help:"Name of a state; without it all states are printed."`

	NATSFlags `group:"NATS"`
}

// Problems lists what is wrong with c.
func (c *getCommand) Problems() (list config.Problems) {
	note := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	checkSpace(note, c.Space)
	if c.Key != "" && !subject.ValidKey(c.Key) {
		note("KEY: want up to 8 names joined by dots, got %q", c.Key)
	}
	return list
}

// Run prints the answer as one JSON object; of a space, one per page, because
// that is how relays give it.
func (c *getCommand) Run(ctx context.Context, _ *slog.Logger) error {
	for after := ""; ; {
		var body []byte
		if after != "" {
			body, _ = json.Marshal(map[string]string{"after": after}) // a map of strings always can be
		}
		data, err := c.requestHolder(ctx, c.Space, c.subjects().Get(c.Space, c.Key), body)
		if err != nil {
			return err
		}
		if _, err := parseAnswer(data); err != nil {
			return err
		}
		printJSON(data)
		var page struct {
			After string `json:"after"`
		}
		if err := json.Unmarshal(data, &page); err != nil || page.After == "" {
			return err
		}
		after = page.After
	}
}

// printJSON prints an object for people on a terminal, and on one line for
// programs.
func printJSON(data []byte) {
	if isTerminal() {
		var pretty bytes.Buffer
		if json.Indent(&pretty, data, "", "  ") == nil {
			data = pretty.Bytes()
		}
	}
	fmt.Printf("%s\n", data)
}
