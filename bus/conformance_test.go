// The tests of this file hold every bus to the same conformance suite: package natsbus over a
// real server, package membus over simulated time.
package bus_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/bus/membus"
	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/natsembed"
	"github.com/dnprelay/dnprelay/internal/simnet"
	"github.com/dnprelay/dnprelay/subject"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shards is the number of shards to which the bus under test maps publishes, with
// subject.Names{}.Mappings.
const shards = 64

// patience is how long a test waits for an expected message. It is long, because only a failing
// test waits that long.
const patience = 10 * time.Second

// A fixture makes the buses of one test.
type fixture struct {
	// connect returns the bus of another node.
	connect func() bus.Bus
	// sync returns when all subscriptions are known everywhere. A simulated bus also delivers
	// all messages.
	sync func()
	// messageMax is the most data of one message.
	messageMax int
}

func TestMembus(t *testing.T) {
	conform(t, func(t *testing.T) fixture {
		net := simnet.New(1)
		h := membus.New(membus.Config{
			Schedule: net.Schedule, Rand: rand.New(rand.NewPCG(1, 0)),
			Delay: time.Millisecond, Jitter: 5 * time.Millisecond, Shards: shards,
		})
		n := 0
		return fixture{
			connect: func() bus.Bus {
				n++
				return h.Node(fmt.Sprint(n))
			},
			sync: func() {
				for net.Step() {
				}
			},
			messageMax: h.MessageMax,
		}
	})
}

func TestNatsbus(t *testing.T) {
	for _, inProcess := range []bool{false, true} {
		t.Run(fmt.Sprintf("inProcess=%v", inProcess), func(t *testing.T) {
			conform(t, func(t *testing.T) fixture {
				listen := map[bool]string{false: "127.0.0.1:0"}[inProcess]
				s, err := natsembed.Start(natsembed.Config{Listen: listen, Mappings: subject.Names{}.Mappings(shards)})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(s.Shutdown)
				cfg := natsbus.Config{InProcess: s}
				if !inProcess {
					cfg = natsbus.Config{URL: s.URL()}
				}
				var all []*natsbus.Bus
				return fixture{
					connect: func() bus.Bus {
						b, err := natsbus.Connect(cfg)
						if err != nil {
							t.Fatal(err)
						}
						t.Cleanup(b.Close)
						all = append(all, b)
						return b
					},
					sync: func() {
						for _, b := range all {
							if err := b.Flush(patience); err != nil {
								t.Fatal(err)
							}
						}
					},
					messageMax: natsembed.PayloadMax,
				}
			})
		})
	}
}

// conform runs the suite, each test with a fixture of its own. The tests of subscriptions run a
// second time with shared ones.
func conform(t *testing.T, newFixture func(t *testing.T) fixture) {
	for _, c := range []struct {
		name      string
		run       func(*suite)
		subscribe bool // it tests subscriptions
	}{
		{"Wildcards", (*suite).wildcards, true},
		{"EverySubscriber", (*suite).everySubscriber, true},
		{"OrderPerPublisher", (*suite).order, true},
		{"Unsubscribe", (*suite).unsubscribe, true},
		{"Headers", (*suite).headers, true},
		{"Sizes", (*suite).sizes, true},
		{"BadSubjects", (*suite).badSubjects, true},
		{"Many", (*suite).many, true},
		{"Request", (*suite).requestAnswer, false},
		{"RequestFirstAnswer", (*suite).firstAnswer, false},
		{"RequestNoResponders", (*suite).noResponders, false},
		{"RequestTimeout", (*suite).timeout, false},
		{"ReplyNoResponders", (*suite).replyNoResponders, false},
		{"Mapping", (*suite).mapping, true},
		{"MappingRequest", (*suite).mappingRequest, false},
	} {
		for _, shared := range []bool{false, true} {
			name := c.name
			if shared {
				if name += "Shared"; !c.subscribe {
					continue
				}
			}
			t.Run(name, func(t *testing.T) {
				f := newFixture(t)
				c.run(&suite{T: t, fixture: f, a: f.connect(), b: f.connect(), shared: shared})
			})
		}
	}
}

type suite struct {
	*testing.T
	fixture
	a, b   bus.Bus
	shared bool // subscribe by SubscribeShared
}

// by returns the method by which this test subscribes.
func (s *suite) by(b bus.Bus) func(string, func(bus.Msg)) (func(), error) {
	if s.shared {
		return b.SubscribeShared
	}
	return b.Subscribe
}

// An inbox collects the calls of a handler.
type inbox chan result

type result struct {
	msg bus.Msg
	err error
}

func (s *suite) subscribe(b bus.Bus, pattern string) (in inbox, unsubscribe func()) {
	s.Helper()
	in = make(inbox, 4096)
	unsubscribe, err := s.by(b)(pattern, func(m bus.Msg) { in <- result{msg: m} })
	if err != nil {
		s.Fatalf("subscribe to %s: %v", pattern, err)
	}
	s.sync()
	return in, unsubscribe
}

func (s *suite) publish(b bus.Bus, m bus.Msg) {
	s.Helper()
	if err := b.Publish(m); err != nil {
		s.Fatalf("publish to %s: %v", m.Subject, err)
	}
}

func (s *suite) request(subject string, timeout time.Duration) inbox {
	in := make(inbox, 16)
	s.a.Request(bus.Msg{Subject: subject, Data: []byte("?")}, timeout, func(m bus.Msg, err error) {
		in <- result{msg: m, err: err}
	})
	return in
}

func (s *suite) next(in inbox, why string) result {
	s.Helper()
	s.sync()
	select {
	case r := <-in:
		return r
	case <-time.After(patience):
		s.Fatalf("no message arrived: %s", why)
		return result{}
	}
}

func (s *suite) wantMsg(in inbox, subject, data, why string) bus.Msg {
	s.Helper()
	r := s.next(in, why)
	if r.err != nil || r.msg.Subject != subject || string(r.msg.Data) != data {
		s.Fatalf("got %s %.40q, %v; want %s %q: %s", r.msg.Subject, r.msg.Data, r.err, subject, data, why)
	}
	return r.msg
}

func (s *suite) wildcards() {
	for _, c := range []struct {
		pattern  string
		yes, not []string
	}{
		{"w.a", []string{"w.a"}, []string{"w.b", "w.a.b", "w"}},
		{"w.*", []string{"w.a", "w.b"}, []string{"w", "w.a.b"}},
		{"w.*.c", []string{"w.a.c"}, []string{"w.a", "w.a.b", "w.a.c.d"}},
		{"w.>", []string{"w.a", "w.a.b.c"}, []string{"w", "v.a"}},
		{"w.*.>", []string{"w.a.b", "w.a.b.c"}, []string{"w.a"}},
	} {
		in, unsubscribe := s.subscribe(s.b, c.pattern)
		for _, subject := range append(c.not, c.yes...) {
			s.publish(s.a, bus.Msg{Subject: subject, Data: []byte(subject)})
		}
		for _, subject := range c.yes {
			s.wantMsg(in, subject, subject, "it matches "+c.pattern+", and no other subject may arrive before it")
		}
		unsubscribe()
	}
}

func (s *suite) everySubscriber() {
	var all []inbox
	for _, bus := range []bus.Bus{s.a, s.b, s.b} {
		in, _ := s.subscribe(bus, "each")
		all = append(all, in)
	}
	s.publish(s.a, bus.Msg{Subject: "each", Data: []byte("x")})
	for _, in := range all {
		s.wantMsg(in, "each", "x", "every subscription gets it, including the publisher's own")
	}
}

func (s *suite) order() {
	const n = 1000
	in, _ := s.subscribe(s.b, "order.>")
	for i := range n {
		s.publish(s.a, bus.Msg{Subject: fmt.Sprintf("order.%d", i%3), Data: []byte(fmt.Sprint(i))})
	}
	for i := range n {
		s.wantMsg(in, fmt.Sprintf("order.%d", i%3), fmt.Sprint(i), "messages of one publisher keep their order")
	}
}

func (s *suite) unsubscribe() {
	gone, unsubscribe := s.subscribe(s.b, "u")
	stays, _ := s.subscribe(s.b, "u")
	s.publish(s.a, bus.Msg{Subject: "u", Data: []byte("1")})
	s.wantMsg(gone, "u", "1", "still subscribed")
	s.wantMsg(stays, "u", "1", "still subscribed")
	unsubscribe()
	unsubscribe() // twice is once
	s.sync()
	s.publish(s.a, bus.Msg{Subject: "u", Data: []byte("2")})
	s.wantMsg(stays, "u", "2", "the other subscription stays")
	if len(gone) > 0 {
		s.Errorf("a message arrived after unsubscribe")
	}
}

func (s *suite) many() {
	const n = 300
	var all []inbox
	var ends []func()
	for i := range n {
		in := make(inbox, 4)
		end, err := s.by(s.b)(fmt.Sprintf("many.%d", i), func(m bus.Msg) { in <- result{msg: m} })
		if err != nil {
			s.Fatal(err)
		}
		all, ends = append(all, in), append(ends, end)
	}
	s.sync()
	for i := range n {
		s.publish(s.a, bus.Msg{Subject: fmt.Sprintf("many.%d", i), Data: []byte(fmt.Sprint(i))})
	}
	for i, in := range all {
		s.wantMsg(in, fmt.Sprintf("many.%d", i), fmt.Sprint(i), "each subscription gets its own message")
		ends[i]()
	}
	s.sync()
	last, _ := s.subscribe(s.b, "many.>")
	for i := range n {
		s.publish(s.a, bus.Msg{Subject: fmt.Sprintf("many.%d", i)})
		s.wantMsg(last, fmt.Sprintf("many.%d", i), "", "it is subscribed to")
	}
	for i, in := range all {
		if len(in) > 0 {
			s.Errorf("many.%d got a message after unsubscribe", i)
		}
	}
}

func (s *suite) headers() {
	in, _ := s.subscribe(s.b, "h")
	s.publish(s.a, bus.Msg{Subject: "h", Data: []byte("1"), Header: map[string]string{"Dnp-Session": "s", "Dnp-Number": "18446744073709551615"}})
	s.publish(s.a, bus.Msg{Subject: "h", Data: []byte("2")})
	m := s.wantMsg(in, "h", "1", "with header")
	if len(m.Header) != 2 || m.Header["Dnp-Session"] != "s" || m.Header["Dnp-Number"] != "18446744073709551615" {
		s.Errorf("header %v", m.Header)
	}
	if m := s.wantMsg(in, "h", "2", "without"); m.Header != nil {
		s.Errorf("got header %v, want none", m.Header)
	}
}

func (s *suite) sizes() {
	in, _ := s.subscribe(s.b, "size")
	large := bytes.Repeat([]byte("x"), s.messageMax+1)
	if err := s.a.Publish(bus.Msg{Subject: "size", Data: large}); !errors.Is(err, bus.ErrMessageSize) {
		s.Errorf("%d bytes: got %v, want ErrMessageSize", len(large), err)
	}
	s.publish(s.a, bus.Msg{Subject: "size", Data: large[1:]})
	s.publish(s.a, bus.Msg{Subject: "size"})
	if r := s.next(in, "the largest message"); !bytes.Equal(r.msg.Data, large[1:]) {
		s.Errorf("the largest message arrived with %d bytes", len(r.msg.Data))
	}
	s.wantMsg(in, "size", "", "a message may be empty")
}

func (s *suite) badSubjects() {
	for _, pattern := range []string{"", "a..b", "a b", "a.>.b", ".a", "a."} {
		if _, err := s.by(s.a)(pattern, func(bus.Msg) {}); err == nil {
			s.Errorf("subscribed to %q", pattern)
		}
	}
}

func (s *suite) answer(b bus.Bus, subject, data string) {
	_, err := b.Subscribe(subject, func(m bus.Msg) {
		if err := b.Publish(bus.Msg{Subject: m.Reply, Data: []byte(data + string(m.Data))}); err != nil {
			s.Errorf("answer: %v", err)
		}
	})
	if err != nil {
		s.Fatal(err)
	}
	s.sync()
}

func (s *suite) wantAnswer(in inbox, data string) {
	s.Helper()
	r := s.next(in, "the answer")
	if r.err != nil || string(r.msg.Data) != data {
		s.Fatalf("got %q, %v; want %q", r.msg.Data, r.err, data)
	}
	s.sync()
	if len(in) > 0 {
		s.Error("the handler was called twice")
	}
}

func (s *suite) requestAnswer() {
	s.answer(s.b, "ask", "yes")
	for range 3 {
		s.wantAnswer(s.request("ask", patience), "yes?")
	}
	s.answer(s.a, "own", "me")
	s.wantAnswer(s.request("own", patience), "me?")
}

// firstAnswer sends two answers to each request. The second one must not answer the next
// request.
func (s *suite) firstAnswer() {
	_, err := s.b.Subscribe("twice", func(m bus.Msg) {
		if err := s.b.Publish(bus.Msg{Subject: m.Reply, Data: []byte("1")}); err != nil {
			s.Errorf("answer: %v", err)
		}
		// The test may have ended and closed the bus.
		_ = s.b.Publish(bus.Msg{Subject: m.Reply, Data: []byte("2")})
	})
	if err != nil {
		s.Fatal(err)
	}
	s.sync()
	for range 20 {
		s.wantAnswer(s.request("twice", patience), "1")
	}
}

func (s *suite) noResponders() {
	r := s.next(s.request("deserted", time.Hour), "without a subscription the bus reports no responders at once")
	if !errors.Is(r.err, bus.ErrNoResponders) {
		s.Errorf("got %q, %v; want ErrNoResponders", r.msg.Data, r.err)
	}
}

func (s *suite) timeout() {
	s.subscribe(s.b, "silent")
	r := s.next(s.request("silent", 10*time.Millisecond), "the timeout")
	if !errors.Is(r.err, bus.ErrTimeout) {
		s.Errorf("got %q, %v; want ErrTimeout", r.msg.Data, r.err)
	}
}

// replyNoResponders publishes with a reply subject instead of Request, as for several answers.
func (s *suite) replyNoResponders() {
	in, _ := s.subscribe(s.a, "answers")
	s.publish(s.a, bus.Msg{Subject: "deserted", Reply: "answers"})
	if r := s.next(in, "the notice that the subject has no subscription"); !r.msg.NoResponders() {
		s.Errorf("got %+v, want no responders", r.msg)
	}
	_, _ = s.subscribe(s.b, "somebody")
	s.publish(s.a, bus.Msg{Subject: "somebody", Reply: "answers"})
	s.publish(s.a, bus.Msg{Subject: "answers", Data: []byte("end")})
	s.wantMsg(in, "answers", "end", "the subject has a subscription, so the bus sends no notice")
}

func (s *suite) mapping() {
	var subjects subject.Names
	for i := range 50 {
		space := fmt.Sprintf("space-%d", i)
		shard := cluster.Shard(space, shards)
		publishes, stop1 := s.subscribe(s.b, subjects.ShardPublishAll(shard))
		gets, stop2 := s.subscribe(s.b, subjects.ShardGetAll(shard))
		s.publish(s.a, bus.Msg{Subject: subjects.Publish(space, "")})
		s.publish(s.a, bus.Msg{Subject: subjects.Publish(space, "a.b.c")})
		s.publish(s.a, bus.Msg{Subject: subjects.Get(space, "")})
		s.publish(s.a, bus.Msg{Subject: subjects.Get(space, "a")})
		s.wantMsg(publishes, subjects.ShardPublish(shard, space, ""), "", "a publish without key is mapped")
		s.wantMsg(publishes, subjects.ShardPublish(shard, space, "a.b.c"), "", "a publish with key is mapped")
		s.wantMsg(gets, subjects.ShardGet(shard, space, ""), "", "a get without key is mapped")
		s.wantMsg(gets, subjects.ShardGet(shard, space, "a"), "", "a get with key is mapped")
		stop1()
		stop2()
	}
}

func (s *suite) mappingRequest() {
	var subjects subject.Names
	if r := s.next(s.request(subjects.Publish("demo", "k"), time.Hour), "the shard has no holder"); !errors.Is(r.err, bus.ErrNoResponders) {
		s.Errorf("got %v, want ErrNoResponders", r.err)
	}
	s.answer(s.b, subjects.ShardPublishAll(cluster.Shard("demo", shards)), "held")
	s.wantAnswer(s.request(subjects.Publish("demo", "k"), patience), "held?")
}
