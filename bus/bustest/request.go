package bustest

import (
	"errors"
	"fmt"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/subject"
)

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
	s.net.Sync()
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
		shard := cluster.Shard(space, Shards)
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
	s.answer(s.b, subjects.ShardPublishAll(cluster.Shard("demo", Shards)), "held")
	s.wantAnswer(s.request(subjects.Publish("demo", "k"), patience), "held?")
}
