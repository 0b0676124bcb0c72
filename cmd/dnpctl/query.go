package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/replication/payload"
	"github.com/nats-io/nats.go"
)

type getCommand struct {
	SpaceFlags `set:"space=Space of the states."`
	Key        string `arg:"" optional:"" help:"Key of a state; default: all states."`
	JSON       bool   `name:"json" env:"-" help:"Print each answer on one line, also on a terminal."`
}

// Problems lists what is wrong with c.
func (c *getCommand) Problems() (list config.Problems) {
	checkKey(&list, c.Key)
	return list
}

// Run prints the answer as one JSON object. Relays answer for a whole space in pages, and Run
// prints one object for each.
func (c *getCommand) Run(ctx context.Context, _ *slog.Logger) error {
	for after := ""; ; {
		var body []byte
		if after != "" {
			body, _ = json.Marshal(map[string]string{"after": after}) // never fails for a map of strings
		}
		data, err := c.askHolder(ctx, c.subjects().Get(c.Space, c.Key), body)
		if err != nil {
			return err
		}
		if _, err := payload.ParseAnswer(data); err != nil {
			return err
		}
		if c.JSON {
			fmt.Printf("%s\n", data)
		} else {
			printJSON(data)
		}
		var page struct {
			After string `json:"after"`
		}
		if err := json.Unmarshal(data, &page); err != nil || page.After == "" {
			return err
		}
		after = page.After
	}
}

// printJSON prints an object indented on a terminal, and on one line otherwise.
func printJSON(data []byte) {
	if isTerminal() {
		var pretty bytes.Buffer
		if json.Indent(&pretty, data, "", "  ") == nil {
			data = pretty.Bytes()
		}
	}
	fmt.Printf("%s\n", data)
}

type whoCommand struct {
	SpaceFlags `set:"space=Space of the clients."`
	JSONFlags
	Wait time.Duration `default:"300ms" help:"How long to wait for further edges after each answer."`
}

// Run prints the answer of each edge, one JSON object per line. It does not know how many
// edges there are, so it waits for more after each answer.
func (c *whoCommand) Run(ctx context.Context, _ *slog.Logger) error {
	nc, err := c.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	inbox := nc.NewInbox()
	answers, err := nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	if err := nc.PublishRequest(c.subjects().Who(c.Space), inbox, nil); err != nil {
		return err
	}
	for edges := 0; ; edges++ {
		wait, cancel := context.WithTimeout(ctx, c.Wait)
		more, err := printNext(wait, answers)
		cancel()
		switch {
		case more:
		case err == nil && edges == 0:
			return fmt.Errorf("no edge answers for space %s", c.Space)
		default:
			return err
		}
	}
}

// printNext prints the next message. more is false if there is none before ctx ends.
func printNext(ctx context.Context, from *nats.Subscription) (more bool, err error) {
	m, err := from.NextMsgWithContext(ctx)
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, nats.ErrNoResponders):
		return false, nil
	case err != nil:
		return false, err
	}
	fmt.Printf("%s\n", m.Data)
	return true, nil
}

// JSONFlags are of commands whose output is JSON in any case, so that scripts need not know which are.
type JSONFlags struct {
	JSON bool `name:"json" env:"-" help:"Print one JSON object per line, as without this flag."`
}

type eventsCommand struct {
	SpaceFlags `set:"space=Space to listen to."`
	JSONFlags
	LimitFlags
}

// LimitFlags end a command that otherwise runs until it is interrupted.
type LimitFlags struct {
	Count int           `placeholder:"N" env:"-" help:"End after this many lines; 0 = never."`
	For   time.Duration `placeholder:"TIME" env:"-" help:"End after this time; 0 = never."`
}

// Problems lists what is wrong with f.
func (f *LimitFlags) Problems() (list config.Problems) {
	if f.Count < 0 {
		list.Add("--count", "want 0 or more, got %d", f.Count)
	}
	if f.For < 0 {
		list.Add("--for", "want 0 or more, got %v", f.For)
	}
	return list
}

// full reports whether n lines are as many as --count allows.
func (f *LimitFlags) full(n int) bool { return f.Count > 0 && n >= f.Count }

// limit returns ctx, which ends after --for.
func (f *LimitFlags) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if f.For == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, f.For)
}

// Run prints events until it is interrupted or a limit is reached.
func (c *eventsCommand) Run(ctx context.Context, _ *slog.Logger) error {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	nc, err := c.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	events, err := nc.SubscribeSync(c.subjects().Event(c.Space))
	if err != nil {
		return err
	}
	for n := 0; !c.full(n); n++ {
		if more, err := printNext(ctx, events); err != nil {
			return fmt.Errorf("events of space %s: %w", c.Space, err)
		} else if !more {
			return nil
		}
	}
	return nil
}
