package publisher_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/publisher"
)

func tower(hp any) publisher.Put {
	return publisher.Put{Key: "tower", Values: []publisher.Value{
		{Name: "hp", Type: "uint8", Value: hp}, {Name: "owner", Type: "string", Nullable: true},
	}}
}

func lamp(on int) publisher.Put {
	return publisher.Put{Key: "lamp", Access: publisher.Access{All: true}, Values: []publisher.Value{
		{Name: "on", Type: "uint8", Value: on}, {Name: "hue", Type: "uint8", Value: 1},
	}}
}

func set(key, name string, v any) publisher.Set {
	return publisher.Set{Key: key, Values: publisher.Values{name: v}}
}

func TestPublish(t *testing.T) {
	s := newScene(t, publisher.Config{})
	s.hold(1)
	pos, err := s.space.Publish(s.ctx, tower(93), set("tower", "owner", "red"))
	if err != nil || pos.Epoch != 1 || pos.Seq == 0 {
		t.Fatalf("position %v, %v", pos, err)
	}
	s.holds("put, and set in the same call", map[string]string{"tower": `hp=93 owner="red" `})
	for hp := range 50 {
		if err := s.space.Post(set("tower", "0", hp)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.space.Post(set("tower", "owner", nil)); err != nil {
		t.Fatal(err)
	}
	if err := s.space.Flush(s.ctx); err != nil {
		t.Fatal(err)
	}
	s.holds("the newest values", map[string]string{"tower": "hp=49 owner=null "})
	s.publish("remove", publisher.Remove{Key: "tower"})
	s.holds("it is removed", map[string]string{})
	s.publish("a key can come back", tower(1))
	if err := s.space.Clear(s.ctx); err != nil {
		t.Fatal(err)
	}
	s.holds("cleared", map[string]string{})
	if len(s.refused) > 0 {
		t.Errorf("refused %v", s.refused)
	}
}

// TestErrors: what is wrong is said at once, with the op and the value; nothing of the
// call is done.
func TestErrors(t *testing.T) {
	s := newScene(t, publisher.Config{StatesMax: 3})
	s.hold(1)
	s.publish("a state", tower(93))
	long := strings.Repeat("x", 2000)
	for _, c := range []struct {
		ops  []publisher.Op
		want string
	}{
		{[]publisher.Op{set("tower", "hp", "low")}, `set tower: type_mismatch: value "hp": want uint8, got string`},
		{[]publisher.Op{set("tower", "hp", 256)}, `set tower: out_of_range: value "hp"`},
		{[]publisher.Op{set("tower", "hp", 1.5)}, `set tower: type_mismatch: value "hp"`},
		{[]publisher.Op{set("tower", "hp", nil)}, `set tower: type_mismatch: value "hp": null, and it is not nullable`},
		{[]publisher.Op{set("tower", "hp", math.NaN())}, `set tower: type_mismatch: value "hp"`},
		{[]publisher.Op{set("tower", "hp", func() {})}, `set tower: type_mismatch: value "hp"`},
		{[]publisher.Op{set("tower", "mp", 1)}, `set tower: bad_request: there is no value "mp"`},
		{[]publisher.Op{set("tower", "2", 1)}, `set tower: bad_request: there is no value "2"`},
		{[]publisher.Op{set("tower", "hp", 5), tower(-1)}, `put tower: out_of_range: value "hp"`},
		{[]publisher.Op{publisher.Put{Key: "a b"}}, "put a b: bad_request"},
		{[]publisher.Op{publisher.Put{Key: "x", Values: []publisher.Value{{Type: "uint9", Value: 1}}}}, `put x: type_mismatch`},
		{[]publisher.Op{publisher.Put{Key: "x", Values: []publisher.Value{{Type: "vector3f32", Value: []int{1, 2}}}}}, `put x: type_mismatch: value 0`},
		{[]publisher.Op{publisher.Group{Client: "c", Join: []string{"no no"}}}, "group c: bad_request"},
		{[]publisher.Op{set("nothing", "hp", 1)}, "set nothing: unknown_state"},
		{[]publisher.Op{publisher.Remove{Key: "nothing"}}, "remove nothing: unknown_state"},
		{[]publisher.Op{publisher.Group{Client: "nobody", Join: []string{"g"}}}, "group nobody: unknown_client"},
		{[]publisher.Op{publisher.Put{Key: "x", Values: []publisher.Value{{Type: "string", Value: long}}}}, "put x: too_large"},
		{[]publisher.Op{lamp(1), set("y", "a", 1), set("z", "a", 1)}, "put lamp: too_large: more than 3 states"},
	} {
		_, err := s.space.Publish(s.ctx, c.ops...)
		var problem *publisher.Error
		if !errors.As(err, &problem) || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %s", c.ops, err, c.want)
		}
	}
	s.holds("errors change nothing", map[string]string{"tower": "hp=93 owner=null "})
	s.publish("what was refused is forgotten, so there is room", lamp(1), publisher.Put{Key: "x", Values: []publisher.Value{{Type: "string", Value: ""}}})
}

// TestNobodyHolds: what is said while no relay is there is accepted once one is, with
// the newest values only.
func TestNobodyHolds(t *testing.T) {
	s := newScene(t, publisher.Config{Retry: time.Millisecond})
	short, cancel := context.WithTimeout(s.ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := s.space.Publish(short, tower(1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v, want the end of the context", err)
	}
	for hp := range 200 {
		if err := s.space.Post(set("tower", "hp", hp)); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error)
	go func() { done <- s.space.Flush(s.ctx) }()
	s.hold(1)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	s.holds("the newest", map[string]string{"tower": "hp=199 owner=null "})
}

// TestReassert: a relay that takes over knows nothing, and is told all but what clients
// changed and it knows better.
func TestReassert(t *testing.T) {
	s := newScene(t, publisher.Config{Retry: time.Millisecond, Probe: 10 * time.Millisecond})
	s.hold(1)
	s.publish("states", tower(93), lamp(0), publisher.Put{Key: "gone", Values: []publisher.Value{{Type: "uint8", Value: 0}}})
	s.publish("one is removed", publisher.Remove{Key: "gone"})
	c := s.client()
	s.until(c, "the lamp is linked", func(c *dnptest.Client) bool { l := c.LinkNamed("lamp"); return l != nil && l.Phase == dnptest.LinkIsUp })
	changed := make(chan publisher.Event, 16)
	ctx, cancel := context.WithCancel(s.ctx)
	followed := make(chan error)
	go func() {
		followed <- s.space.Follow(ctx, func(ev publisher.Event) {
			if ev.Type == "changed" {
				changed <- ev
			}
		})
	}()
	defer func() { cancel(); <-followed }()
	must(c.Do(func(_ time.Time, c *dnptest.Client) { c.Set(c.LinkNamed("lamp"), 0, []byte{7}) }))
	if ev := <-changed; ev.Key != "lamp" || string(ev.Values["on"]) != "7" || ev.Client == "" {
		t.Fatalf("%+v", ev)
	}
	s.holds("the client's value", map[string]string{"tower": "hp=93 owner=null ", "lamp": "on=7 hue=1 "})
	s.publish("an op behind the event, so that the copy has it", set("tower", "hp", 94))
	s.hold(2)
	s.holds("all is said again", map[string]string{"tower": "hp=94 owner=null ", "lamp": "on=7 hue=1 "})
	s.publish("our word is newer than the client's", set("lamp", "on", 8))
	s.hold(3)
	s.holds("so it is said", map[string]string{"tower": "hp=94 owner=null ", "lamp": "on=8 hue=1 "})
}

// TestClosed: nothing hangs when the publisher is closed.
func TestClosed(t *testing.T) {
	s := newScene(t, publisher.Config{})
	if err := s.space.Post(tower(1)); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { _, err := s.space.Publish(s.ctx, tower(2)); done <- err }()
	go func() { done <- s.space.Flush(s.ctx) }()
	go func() {
		for _, err := range s.space.Messages(s.ctx, new(publisher.Cursor)) {
			done <- err
		}
	}()
	s.p.Close()
	for range 3 {
		if err := <-done; !errors.Is(err, publisher.ErrClosed) {
			t.Errorf("got %v", err)
		}
	}
	if _, err := s.p.Space("x"); !errors.Is(err, publisher.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if err := s.space.Post(tower(1)); !errors.Is(err, publisher.ErrClosed) {
		t.Errorf("got %v", err)
	}
}
