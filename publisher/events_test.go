package publisher_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/dnp/command"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/publisher"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
)

// TestFollow requires one event for each client that is there, joins or leaves.
func TestFollow(t *testing.T) {
	s := newScene(t, publisher.Config{})
	s.hold(1)
	first := s.client()
	events := make(chan publisher.Event, 100)
	ctx, cancel := context.WithCancel(s.ctx)
	followed := make(chan error)
	next := func(kind, why string) publisher.Event {
		t.Helper()
		for {
			select {
			case ev := <-events:
				if ev.Type == kind {
					return ev
				}
				if ev.Type == "joined" || ev.Type == "left" {
					t.Fatalf("%+v, want %s: %s", ev, kind, why)
				}
			case <-s.ctx.Done():
				t.Fatalf("no %s: %s", kind, why)
			}
		}
	}
	go func() { followed <- s.space.Follow(ctx, func(ev publisher.Event) { events <- ev }) }()
	one := next("joined", "the client joined before Follow")
	second := s.client()
	two := next("joined", "the client joins")
	if one.Client == two.Client || one.Session == two.Session || one.Edge != "e" || two.Edge != "e" {
		t.Fatalf("%+v, then %+v", one, two)
	}
	for _, text := range []string{
		`{"type":"joined","client":"` + two.Client + `","session":"` + two.Session + `","edge":"e"}`,
		`{"type":"left","client":"` + two.Client + `","session":"another"}`, `{"type":"reassert","epoch":1}`,
	} {
		must(s.bus().Publish(bus.Msg{Subject: "dnp.v1.event.demo", Data: []byte(text)}))
	}
	next("reassert", "Follow drops events that report what is known, and passes others on")
	must(first.Do(func(now time.Time, c *dnptest.Client) { c.Close(now) }))
	if ev := next("left", "the client closes its connection"); ev.Session != one.Session || ev.Reason != "peer" {
		t.Fatalf("%+v", ev)
	}
	s.publish("a group of one", publisher.Group{Client: two.Client, Join: []string{"red"}},
		publisher.Put{Key: "secret", Audience: publisher.Who{Groups: []string{"red"}}, Values: []publisher.Value{{Type: "uint8", Value: 5}}})
	s.until(second, "the relay offers the state to a member of the group", func(c *dnptest.Client) bool { return len(c.Value("secret", 0)) == 1 })
	if err := s.space.Kick(s.ctx, two.Client); err != nil {
		t.Fatal(err)
	}
	if ev := next("left", "the client is kicked"); ev.Session != two.Session || ev.Reason != "kicked" {
		t.Fatalf("%+v", ev)
	}
	for { // until the relay has heard of the end, too
		var problem *publisher.Error
		if err := s.space.Kick(s.ctx, two.Client); errors.As(err, &problem) && problem.Code == "unknown_client" {
			break
		} else if s.ctx.Err() != nil {
			t.Fatalf("kick of a client that left: %v, want unknown_client", err)
		}
	}
	cancel()
	if err := <-followed; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestSend sends messages to a client, and receives the client's.
func TestSend(t *testing.T) {
	s := newScene(t, publisher.Config{})
	s.hold(1)
	c := s.client()
	var who []publisher.Client
	for len(who) == 0 && s.ctx.Err() == nil { // the edge waits for a proof of the client's address
		var err error
		if who, err = s.space.Who(s.ctx); err != nil {
			t.Fatal(err)
		}
	}
	if len(who) != 1 || who[0].Edge != "e" {
		t.Fatalf("%v", who)
	}
	name := who[0].Client
	heard := make(chan *publisher.Message, 10)
	ctx, cancel := context.WithCancel(s.ctx)
	listened := make(chan error)
	go func() { listened <- s.space.Listen(ctx, func(m *publisher.Message) { heard <- m }) }()
	defer func() { cancel(); <-listened }()

	one, err := s.space.Send(s.ctx, name, []byte("one"))
	must(err)
	two, err := s.space.Send(s.ctx, name, []byte("two"))
	must(err)
	if two <= one {
		t.Errorf("numbers %d, %d", one, two)
	}
	for i, want := range []bool{true, false} { // the edge knows the token the second time
		n, err := s.space.SendOnce(s.ctx, name, 1, []byte("once"))
		if must(err); n > two != want {
			t.Errorf("time %d: number %d after %d", i, n, two)
		}
	}
	must(s.space.Tell(name, []byte("three")))
	must(s.space.TellAll([]byte("four")))
	must(s.space.Cast(name, []byte("five")))
	must(s.space.CastAll([]byte("six")))
	s.until(c, "all messages arrive", func(c *dnptest.Client) bool { return len(c.Messages) == 7 })
	must(c.Do(func(_ time.Time, c *dnptest.Client) {
		for _, m := range c.Messages {
			if want := string(m.Data) != "five" && string(m.Data) != "six"; m.Reliable != want {
				t.Errorf("%q: reliable %v", m.Data, m.Reliable)
			}
		}
	}))
	if _, err := s.space.Send(s.ctx, "absent", []byte("x")); !errors.Is(err, publisher.ErrNotConnected) {
		t.Errorf("got %v", err)
	}
	var problem *publisher.Error
	if _, err := s.space.Send(s.ctx, name, make([]byte, 1<<20+1)); err == nil || errors.As(err, &problem) && problem.Code != "too_large" {
		t.Errorf("got %v", err)
	}
	said := func() *publisher.Message { // until the subscription is in force
		for {
			must(c.Do(func(now time.Time, c *dnptest.Client) { must(c.Send(now, []byte("hello"))) }))
			select {
			case m := <-heard:
				return m
			case <-time.After(100 * time.Millisecond):
			case <-s.ctx.Done():
				t.Fatal("no message of the client arrives")
			}
		}
	}()
	if said.Client != name || !said.Reliable || said.Session == "" || string(said.Data) != "hello" {
		t.Errorf("%+v", said)
	}
}

// TestSendOnceAgain: the edge that gets a message first has just handed the session over, and does not answer. The next one
// does, which is asked before Config.Timeout is over.
func TestSendOnceAgain(t *testing.T) {
	s := newScene(t, publisher.Config{Timeout: time.Hour})
	nc, err := nats.Connect(s.nats.URL())
	must(err)
	defer nc.Close()
	tries := 0
	_, err = nc.Subscribe(subject.Names{}.To("demo", "somebody"), func(m *nats.Msg) {
		if tries++; tries == 2 {
			_ = m.Respond([]byte(`{"number":7}`)) // the test misses the answer
		}
	})
	must(err)
	must(nc.Flush())
	if n, err := s.space.SendOnce(s.ctx, "somebody", 1, []byte("once")); n != 7 || err != nil {
		t.Errorf("number %d, %v, want 7", n, err)
	}
}

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
