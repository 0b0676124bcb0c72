package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/dnp/command"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
)

type setCommand struct {
	Address string        `arg:"" placeholder:"ADDRESS" help:"HOST:PORT or URL (udp://, ws://, wss://, wt://) of an edge."`
	State   string        `arg:"" placeholder:"STATE" help:"Key or link message of the state."`
	Values  []string      `arg:"" placeholder:"VALUE" help:"Values to write, as INDEX=VALUE, from 0, or NAME=VALUE where the link message has the names. A value with components is {\"x\":1,…}, with all of them."`
	JSON    bool          `name:"json" env:"-" help:"Print a JSON object: state, and values [{index,name,type,value}] that were written and hold."`
	Linger  time.Duration `default:"700ms" env:"-" help:"How long to stay connected to repeat lost datagrams and to check that the write holds."`

	DNPFlags
}

// Problems lists what is wrong with c.
func (c *setCommand) Problems() (list config.Problems) {
	for _, v := range c.Values {
		name, _, given := strings.Cut(v, "=")
		list.AddIf(!given || name == "", v, "want INDEX=VALUE or NAME=VALUE, as 0=93.5")
	}
	return list
}

// Run writes the values and reports whether they hold.
func (c *setCommand) Run(ctx context.Context, _ *slog.Logger) error {
	conn, err := c.dial(ctx, c.Address, client.Config{})
	if err != nil {
		return err
	}
	defer conn.Close()
	state, err := c.find(ctx, conn)
	if err != nil {
		return c.explain(err)
	}
	written, err := c.write(state)
	if err != nil {
		return err
	}
	if err := stay(ctx, conn, c.Linger); err != nil {
		return err
	}
	if err := check(state, written); err != nil {
		return err
	}
	return printResult(c.JSON, writtenState{c.State, lineValues(state, slices.Sorted(maps.Keys(written)))}, "ok")
}

// A writtenState is what --json shows.
type writtenState struct {
	State  string      `json:"state"`
	Values []lineValue `json:"values"`
}

// find waits for the state.
func (c *setCommand) find(ctx context.Context, conn *client.Client) (state *client.State, err error) {
	limited, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	err = conn.Until(limited, func() bool {
		for _, s := range conn.States() {
			if s.Key() == c.State || payload.MessageText(s.Message()) == c.State {
				state = s
			}
		}
		return state != nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("no state %q was linked within %v; `dnpctl watch %s` shows the linked ones", c.State, c.Timeout, c.Address)
	}
	return state, err
}

// write sets the values, and returns them by index.
func (c *setCommand) write(s *client.State) (map[int]client.Value, error) {
	if s.ReadOnly() {
		return nil, fmt.Errorf("state %q is read-only", c.State)
	}
	values := map[int]client.Value{}
	for _, v := range c.Values {
		name, text, _ := strings.Cut(v, "=")
		index, ok := s.Index(name)
		if n, err := strconv.Atoi(name); !ok && err == nil {
			index, ok = n, n < s.Len()
		}
		if !ok {
			return nil, fmt.Errorf("state %q has %d values, no value %s", c.State, s.Len(), name)
		}
		enc, err := encode(replication.ValueDef{Type: s.Type(index), Struct: structFields(s, index)}, text)
		if err != nil {
			return nil, fmt.Errorf("value %s: %w", name, err)
		}
		values[index], _ = client.NewValue(s.Type(index), enc) // encode wrote a value of this type
	}
	for index, v := range values {
		if err := s.SetAt(index, v); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// encode returns text as wire bytes of a value, which may have components, as {"x":1,"y":2}. It converts the text like a JSON payload, so
// that the same text means the same everywhere.
func encode(d replication.ValueDef, text string) ([]byte, error) {
	value := json.RawMessage(text)
	if len(d.Struct) == 0 || !strings.HasPrefix(text, "{") {
		var err error
		if value, err = valueForType(d.Type, text); err != nil {
			return nil, err
		}
	}
	set := payload.Op{Op: "set", Sets: []payload.Member{{Name: "0", Value: value}}}
	p, problem := payload.JSON.Parse(set.Append(nil), "state")
	if problem != nil {
		return nil, problem
	}
	enc, null, problem := d.Append(nil, p.Ops[0].Sets[0].Value)
	switch {
	case null:
		return nil, errors.New("clients cannot write null")
	case problem != nil:
		return nil, errors.New(problem.Message)
	}
	return enc, nil
}

// check says whether the state still has the values that were written.
func check(s *client.State, written map[int]client.Value) error {
	if !s.Linked() {
		return errors.New("the state was removed")
	}
	for i, want := range written {
		if s.At(i) != want {
			return fmt.Errorf("value %s is %s: the write was refused, or another client wrote after it", named(s, i), valueText(s, i))
		}
	}
	return nil
}

type commandCommand struct {
	Address string `arg:"" placeholder:"HOST:PORT" help:"Edge to connect to as a client; or a URL: udp://, ws://, wss:// or wt://."`
	Key     string `arg:"" placeholder:"KEY" want:"key" help:"Key of a state that this client may write."`
	Name    string `arg:"" placeholder:"NAME" want:"token" help:"Name of the command."`
	Body    string `arg:"" optional:"" placeholder:"BODY" help:"Body of the command; - reads it from standard input."`
	JSON    bool   `name:"json" env:"-" help:"Print a JSON object: key, name, and the answer, as answer if it is text in UTF-8, else as answer_base64."`

	DNPFlags
}

// A commandAnswer is what --json shows.
type commandAnswer struct {
	Key    string  `json:"key"`
	Name   string  `json:"name"`
	Answer *string `json:"answer,omitempty"`
	Binary []byte  `json:"answer_base64,omitempty"`
}

func (c *commandCommand) object(answer []byte) commandAnswer {
	a := commandAnswer{Key: c.Key, Name: c.Name}
	if text := string(answer); utf8.ValidString(text) {
		a.Answer = &text
	} else {
		a.Binary = answer
	}
	return a
}

// linkPause is the time between two attempts while the edge may not have linked the state yet.
const linkPause = 100 * time.Millisecond

// Run sends the command and prints the answer.
func (c *commandCommand) Run(ctx context.Context, _ *slog.Logger) error {
	body, err := argument(c.Body)
	if err != nil {
		return err
	}
	conn, err := c.dial(ctx, c.Address, client.Config{})
	if err != nil {
		return err
	}
	defer conn.Close()
	waiting, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	answer, err := conn.Command(waiting, c.Key, c.Name, body)
	for refused := (*client.CommandError)(nil); errors.As(err, &refused) && refused.Code == command.UnknownState.String() && waiting.Err() == nil; {
		if err := stay(waiting, conn, linkPause); err != nil {
			return err
		}
		if again, next := conn.Command(waiting, c.Key, c.Name, body); waiting.Err() == nil {
			answer, err = again, next
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer to the command within %v", c.Timeout)
	}
	if err != nil {
		return err
	}
	return printResult(c.JSON, c.object(answer), string(answer))
}
