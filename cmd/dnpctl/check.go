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

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/internal/config"
)

type checkCommand struct {
	Space string `arg:"" help:"Space in which to make a state for a moment."`
	Edge  string `arg:"" help:"HOST:PORT of an edge, whose clients join the space."`

	NATSFlags `group:"NATS"`
	Profile   string `default:"denetwork" env:"-" help:"Profile of the edge: denetwork or spec."`
	Token     string `env:"DNP_TOKEN" placeholder:"TOKEN|@FILE" help:"Token to log in with, or a file with it, as @FILE."`
}

// Problems lists what is wrong with c.
func (c *checkCommand) Problems() (list config.Problems) {
	checkSpace(&list, c.Space)
	return append(list, (&DNPFlags{Profile: c.Profile, Timeout: c.Timeout}).Problems()...)
}

// A checker is a watcher that waits for one state and its values.
type checker struct {
	mute
	key  []byte
	seen uint32
	gone bool
}

func (w *checker) linked(l *link)                   { w.look(l) }
func (w *checker) changed(l *link, _ netstate.Mask) { w.look(l) }
func (w *checker) unlinked(l *link)                 { w.gone = w.gone || bytes.Equal(l.message, w.key) }

func (w *checker) look(l *link) {
	if value := l.state.Value(0); bytes.Equal(l.message, w.key) && len(value) == 1 {
		w.seen = uint32(value[0])
	}
}

// checkPause is how long a check waits before it repeats a step that fails, because the
// deployment may have just been started.
const checkPause = 500 * time.Millisecond

// Run makes a state, receives it as a client, changes it, and removes it.
func (c *checkCommand) Run(ctx context.Context, _ *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	w := &checker{key: []byte("check." + rand.Text())}
	start := time.Now()
	report := func(what string) { fmt.Printf("%6d ms  %s\n", time.Since(start).Milliseconds(), what) }
	publish := func(op map[string]any) error {
		op["key"] = string(w.key)
		return c.retry(ctx, func() error { return c.publish(ctx, op) })
	}
	if err := publish(map[string]any{"op": "put", "values": []any{map[string]any{"name": "n", "type": "uint8", "value": 1}}}); err != nil {
		return err
	}
	defer func() { // also after a failure, for which the context may have ended
		_ = c.publish(context.WithoutCancel(ctx), map[string]any{"op": "remove", "key": string(w.key)})
	}()
	report("a relay accepted a state in space " + c.Space)
	if err := c.retry(ctx, func() error { return c.watch(ctx, w, report, publish) }); err != nil {
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
	flags := c.NATSFlags
	flags.Timeout = min(flags.Timeout, 5*time.Second)
	data, err := flags.requestHolder(ctx, c.Space, flags.subjects().Publish(c.Space, ""), body)
	if err == nil {
		_, err = parseAnswer(data)
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
func (c *checkCommand) watch(ctx context.Context, w *checker, report func(string), publish func(map[string]any) error) (err error) {
	flags := DNPFlags{Profile: c.Profile, Token: c.Token, Timeout: min(c.Timeout, 5*time.Second)}
	client, err := flags.dial(c.Edge, w)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.close()) }()
	steps := []struct {
		done func() bool
		what string
		next map[string]any
	}{
		{client.conn.Established, "the edge at " + c.Edge + " accepted a client", nil},
		{func() bool { return w.seen > 0 }, "the client received the state", map[string]any{"op": "set", "values": map[string]any{"n": 2}}},
		{func() bool { return w.seen == 2 }, "the client received the change", map[string]any{"op": "remove"}},
		{func() bool { return w.gone }, "", nil},
	}
	err = client.run(ctx, func(time.Time) (wake time.Time, err error) {
		for len(steps) > 0 && steps[0].done() {
			s := steps[0]
			steps = steps[1:]
			if s.next != nil {
				err = publish(s.next)
			}
			if s.what != "" {
				report(s.what)
			}
			if err != nil || len(steps) == 0 {
				return wake, errors.Join(err, errStop)
			}
		}
		return wake, nil
	})
	switch {
	case errors.Is(err, errStop) && len(steps) == 0:
		return nil
	case err == nil && ctx.Err() != nil && w.seen == 0:
		return errors.New("the edge accepted a client but does not send it the state; do its clients join this space?")
	case err == nil:
		return ctx.Err()
	}
	return err
}
