package publisher_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/internal/natsembed"
	"github.com/dnprelay/dnprelay/publisher"
	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"
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
	s.holds("the state is removed", map[string]string{})
	s.publish("a key can come back", tower(1))
	if err := s.space.Clear(s.ctx); err != nil {
		t.Fatal(err)
	}
	s.holds("cleared", map[string]string{})
	if len(s.refused) > 0 {
		t.Errorf("refused %v", s.refused)
	}
}

// TestErrors requires an error that names the op and the value, and that a call with one
// changes nothing.
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
		{[]publisher.Op{publisher.Group{Client: "absent", Join: []string{"g"}}}, "group absent: unknown_client"},
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
	s.publish("the space forgets what was refused, so there is room", lamp(1), publisher.Put{Key: "x", Values: []publisher.Value{{Type: "string", Value: ""}}})
}

// TestNoRelay requires that a relay that starts late accepts what was published before,
// with the newest values only.
func TestNoRelay(t *testing.T) {
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

// TestReassert requires that a relay that takes over without a store receives the whole
// copy.
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
		followed <- each(s.space.Events(ctx, publisher.Filter{Kinds: []publisher.Kind{publisher.KindJoined, publisher.KindChanged}}), func(ev publisher.Event) { changed <- ev })
	}()
	defer func() { cancel(); <-followed }()
	if ev := next(s, changed); ev.Kind != publisher.KindJoined { // from here on no event is missed
		t.Fatalf("%+v", ev)
	}
	must(c.Write(s.ctx, "lamp", 0, []byte{7}))
	if ev := next(s, changed); ev.Key != "lamp" || ev.Values["on"] != uint8(7) || ev.Client == "" {
		t.Fatalf("%+v", ev)
	}
	s.holds("the client's value", map[string]string{"tower": "hp=93 owner=null ", "lamp": "on=7 hue=1 "})
	s.publish("an op behind the event, so that the copy has the event", set("tower", "hp", 94))
	s.hold(2)
	s.holds("the space repeats everything", map[string]string{"tower": "hp=94 owner=null ", "lamp": "on=7 hue=1 "})
	s.publish("our value is newer than the client's", set("lamp", "on", 8))
	s.hold(3)
	s.holds("the space repeats our value", map[string]string{"tower": "hp=94 owner=null ", "lamp": "on=8 hue=1 "})
}

// TestTTL: a state with a time to live lives while the Space does, and ends with it. Another one without stays.
func TestTTL(t *testing.T) {
	s := newScene(t, publisher.Config{})
	s.hold(1)
	mortal := tower(1)
	mortal.TTL = time.Second
	s.publish("the states", mortal, lamp(1))
	const renewals = 5 // take longer than the time to live
	both := map[string]string{"tower": "hp=1 owner=null ", "lamp": "on=1 hue=1 "}
	for end := time.Now().Add(patience); s.space.Stats().Accepted < 2+renewals; {
		s.holds("the Space says the state again", both)
		if time.Now().After(end) {
			t.Fatalf("%+v, want %d renewals", s.space.Stats(), renewals)
		}
	}
	expired := s.watchExpired()
	s.space.Close()
	s.holds("the Space has ended", map[string]string{"lamp": "on=1 hue=1 "})
	ev := next(s, expired)
	for ev.Key == "sign" {
		ev = next(s, expired)
	}
	if ev.Key != "tower" || ev.Seq == 0 {
		t.Fatalf("another game server hears %+v, want that the tower ended", ev)
	}
}

// watchExpired is what another game server hears of states whose time to live was over, from here on; before that,
// perhaps some of a key "sign".
func (s *scene) watchExpired() <-chan publisher.Event {
	s.Helper()
	other, err := publisher.Connect(s.ctx, publisher.Config{URL: s.nats.URL(), Log: s.discard})
	must(err)
	s.Cleanup(other.Close)
	space, err := other.Space("demo")
	must(err)
	events := make(chan publisher.Event, 100)
	go func() {
		_ = each(space.Events(s.ctx, publisher.Filter{Kinds: []publisher.Kind{publisher.KindExpired}}), func(ev publisher.Event) { events <- ev })
	}()
	b := s.bus()
	for { // until the loop is there
		must(b.Publish(bus.Msg{Subject: "dnp.v1.event.demo", Data: []byte(`{"type":"expired","key":"sign"}`)}))
		select {
		case <-events:
		case <-time.After(10 * time.Millisecond):
			continue
		}
		break
	}
	return events
}

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

// TestStaleAnswer requires that a change is repeated until the newest relay accepts it,
// although one that does not know of its successor accepted it before.
func TestStaleAnswer(t *testing.T) {
	srv, err := natsembed.Start(natsembed.Config{Listen: "127.0.0.1:0"})
	must(err)
	t.Cleanup(srv.Shutdown)
	nc, err := nats.Connect(srv.URL())
	must(err)
	defer nc.Close()
	epochs := []int{5, 4, 4, 5}
	asked := 0 // of the subscription's goroutine, and of the test once all is answered
	_, err = nc.Subscribe("dnp.v1.publish.demo", func(m *nats.Msg) {
		must(m.Respond(fmt.Appendf(nil, `{"epoch":%d,"seq":%d,"results":[{"ok":true}]}`, epochs[asked], 10+asked)))
		asked++
	})
	must(err)
	must(nc.Flush())
	p, err := publisher.Connect(t.Context(), publisher.Config{URL: srv.URL(), Retry: time.Millisecond})
	must(err)
	defer p.Close()
	space, err := p.Space("demo")
	must(err)
	for i, want := range []publisher.Position{{Epoch: 5, Seq: 10}, {Epoch: 5, Seq: 13}} {
		pos, err := space.Publish(t.Context(), tower(i))
		if err != nil || pos != want {
			t.Fatalf("%v, %v, want %v: the answer of an older epoch does not count", pos, err, want)
		}
	}
}

// TestDescribe: a state can have a link message with the names of its values, also when the publisher
// tells another relay of it again.
func TestDescribe(t *testing.T) {
	s := newScene(t, publisher.Config{Retry: time.Millisecond, Probe: 10 * time.Millisecond})
	s.hold(1)
	described := lamp(1)
	described.Describe = true
	s.publish("described", described)
	c := s.client()
	linked := func(c *dnptest.Client) bool {
		l := c.LinkNamed(`{"v":1,"key":"lamp","names":["on","hue"]}`)
		return l != nil && l.Phase == dnptest.LinkIsUp
	}
	s.until(c, "the link has the names", linked)
	s.hold(2)
	s.holds("another relay hears of it", map[string]string{"lamp": "on=1 hue=1 "})
	s.until(c, "and keeps the names", linked)
	described.Message = "a lamp"
	if _, err := s.space.Publish(s.ctx, described); err == nil || !strings.Contains(err.Error(), "not both") {
		t.Errorf("a message and Describe: %v", err)
	}
}

// TestFields: a value with components is set with a map or a struct, and a publisher tells another relay of it
// again.
func TestFields(t *testing.T) {
	s := newScene(t, publisher.Config{Retry: time.Millisecond, Probe: 10 * time.Millisecond})
	s.hold(1)
	gun := publisher.Value{Name: "gun", Type: "data", Value: map[string]any{"aim": [2]float32{1, -2}, "shots": 7},
		Fields: []publisher.Field{{Name: "aim", Type: "vector2f16"}, {Name: "shots", Type: "uint16"}}}
	put := publisher.Put{Key: "tank", Describe: true, Values: []publisher.Value{gun}}
	s.publish("with fields", put)
	s.holds("the relay knows them", map[string]string{"tank": "gun={\"aim\":[1,-2],\"shots\":7} "})
	s.publish("as a struct", set("tank", "gun", struct {
		Aim   [2]int `json:"aim"`
		Shots int    `json:"shots"`
	}{[2]int{2, 0}, 8}))
	s.holds("the relay has its numbers", map[string]string{"tank": "gun={\"aim\":[2,0],\"shots\":8} "})
	for why, bad := range map[string]any{"missing": map[string]any{"shots": 1}, "does not fit": map[string]any{"aim": []int{1, 2}, "shots": -1}, "its fields have 6": []byte{1}} {
		if _, err := s.space.Publish(s.ctx, set("tank", "gun", bad)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("set to %v: %v, want an error that says %q", bad, err, why)
		}
	}
	gun.Type = "uint8"
	if _, err := s.space.Publish(s.ctx, publisher.Put{Key: "x", Values: []publisher.Value{gun}}); err == nil || !strings.Contains(err.Error(), "fields are for data") {
		t.Errorf("fields of a number: %v", err)
	}
	s.hold(2)
	s.holds("another relay hears of it", map[string]string{"tank": "gun={\"aim\":[2,0],\"shots\":8} "})
}

// TestSpacesClose opens, uses and closes many spaces. They leave neither goroutines nor memory.
func TestSpacesClose(t *testing.T) {
	srv, err := natsembed.Start(natsembed.Config{Listen: "127.0.0.1:0"})
	must(err)
	t.Cleanup(srv.Shutdown)
	relay, err := nats.Connect(srv.URL()) // one that keeps nothing
	must(err)
	defer relay.Close()
	_, err = relay.Subscribe("dnp.v1.publish.*", func(m *nats.Msg) { _ = m.Respond([]byte(`{"epoch":1,"seq":1,"results":[{"ok":true}]}`)) })
	must(err)
	must(relay.Flush())
	p, err := publisher.Connect(t.Context(), publisher.Config{URL: srv.URL()})
	must(err)
	defer p.Close()
	round := func(spaces int) {
		for i := range spaces {
			space, err := p.Space(fmt.Sprint("room", i))
			must(err)
			if i%50 == 0 {
				_, err = space.Publish(t.Context(), tower(1))
			} else {
				err = space.Post(tower(1))
			}
			must(err)
			space.Close()
			if err := space.Post(tower(2)); !errors.Is(err, publisher.ErrClosed) {
				t.Fatalf("post to a closed space: %v", err)
			}
		}
	}
	measure := func() (goroutines int, bytes uint64) {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return runtime.NumGoroutine(), m.HeapAlloc
	}
	round(500) // what NATS keeps of it is there before the measurement
	goroutines, bytes := measure()
	round(5000)
	nowGoroutines, nowBytes := measure()
	if nowGoroutines > goroutines+20 || nowBytes > bytes+4<<20 {
		t.Errorf("%d goroutines and %d kB before, %d and %d kB after 5,000 spaces", goroutines, bytes>>10, nowGoroutines, nowBytes>>10)
	}
	again, err := p.Space("room1")
	must(err)
	_, err = again.Publish(t.Context(), tower(3))
	must(err)
}

// TestLazySpaces requires that a space costs nothing but its names before its first use.
func TestLazySpaces(t *testing.T) {
	s := newScene(t, publisher.Config{})
	before := runtime.NumGoroutine()
	for i := range 1000 {
		space, err := s.p.Space(fmt.Sprint("room", i))
		must(err)
		must(space.Post())
	}
	if now := runtime.NumGoroutine(); now > before+20 {
		t.Errorf("%d goroutines before, %d after 1,000 spaces were opened", before, now)
	}
}

// TestStatus takes the relay, and then NATS, away from a game server, which hears of both.
func TestStatus(t *testing.T) {
	told := make(chan publisher.Status, 100)
	s := newScene(t, publisher.Config{Retry: time.Millisecond, Timeout: 100 * time.Millisecond, Probe: 50 * time.Millisecond, Status: func(st publisher.Status) { told <- st }})
	next := func(kind publisher.StatusKind, why string) publisher.Status {
		t.Helper()
		for {
			select {
			case st := <-told:
				if st.Kind == kind {
					return st
				}
				t.Fatalf("%+v, want %s: %s", st, kind, why)
			case <-s.ctx.Done():
				t.Fatalf("no %s: %s", kind, why)
			}
		}
	}
	must(s.space.Post(tower(1)))
	if st := next(publisher.StatusNoRelay, "no relay holds the space"); st.Space != "demo" || st.Pending != 1 || st.Err == nil || st.Since.IsZero() {
		t.Errorf("%+v", st)
	}
	if st := s.space.Stats(); st.WithoutRelay.IsZero() || st.Pending != 1 || st.States != 1 || st.Repeated == 0 {
		t.Errorf("%+v", st)
	}
	s.hold(1)
	next(publisher.StatusCaughtUp, "a relay holds the space")
	if st := s.space.Stats(); !st.WithoutRelay.IsZero() || st.Pending != 0 || st.Accepted != 1 || st.Position.Epoch != 1 || st.Heard.IsZero() {
		t.Errorf("%+v", st)
	}
	s.unhold()
	next(publisher.StatusNoRelay, "the relay ends, and nothing is pending: the space asks for its relay")
	s.hold(2)
	next(publisher.StatusCaughtUp, "another relay")
	s.nats.Shutdown()
	next(publisher.StatusDisconnected, "NATS ends")
}

// TestTrace requires that a publish and a message have the trace of their call, and that no publish has two.
func TestTrace(t *testing.T) {
	srv, err := natsembed.Start(natsembed.Config{Listen: "127.0.0.1:0"})
	must(err)
	t.Cleanup(srv.Shutdown)
	nc, err := nats.Connect(srv.URL())
	must(err)
	defer nc.Close()
	traces := make(chan string, 100)
	answer := func(text string) nats.MsgHandler {
		return func(m *nats.Msg) {
			traces <- strings.Join(m.Header["traceparent"], ",") + " " + strings.Join(m.Header["tracestate"], ",")
			_ = m.Respond(fmt.Appendf(nil, text, strings.Repeat(`,{"ok":true}`, max(0, strings.Count(string(m.Data), `"op":`)-1))))
		}
	}
	_, err = nc.Subscribe("dnp.v1.publish.demo", answer(`{"epoch":1,"seq":1,"results":[{"ok":true}%s]}`))
	must(err)
	_, err = nc.Subscribe("dnp.v1.to.demo.alice", answer(`{"number":1}%s`))
	must(err)
	must(nc.Flush())
	p, err := publisher.Connect(t.Context(), publisher.Config{URL: srv.URL()})
	must(err)
	defer p.Close()
	space, err := p.Space("demo")
	must(err)
	state, err := trace.ParseTraceState("vendor=1")
	must(err)
	spans := make([]context.Context, 2)
	for i := range spans {
		spans[i] = trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{0xAB, byte(i)}, SpanID: trace.SpanID{0xCD}, TraceFlags: trace.FlagsSampled, TraceState: state,
		}))
	}
	want := func(why string, wanted ...string) {
		t.Helper()
		for _, w := range wanted {
			if got := <-traces; got != w {
				t.Fatalf("the trace is %q, want %q: %s", got, w, why)
			}
		}
	}
	const first, second = "00-ab000000000000000000000000000000-cd00000000000000-01 vendor=1", "00-ab010000000000000000000000000000-cd00000000000000-01 vendor=1"
	_, err = space.Publish(t.Context(), tower(1))
	must(err)
	want("a call without a span", " ")
	_, err = space.Publish(spans[0], tower(2))
	must(err)
	want("a call with a span", first)
	_, err = space.Send(spans[1], publisher.Outgoing{To: "alice", Data: []byte("x")})
	must(err)
	want("a message", second)
	results := make(chan error)
	for i, ctx := range spans {
		own := lamp(i)
		own.Key = fmt.Sprint("lamp", i) // a call of which nothing is the newest is not sent, and has no trace
		go func() { _, err := space.Publish(ctx, own, set("tower", "hp", i)); results <- err }()
	}
	for range spans {
		must(<-results)
	}
	got := map[string]bool{}
	for len(traces) > 0 {
		got[<-traces] = true
	}
	if len(got) != 2 || !got[first] || !got[second] {
		t.Errorf("two calls have the traces %v", got)
	}
}

// BenchmarkOutage sets 50 states 20 times a second, while the relay ends and another one takes over, and shows how long the
// slowest call takes. On a busy machine that is the time for which it does something else.
func BenchmarkOutage(b *testing.B) {
	w := newWorld()
	defer w.close()
	w.hold(1)
	p, err := publisher.Connect(b.Context(), publisher.Config{URL: w.nats.URL(), Log: w.discard})
	must(err)
	defer p.Close()
	space, err := p.Space("demo")
	must(err)
	var all []*publisher.Bound[bulb]
	for i := range 50 {
		bound, err := publisher.Bind(space, publisher.Put{Key: fmt.Sprint("npc", i)}, bulb{})
		must(err)
		all = append(all, bound)
	}
	var slowestSet, slowestPost time.Duration
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for epoch := uint64(2); b.Loop(); epoch++ {
		for round := range 60 {
			<-tick.C
			if round == 20 {
				w.unhold()
			} else if round == 40 {
				w.hold(epoch)
			}
			for i, bound := range all {
				start := time.Now()
				must(bound.Set(bulb{Hue: uint8(round + i)}))
				slowestSet = max(slowestSet, time.Since(start))
			}
			start := time.Now()
			must(space.Post(tower(round)))
			slowestPost = max(slowestPost, time.Since(start))
		}
	}
	b.ReportMetric(slowestSet.Seconds()*1000, "ms-slowest-Set")
	b.ReportMetric(slowestPost.Seconds()*1000, "ms-slowest-Post")
}
