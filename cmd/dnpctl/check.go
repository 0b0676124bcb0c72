package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/cmd/dnpctl/progress"
	"github.com/dnprelay/dnprelay/internal/turn"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
)

type checkCommand struct {
	SpaceFlags `set:"space=Space in which to make a state for a moment."`
	Edge       string `arg:"" help:"HOST:PORT or URL (udp://, ws://, wss://, wt://) of an edge, whose clients join the space."`

	DNPLogin
	JSON bool `name:"json" env:"-" help:"Print one JSON object per step: step, text, ok, and ms since the start if it is true."`
}

// checkPause is how long a check waits before it repeats a step that fails, because the
// deployment may have just been started.
const checkPause = 500 * time.Millisecond

// attemptMax is how long one attempt to follow the state at the edge lasts.
const attemptMax = 5 * time.Second

// A checkRun is one run of a check. It tells people of each step once, however often it is repeated.
type checkRun struct {
	*checkCommand
	key   string
	start time.Time
	line  *progress.Line
	steps []string // what is established one after the other
	done  int      // how many of them are
	ended bool     // the state was removed
	put   payload.Put
}

// Run makes a state, receives it as a client, changes it, and removes it.
func (c *checkCommand) Run(ctx context.Context, _ *slog.Logger) error {
	r := &checkRun{checkCommand: c, key: "check." + rand.Text(), start: time.Now(), steps: []string{
		"a relay accepted a state in space " + c.Space,
		"the edge at " + c.Edge + " accepted a client",
		"the client received the state",
		"the client received the change",
		"the client saw the state removed",
	}}
	r.line = progress.Start(!c.JSON)
	defer r.line.End()
	r.line.Set(r.status())
	limited, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	err := r.check(limited)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		err = errors.New("interrupted")
	default:
		err = fmt.Errorf("not within %v: %w", c.Timeout, err)
	}
	r.tellRest()
	return err
}

// status is how far the check is.
func (r *checkRun) status() progress.Status {
	done := min(r.done, len(r.steps)-1)
	return progress.Status{Text: fmt.Sprintf("step %d of %d, for %v at most: %s", done+1, len(r.steps), r.Timeout, r.steps[done])}
}

// A checkStep is a step as --json shows it.
type checkStep struct {
	Step int    `json:"step"`
	Text string `json:"text"`
	OK   bool   `json:"ok"`
	MS   *int64 `json:"ms,omitempty"`
}

// tell tells of a step, as text or as JSON.
func (r *checkRun) tell(s checkStep, text string) { r.line.Println(lineOf(r.JSON, s, text)) }

// established tells of a step.
func (r *checkRun) established(step int) {
	if step != r.done {
		return
	}
	text := r.steps[step]
	if r.done++; r.done == len(r.steps) {
		text += "; the deployment works"
	}
	r.line.Set(r.status())
	ms := time.Since(r.start).Milliseconds()
	r.tell(checkStep{step + 1, r.steps[step], true, &ms}, fmt.Sprintf("%6d ms  %s", ms, text))
}

// tellRest tells which steps are not established.
func (r *checkRun) tellRest() {
	for i, step := range r.steps[r.done:] {
		label := "unchecked"
		if i == 0 {
			label = "no"
		}
		r.tell(checkStep{Step: r.done + i + 1, Text: step}, fmt.Sprintf("%9s  %s", label, step))
	}
}

func (r *checkRun) check(ctx context.Context) error {
	defer r.clean(ctx) // also when the answer to the put was not awaited
	r.put = payload.Put{
		Key: r.key, Values: []payload.Value{{Name: "n", Type: "uint8", Value: json.RawMessage("1")}},
		TTL: payload.DurationText(r.lifetime()), // for a check that is killed
	}
	if err := r.retry(ctx, func() error { return r.make(ctx) }); err != nil {
		return err
	}
	return r.retry(ctx, func() error {
		if r.ended { // by an attempt before
			if err := r.make(ctx); err != nil {
				return err
			}
		}
		return r.follow(ctx)
	})
}

// lifetime returns how long the state outlives a check that could not remove it.
func (c *checkCommand) lifetime() time.Duration {
	return min(max(30*time.Second, 2*c.Timeout.Round(time.Second)), replication.TTLMax)
}

// make makes the state.
func (r *checkRun) make(ctx context.Context) error {
	err := r.publish(ctx, r.put.Append(nil, nil))
	if err == nil {
		r.ended = false
		r.established(0)
	}
	return err
}

// clean removes the state unless the check did. ctx may have ended.
func (r *checkRun) clean(ctx context.Context) {
	if r.ended {
		return
	}
	err := r.publish(context.WithoutCancel(ctx), r.removal())
	if payload.HasCode(err, replication.CodeUnknownState) {
		return // there is none
	}
	if err != nil && r.done > 0 {
		r.line.Fprintln(os.Stderr, fmt.Sprintf("the state %s was not removed; it ends within %v", r.key, r.lifetime()))
	}
}

func (r *checkRun) removal() []byte { return (&payload.Op{Op: "remove", Key: r.key}).Append(nil) }

// publish sends one op about the state and returns the error of the answer.
func (r *checkRun) publish(ctx context.Context, body []byte) error {
	flags := r.SpaceFlags
	flags.Timeout = min(flags.Timeout, 5*time.Second)
	data, err := flags.askHolder(ctx, flags.subjects().Publish(r.Space, ""), body)
	if err == nil {
		_, err = payload.ParseAnswer(data)
	}
	return err
}

// retry calls try until it succeeds or ctx ends, and returns the last error that does not come of
// that end.
func (r *checkRun) retry(ctx context.Context, try func() error) (last error) {
	for {
		err := try()
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if !turn.Pause(ctx, checkPause) {
			return last
		}
	}
}

// follow connects to the edge and follows the state until it is removed.
func (r *checkRun) follow(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(r.Timeout, attemptMax))
	defer cancel()
	conn, err := r.dial(ctx, r.Edge, min(r.Timeout, attemptMax)*9/10, client.Config{})
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no edge answers at %s%s", r.Edge, noEdgeHint)
	case err != nil:
		return err
	}
	defer conn.Close()
	r.established(1)
	state, err := conn.Await(ctx, r.key)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && r.Token == "":
		return errors.New("the edge accepted a client but does not send it the state; do its clients join this space, and without a login (--token)?")
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("the edge accepted a client but does not send it the state; does its token name this space?")
	case err != nil:
		return r.explain(err)
	}
	r.established(2)
	return r.change(ctx, conn, state)
}

// change changes the state, and removes it.
func (r *checkRun) change(ctx context.Context, conn *client.Client, state *client.State) error {
	set := payload.Op{Op: "set", Key: r.key, Sets: []payload.Member{{Name: "n", Value: json.RawMessage("2")}}}
	if err := r.publish(ctx, set.Append(nil)); err != nil {
		return err
	}
	if err := conn.Until(ctx, func() bool { return state.At(0).Uint() == 2 }); err != nil {
		return fmt.Errorf("the client does not receive the change: %w", err)
	}
	r.established(3)
	if err := r.publish(ctx, r.removal()); err != nil {
		return err
	}
	r.ended = true
	if err := conn.Until(ctx, func() bool { return !state.Linked() }); err != nil {
		return fmt.Errorf("the client does not see that the state was removed: %w", err)
	}
	r.established(4)
	return nil
}
