package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/replication/payload"
)

type checkCommand struct {
	SpaceFlags `set:"space=Space in which to make a state for a moment."`
	Edge       string `arg:"" help:"HOST:PORT of an edge, whose clients join the space."`

	Profile string `default:"denetwork" env:"-" help:"Profile of the edge: denetwork or spec."`
	Token   string `env:"DNP_TOKEN" placeholder:"TOKEN|@FILE" help:"Token to log in with, or a file with it, as @FILE."`
}

// Problems lists what is wrong with c.
func (c *checkCommand) Problems() config.Problems {
	return (&DNPFlags{Profile: c.Profile, Timeout: c.Timeout}).Problems()
}

// checkPause is how long a check waits before it repeats a step that fails, because the
// deployment may have just been started.
const checkPause = 500 * time.Millisecond

// Run makes a state, receives it as a client, changes it, and removes it.
func (c *checkCommand) Run(ctx context.Context, _ *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	key := "check." + rand.Text()
	start := time.Now()
	report := func(what string) { fmt.Printf("%6d ms  %s\n", time.Since(start).Milliseconds(), what) }
	publish := func(op map[string]any) error {
		op["key"] = key
		return c.retry(ctx, func() error { return c.publish(ctx, op) })
	}
	if err := publish(map[string]any{"op": "put", "values": []any{map[string]any{"name": "n", "type": "uint8", "value": 1}}}); err != nil {
		return err
	}
	defer func() { // also after a failure, for which the context may have ended
		_ = c.publish(context.WithoutCancel(ctx), map[string]any{"op": "remove", "key": key})
	}()
	report("a relay accepted a state in space " + c.Space)
	if err := c.retry(ctx, func() error { return c.watch(ctx, []byte(key), report, publish) }); err != nil {
		return err
	}
	report("the client saw the state removed; the deployment works")
	return nil
}

// publish sends one op and returns the error of the answer.
func (c *checkCommand) publish(ctx context.Context, op map[string]any) error {
	body, err := json.Marshal(op)
	if err != nil {
		return err
	}
	flags := c.SpaceFlags
	flags.Timeout = min(flags.Timeout, 5*time.Second)
	data, err := flags.askHolder(ctx, flags.subjects().Publish(c.Space, ""), body)
	if err == nil {
		_, err = payload.ParseAnswer(data)
	}
	return err
}

// retry calls try until it succeeds or ctx ends, and returns the last error.
func (c *checkCommand) retry(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %v: %w", c.Timeout, err)
		case <-time.After(checkPause):
		}
	}
}

// watch connects to the edge and follows the state until it is removed.
func (c *checkCommand) watch(ctx context.Context, key []byte, report func(string), publish func(map[string]any) error) error {
	established, seen, gone := false, byte(0), false
	watch := func(e *dnp.Event, l *link) {
		switch {
		case e.Kind == dnp.EventConnected:
			established = true
		case l == nil || !bytes.Equal(l.message, key):
		case e.Kind == dnp.EventLinkDown:
			gone = true
		case len(l.state.Value(0)) == 1:
			seen = l.state.Value(0)[0]
		}
	}
	steps := []struct {
		done func() bool
		what string
		next map[string]any
	}{
		{func() bool { return established }, "the edge at " + c.Edge + " accepted a client", nil},
		{func() bool { return seen > 0 }, "the client received the state", map[string]any{"op": "set", "values": map[string]any{"n": 2}}},
		{func() bool { return seen == 2 }, "the client received the change", map[string]any{"op": "remove"}},
		{func() bool { return gone }, "", nil},
	}
	flags := DNPFlags{Profile: c.Profile, Token: c.Token, Timeout: min(c.Timeout, 5*time.Second)}
	err := flags.play(ctx, c.Edge, watch, func(*dnpClient, time.Time) (wake time.Time, err error) {
		for len(steps) > 0 && steps[0].done() && err == nil {
			s := steps[0]
			steps = steps[1:]
			if s.next != nil {
				err = publish(s.next)
			}
			if s.what != "" {
				report(s.what)
			}
		}
		if err == nil && len(steps) == 0 {
			err = errStop
		}
		return wake, err
	})
	switch {
	case err != nil || len(steps) == 0:
		return err
	case seen == 0:
		return errors.New("the edge accepted a client but does not send it the state; do its clients join this space?")
	}
	return ctx.Err()
}
