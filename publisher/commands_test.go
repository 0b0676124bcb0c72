package publisher_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/dnp/command"
	"github.com/dnprelay/dnprelay/publisher"
)

// dial connects a client to the edge of the scene and waits for a state.
func (s *scene) dial(key string, cfg client.Config) (*client.Client, *client.State) {
	s.Helper()
	c, err := client.Dial(s.ctx, "udp://"+s.edge.Addrs()[0].String(), cfg)
	must(err)
	s.Cleanup(func() { _ = c.Close() })
	state, err := c.Await(s.ctx, key)
	must(err)
	return c, state
}

// TestCommands has a client ask two game servers, which share the work, over an edge without a session log.
func TestCommands(t *testing.T) {
	s := newScene(t, publisher.Config{})
	s.hold(1)
	for key, access := range map[string]publisher.Access{"door": {All: true}, "wall": {}} {
		_, err := s.space.Publish(s.ctx, publisher.Put{Key: key, Access: access, Values: []publisher.Value{{Name: "x", Type: "uint8", Value: 1}}})
		must(err)
	}
	raw := make(chan string, 10)
	c, door := s.dial("door", client.Config{Message: func(_ *client.Client, m client.Message) { raw <- string(m.Data) }})
	wall, err := c.Await(s.ctx, "wall")
	must(err)
	var refused *client.CommandError
	if _, err := door.Command(s.ctx, "open", nil); !errors.As(err, &refused) || refused.Code != "no_responders" {
		t.Errorf("without a game server: %v", err)
	}
	for i := range 2 {
		s.serve(func(ctx context.Context) error {
			return s.space.Commands(ctx, "doors", func(cmd *publisher.Command) {
				switch cmd.Name {
				case "open":
					must(cmd.Reply(ctx, fmt.Appendf(nil, "%s of %s by %d: %s", cmd.Key, cmd.Client, i, cmd.Body)))
				case "burn":
					must(cmd.Fail(ctx, "it is of stone"))
				default:
					must(cmd.Unknown(ctx))
				}
			})
		})
	}
	var answer []byte
	for ; s.ctx.Err() == nil; answer = nil { // the subscription takes a moment
		if answer, err = door.Command(s.ctx, "open", []byte("now")); err == nil {
			break
		}
	}
	if !strings.HasPrefix(string(answer), "door of c-") || !strings.HasSuffix(string(answer), ": now") {
		t.Errorf("the answer is %q", answer)
	}
	if _, err := door.Command(s.ctx, "burn", nil); !errors.As(err, &refused) || refused.Code != "failed" || refused.Text != "it is of stone" {
		t.Errorf("a command that the game refuses: %v", err)
	}
	if _, err := c.Command(s.ctx, "door", "sing", nil); !errors.As(err, &refused) || refused.Code != "unknown_command" {
		t.Errorf("a command that the game does not know: %v", err)
	}
	if _, err := wall.Command(s.ctx, "open", nil); !errors.As(err, &refused) || refused.Code != "not_authorised" {
		t.Errorf("a command about a state that the client may not write: %v", err)
	}
	if _, err := c.Command(s.ctx, "nothing", "open", nil); !errors.As(err, &refused) || refused.Code != "unknown_state" {
		t.Errorf("a command about a state that does not exist: %v", err)
	}
	if _, err := door.Command(s.ctx, "open", make([]byte, command.BodyMax+1)); !errors.Is(err, command.ErrTooLarge) {
		t.Errorf("a command that is too large: %v", err)
	}
	big, err := door.Command(s.ctx, "open", make([]byte, command.BodyMax-100))
	if err != nil || len(big) < command.BodyMax-100 {
		t.Errorf("the largest command has an answer of %d bytes, %v", len(big), err)
	}
	list, err := s.space.Who(s.ctx)
	must(err)
	must(s.space.Tell(list[0].Client, []byte("\xC5 of the game")))
	if got := <-raw; got != "\xC5 of the game" {
		t.Errorf("a message that begins like an envelope arrives as %q", got)
	}
	results := make(chan error, 40)
	for i := range cap(results) { // more than may be without an answer: the client waits
		go func() {
			body := fmt.Sprint("number ", i)
			answer, err := door.Command(s.ctx, "open", []byte(body))
			if err == nil && !strings.HasSuffix(string(answer), ": "+body) {
				err = fmt.Errorf("command %d has the answer %q", i, answer)
			}
			results <- err
		}()
	}
	for range cap(results) {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// serve runs f until the test ends.
func (s *scene) serve(f func(context.Context) error) {
	end := s.run(func(ctx context.Context) error {
		if err := f(ctx); !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	})
	s.Cleanup(end)
}
