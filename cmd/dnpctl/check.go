package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/replication/payload"
)

type checkCommand struct {
	SpaceFlags `set:"space=Space in which to make a state for a moment."`
	Edge       string `arg:"" help:"HOST:PORT or URL (udp://, ws://, wss://, wt://) of an edge, whose clients join the space."`

	Profile string `default:"denetwork" env:"-" help:"Profile of the edge: denetwork or spec."`
	Token   string `env:"DNP_TOKEN" placeholder:"TOKEN|@FILE" help:"Token to log in with, or a file with it, as @FILE."`

	CertificateHash []string `env:"-" placeholder:"HEX" help:"SHA-256 of a certificate to trust with wss:// and wt://; may be repeated."`
}

// Problems lists what is wrong with c.
func (c *checkCommand) Problems() config.Problems {
	return (&DNPFlags{Profile: c.Profile, Token: c.Token, Timeout: c.Timeout, CertificateHash: c.CertificateHash}).Problems()
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
	if err := c.retry(ctx, func() error { return c.watch(ctx, key, report, publish) }); err != nil {
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
func (c *checkCommand) watch(ctx context.Context, key string, report func(string), publish func(map[string]any) error) error {
	ctx, cancel := context.WithTimeout(ctx, min(c.Timeout, 5*time.Second))
	defer cancel()
	flags := DNPFlags{Profile: c.Profile, Token: c.Token, Timeout: min(c.Timeout, 5*time.Second), CertificateHash: c.CertificateHash}
	conn, err := flags.dial(ctx, c.Edge, client.Config{})
	if err != nil {
		return err
	}
	defer conn.Close()
	report("the edge at " + c.Edge + " accepted a client")
	state, err := conn.Await(ctx, key)
	if err != nil {
		return fmt.Errorf("the edge accepted a client but does not send it the state; do its clients join this space? (%w)", err)
	}
	report("the client received the state")
	if err := publish(map[string]any{"op": "set", "values": map[string]any{"n": 2}}); err != nil {
		return err
	}
	if err := conn.Until(ctx, func() bool { return state.At(0).Uint() == 2 }); err != nil {
		return fmt.Errorf("wait for the change: %w", err)
	}
	report("the client received the change")
	if err := publish(map[string]any{"op": "remove"}); err != nil {
		return err
	}
	if err := conn.Until(ctx, func() bool { return !state.Linked() }); err != nil {
		return fmt.Errorf("wait for the removal: %w", err)
	}
	return nil
}
