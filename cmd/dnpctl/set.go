package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/replication/payload"
)

type setCommand struct {
	Address string        `arg:"" placeholder:"ADDRESS" help:"HOST:PORT of an edge."`
	State   string        `arg:"" placeholder:"STATE" help:"Link message of the state: its key, unless the publisher set another."`
	Values  []string      `arg:"" placeholder:"INDEX=VALUE" help:"Values to write; clients know them by index, from 0."`
	Linger  time.Duration `default:"700ms" env:"-" help:"How long to stay connected to repeat lost datagrams and to check that the write holds."`

	DNPFlags
}

// Problems lists what is wrong with c.
func (c *setCommand) Problems() (list config.Problems) {
	list = c.DNPFlags.Problems()
	for _, v := range c.Values {
		index, _, given := strings.Cut(v, "=")
		if _, err := strconv.ParseUint(index, 10, 16); err != nil || !given {
			list.Add(v, "want INDEX=VALUE, as 0=93.5")
		}
	}
	return list
}

// A write has the values that a setCommand wrote to a link.
type write struct {
	link   *link
	at     time.Time
	values map[int][]byte
}

// Run writes the values and reports whether they hold.
func (c *setCommand) Run(ctx context.Context, _ *slog.Logger) error {
	var done *write
	deadline := time.Now().Add(c.Timeout)
	return c.play(ctx, c.Address, nil, func(client *dnpClient, now time.Time) (_ time.Time, err error) {
		if done != nil {
			if now.Sub(done.at) < c.Linger {
				return done.at.Add(c.Linger), nil
			}
			return time.Time{}, done.check(client)
		}
		l := c.find(client)
		if l == nil {
			return deadline, c.missing(now, deadline)
		}
		done, err = c.write(l, now)
		return now.Add(c.Linger), err
	})
}

func (c *setCommand) missing(now, deadline time.Time) error {
	if now.Before(deadline) {
		return nil
	}
	return fmt.Errorf("no state %q was linked within %v; `dnpctl watch %s` shows the linked ones", c.State, c.Timeout, c.Address)
}

func (c *setCommand) find(client *dnpClient) *link {
	for _, l := range client.links {
		if bytes.Equal(l.message, []byte(c.State)) || payload.MessageText(l.message) == c.State {
			return l
		}
	}
	return nil
}

// write sets the values of the state behind l.
func (c *setCommand) write(l *link, now time.Time) (*write, error) {
	if l.readOnly {
		return nil, fmt.Errorf("state %q is read-only", c.State)
	}
	w := &write{link: l, at: now, values: map[int][]byte{}}
	for _, v := range c.Values {
		text, value, _ := strings.Cut(v, "=")
		index, _ := strconv.Atoi(text) // Problems has checked it
		if index >= l.state.Layout().Len() {
			return nil, fmt.Errorf("state %q has %d values, no value %d", c.State, l.state.Layout().Len(), index)
		}
		enc, err := encode(l, index, value)
		if err != nil {
			return nil, fmt.Errorf("value %d: %w", index, err)
		}
		w.values[index] = enc
	}
	for index, enc := range w.values {
		l.state.Set(index, enc)
		l.source.Changed(index)
	}
	return w, nil
}

// encode returns text as wire bytes of value index. It converts the text like a JSON
// payload, so that the same text means the same everywhere.
func encode(l *link, index int, text string) ([]byte, error) {
	t := l.state.Layout().Type(index)
	value, err := valueForType(t, text)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(op{Op: "set", Values: map[string]json.RawMessage{"0": value}})
	if err != nil {
		return nil, err
	}
	p, problem := payload.JSON.Parse(body, "state")
	if problem != nil {
		return nil, problem
	}
	enc, null, problem := p.Ops[0].Sets[0].Value.AppendValue(nil, t)
	switch {
	case null:
		return nil, errors.New("clients cannot write null")
	case problem != nil:
		return nil, errors.New(problem.Message)
	}
	return enc, nil
}

// check returns errStop if the state still has the values that were written.
func (w *write) check(client *dnpClient) error {
	if client.links[w.link.id] != w.link {
		return errors.New("the state was removed")
	}
	for i, enc := range w.values {
		if !bytes.Equal(w.link.state.Value(i), enc) {
			return fmt.Errorf("value %d is %s: the write was refused, or another client wrote after it", i, valueText(w.link.state, i))
		}
	}
	fmt.Println("ok")
	return errStop
}
