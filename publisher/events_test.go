package publisher_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
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

// each calls f with events until an error ends them.
func each(events iter.Seq2[publisher.Event, error], f func(publisher.Event)) error {
	for ev, err := range events {
		if err != nil {
			return err
		}
		f(ev)
	}
	return nil
}

// TestFollow requires one event for each client that is there, joins or leaves.
func TestFollow(t *testing.T) {
	s := newScene(t, publisher.Config{})
	s.hold(1)
	first := s.client()
	events := make(chan publisher.Event, 100)
	ctx, cancel := context.WithCancel(s.ctx)
	followed := make(chan error)
	next := func(kind publisher.Kind, why string) publisher.Event {
		t.Helper()
		for {
			select {
			case ev := <-events:
				if ev.Kind == kind {
					return ev
				}
				if ev.Kind == publisher.KindJoined || ev.Kind == publisher.KindLeft {
					t.Fatalf("%+v, want %s: %s", ev, kind, why)
				}
			case <-s.ctx.Done():
				t.Fatalf("no %s: %s", kind, why)
			}
		}
	}
	go func() {
		followed <- each(s.space.Events(ctx, publisher.Filter{}), func(ev publisher.Event) { events <- ev })
	}()
	one := next("joined", "the client joined before Events")
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
	next("reassert", "Events drops events that report what is known, and passes others on")
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
	var problem *publisher.Error
	if err := s.space.Kick(s.ctx, two.Client); !errors.As(err, &problem) || problem.Code != "unknown_client" {
		t.Fatalf("kick of a client that left: %v, want unknown_client", err)
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
	go func() {
		listened <- each(s.space.Events(ctx, publisher.Filter{Kinds: []publisher.Kind{publisher.KindMessage}}), func(ev publisher.Event) { heard <- ev.Message })
	}()
	defer func() { cancel(); <-listened }()

	one, err := s.space.Send(s.ctx, publisher.Outgoing{To: name, Data: []byte("one")})
	must(err)
	two, err := s.space.Send(s.ctx, publisher.Outgoing{To: name, Data: []byte("two")})
	must(err)
	if two <= one {
		t.Errorf("numbers %d, %d", one, two)
	}
	for i, want := range []bool{true, false} { // the edge knows the token the second time
		n, err := s.space.Send(s.ctx, publisher.Outgoing{To: name, Token: 1, Data: []byte("once")})
		if must(err); n > two != want {
			t.Errorf("time %d: number %d after %d", i, n, two)
		}
	}
	must(s.space.Tell(publisher.Outgoing{To: name, Data: []byte("three")}))
	must(s.space.Tell(publisher.Outgoing{To: publisher.Everyone, Data: []byte("four")}))
	must(s.space.Tell(publisher.Outgoing{To: name, Data: []byte("five"), Unreliable: true}))
	must(s.space.Tell(publisher.Outgoing{To: publisher.Everyone, Data: []byte("six"), Unreliable: true}))
	s.until(c, "all messages arrive", func(c *dnptest.Client) bool { return len(c.Messages) == 7 })
	must(c.Do(func(_ time.Time, c *dnptest.Client) {
		for _, m := range c.Messages {
			if want := string(m.Data) != "five" && string(m.Data) != "six"; m.Reliable != want {
				t.Errorf("%q: reliable %v", m.Data, m.Reliable)
			}
		}
	}))
	if _, err := s.space.Send(s.ctx, publisher.Outgoing{To: "absent", Data: []byte("x")}); !errors.Is(err, publisher.ErrNotConnected) {
		t.Errorf("got %v", err)
	}
	var problem *publisher.Error
	if _, err := s.space.Send(s.ctx, publisher.Outgoing{To: name, Data: make([]byte, 1<<20+1)}); err == nil || errors.As(err, &problem) && problem.Code != "too_large" {
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

// TestSendAgain: the edge that gets a message first has just handed the session over, and does not answer. The next one
// does, which is asked before Config.Timeout is over.
func TestSendAgain(t *testing.T) {
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
	if n, err := s.space.Send(s.ctx, publisher.Outgoing{To: "somebody", Token: 1, Data: []byte("once")}); n != 7 || err != nil {
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
	var mu sync.Mutex
	executed := map[string]int{}
	for i := range 2 {
		s.serve(func(ctx context.Context) error {
			return each(s.space.Events(ctx, publisher.Filter{Kinds: []publisher.Kind{publisher.KindCommand}, Queue: "doors"}), func(ev publisher.Event) {
				cmd := ev.Command
				switch cmd.Name {
				case "open":
					mu.Lock()
					executed[string(cmd.Body)]++
					mu.Unlock()
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
	must(s.space.Tell(publisher.Outgoing{To: list[0].Client, Data: []byte("\xC5 of the game")}))
	if got := next(s, raw); got != "\xC5 of the game" {
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
	mu.Lock()
	defer mu.Unlock()
	for body, n := range executed {
		if n != 1 && body != "now" {
			t.Errorf("%.20q was executed %d times", body, n)
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

// TestEventsInOrder has clients join and speak at once, while a loop follows: what a client says comes after it joined,
// also when the event about that was lost.
func TestEventsInOrder(t *testing.T) {
	s := newScene(t, publisher.Config{})
	s.hold(1)
	edge := s.bus()
	events := make(chan publisher.Event, 1000)
	ctx, cancel := context.WithCancel(s.ctx)
	ended := make(chan error)
	go func() {
		ended <- each(s.space.Events(ctx, publisher.Filter{}), func(ev publisher.Event) { events <- ev })
	}()
	defer func() { cancel(); <-ended }()
	say := func(client string) {
		must(edge.Publish(bus.Msg{
			Subject: subject.Names{}.From("demo", client), Data: []byte("hi all"),
			Header: map[string]string{subject.HeaderSession: "s-" + client, subject.HeaderReliable: "false"},
		}))
	}
	event := func(kind, client string) {
		must(edge.Publish(bus.Msg{Subject: "dnp.v1.event.demo", Data: fmt.Appendf(nil, `{"type":%q,"client":%q,"session":%q,"edge":"x"}`, kind, client, "s-"+client)}))
	}
	for first := false; !first; { // until the subscription is in force
		event("joined", "early")
		select {
		case ev := <-events:
			first = ev.Kind == publisher.KindJoined
		case <-time.After(10 * time.Millisecond):
		}
	}
	const clients = 50
	for i := range clients {
		name := fmt.Sprint("c", i)
		if i%2 == 0 { // of the others, NATS lost the event
			event("joined", name)
		}
		if i%3 == 0 {
			event("changed", name)
		}
		say(name)
		if i%5 == 0 {
			event("left", name)
			say(name) // an edge may be late
		}
	}
	joined, said := map[string]int{}, 0
	for said < clients+clients/5 {
		select {
		case ev := <-events:
			switch ev.Kind {
			case publisher.KindJoined:
				joined[ev.Client]++
			case publisher.KindChanged:
				if joined[ev.Client] != 1 {
					t.Fatalf("%+v after %d joined", ev, joined[ev.Client])
				}
			case publisher.KindMessage:
				said++
				if joined[ev.Client] != 1 || string(ev.Message.Data) != "hi all" {
					t.Fatalf("%+v after %d joined", ev, joined[ev.Client])
				}
			}
		case <-s.ctx.Done():
			t.Fatalf("%d messages arrive, want %d", said, clients+clients/5)
		}
	}
}

// TestFilter has loops that want some events only.
func TestFilter(t *testing.T) {
	s := newScene(t, publisher.Config{})
	s.hold(1)
	s.publish("a typed state", lamp(0))
	edge := s.bus()
	tell := func(text string) { must(edge.Publish(bus.Msg{Subject: "dnp.v1.event.demo", Data: []byte(text)})) }
	for _, c := range []struct {
		filter publisher.Filter
		want   []string
	}{
		{publisher.Filter{Kinds: []publisher.Kind{publisher.KindLinked, publisher.KindReassert}}, []string{"linked door.a", "linked door.b", "linked gate", "reassert"}},
		{publisher.Filter{Kinds: []publisher.Kind{publisher.KindLinked, publisher.KindReassert}, KeyPrefix: "door."}, []string{"linked door.a", "linked door.b", "reassert"}},
		{publisher.Filter{Kinds: []publisher.Kind{publisher.KindLinked, publisher.KindReassert}, Client: "one"}, []string{"linked door.a", "linked gate", "reassert"}},
		{publisher.Filter{Kinds: []publisher.Kind{publisher.KindChanged, publisher.KindReassert}}, []string{"changed lamp map[hue:3 on:<nil>] uint8", "changed far map[x:[1 2.5]] <nil>", "reassert"}},
		{publisher.Filter{Kinds: []publisher.Kind{publisher.KindCommandSent, publisher.KindReassert}}, []string{"command_sent gate", "reassert"}},
		{publisher.Filter{Kinds: []publisher.Kind{publisher.KindSees, publisher.KindUnsees, publisher.KindReassert}}, []string{"sees [npc.1 door.a] true", "unsees [npc.1] false", "reassert"}},
		{publisher.Filter{Kinds: []publisher.Kind{publisher.KindSees, publisher.KindUnsees, publisher.KindReassert}, KeyPrefix: "door."}, []string{"sees [door.a] true", "reassert"}},
	} {
		ctx, cancel := context.WithCancel(s.ctx)
		events := make(chan publisher.Event, 1000)
		ended := make(chan error)
		go func() { ended <- each(s.space.Events(ctx, c.filter), func(ev publisher.Event) { events <- ev }) }()
		for heard := false; !heard; { // until the loop is there
			tell(`{"type":"reassert"}`)
			select {
			case <-events:
				heard = true
			case <-time.After(10 * time.Millisecond):
			}
		}
		for _, text := range []string{
			`{"type":"linked","client":"one","key":"door.a"}`, `{"type":"linked","client":"two","key":"door.b"}`, `{"type":"linked","client":"one","key":"gate"}`,
			`{"type":"changed","key":"lamp","client":"one","values":{"hue":3,"on":null}}`, `{"type":"changed","key":"far","client":"one","values":{"x":[1,2.5]}}`,
			`{"type":"command","client":"one","key":"gate","command":"open"}`,
			`{"type":"sees","client":"one","keys":["npc.1","door.a"],"anew":true}`, `{"type":"unsees","client":"one","keys":["npc.1"]}`, `{"type":"reassert","epoch":1,"seq":77}`,
		} {
			tell(text)
		}
		var got []string
		for last := false; !last; {
			ev := <-events
			last = ev.Seq == 77
			switch {
			case ev.Kind == publisher.KindChanged:
				got = append(got, fmt.Sprintf("%s %s %v %T", ev.Kind, ev.Key, ev.Values, ev.Values["hue"]))
			case len(ev.Keys) > 0:
				got = append(got, fmt.Sprintf("%s %s %v", ev.Kind, ev.Keys, ev.Anew))
			case ev.Kind != publisher.KindReassert || last:
				got = append(got, strings.TrimSpace(string(ev.Kind)+" "+ev.Key))
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v yields %q, want %q", c.filter, got, c.want)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the loop ends with %v", err)
		}
	}
	for _, wrong := range []publisher.Outgoing{{Data: []byte("x")}, {To: "a b"}, {To: "a", Token: 1}} {
		var problem *publisher.Error
		if err := s.space.Tell(wrong); !errors.As(err, &problem) || problem.Code != publisher.CodeBadRequest {
			t.Errorf("tell %+v: %v", wrong, err)
		}
	}
	for _, wrong := range []publisher.Outgoing{{To: publisher.Everyone}, {To: "a", Unreliable: true}, {}} {
		var problem *publisher.Error
		if _, err := s.space.Send(s.ctx, wrong); !errors.As(err, &problem) || problem.Code != publisher.CodeBadRequest {
			t.Errorf("send %+v: %v", wrong, err)
		}
	}
}
