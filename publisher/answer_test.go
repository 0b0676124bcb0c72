package publisher

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
)

// A scripted is a Space by hand, with a publish under way that a relay of epoch 5 answers.
type scripted struct {
	*Space
	now     time.Time
	refused []string
}

func newScripted(t *testing.T, ops ...Op) *scripted {
	t.Helper()
	s := &scripted{Space: quietSpace(), now: time.Unix(1000, 0)}
	s.in.inbox, s.epoch = "inbox.", 5
	s.p.cfg.Refused = func(_ string, err error) { s.refused = append(s.refused, err.Error()) }
	if err := s.Post(ops...); err != nil {
		t.Fatal(err)
	}
	return s
}

// answer sends what is pending, and lets the relay answer. It returns what was sent.
func (s *scripted) answer(text string) (sent string) {
	next := s.flush(s.now)
	if next == nil {
		return ""
	}
	m := &nats.Msg{Subject: next.msg.Reply, Data: []byte(text)}
	if text == "" {
		m.Header = nats.Header{"Status": {"503"}}
	}
	s.answered(s.now, m)
	for _, tell := range s.untold {
		tell()
	}
	s.untold = nil
	return string(next.msg.Data)
}

var lampPut = Put{Key: "lamp", Access: Access{All: true}, Values: []Value{{Name: "on", Type: Uint8, Value: 1}, {Name: "hue", Type: Uint8, Value: 2}}}

// TestAnswers has what relays answer to a put: it is accepted, refused, or sent again, and when.
func TestAnswers(t *testing.T) {
	const retry = 50 * time.Millisecond
	for _, c := range []struct {
		why, answer                string
		accepted, refused, pending int
		pause                      time.Duration
	}{
		{"accepted", `{"epoch":5,"seq":1,"results":[{}]}`, 1, 0, 0, 0},
		{"accepted by a new relay, which is told everything", `{"epoch":6,"seq":1,"results":[{}]}`, 1, 0, 1, 0},
		{"accepted by a relay that has a successor", `{"epoch":4,"seq":1,"results":[{}]}`, 0, 0, 1, retry},
		{"no relay", ``, 0, 0, 1, retry},
		{"no answer", `nonsense`, 0, 0, 1, retry},
		{"an answer to something else", `{"epoch":5,"seq":1,"results":[{},{}]}`, 0, 0, 1, retry},
		{"busy", `{"epoch":5,"error":{"code":"busy","retry_after_ms":700}}`, 0, 0, 1, 700 * time.Millisecond},
		{"busy for this op", `{"epoch":5,"results":[{"error":{"code":"busy","retry_after_ms":700}}]}`, 0, 0, 1, 700 * time.Millisecond},
		{"busy for a moment", `{"epoch":5,"results":[{"error":{"code":"busy"}}]}`, 0, 0, 1, retry},
		{"refused", `{"epoch":5,"error":{"code":"too_large","message":"m"}}`, 0, 1, 0, 0},
		{"refused by itself", `{"epoch":5,"results":[{"error":{"code":"too_large","message":"m"}}]}`, 0, 1, 0, 0},
	} {
		s := newScripted(t, lampPut)
		s.answer(c.answer)
		pause := max(0, s.pausedUntil.Sub(s.now))
		if got := s.counters; int(got.Accepted) != c.accepted || int(got.Refused) != c.refused || len(s.refused) != c.refused || s.pendingOps() != c.pending || pause != c.pause {
			t.Errorf("%s: accepted %d, refused %q, pending %d, a pause of %v; want %d, %d, %d and %v", c.why, got.Accepted, s.refused, s.pendingOps(), pause, c.accepted, c.refused, c.pending, c.pause)
		}
		if _, there := s.states["lamp"]; there != (c.refused == 0) {
			t.Errorf("%s: the copy has the state: %t", c.why, there)
		}
		if s.answer(c.answer); s.pausedUntil.After(s.now) && len(s.sent) > 0 {
			t.Errorf("%s: something is sent during the pause", c.why)
		}
	}
}

// TestLateAnswer: a publish without an answer is not sent again. The relay is asked for the answer, again and again, and whichever comes
// settles the publish, once. One that the relay does not know is sent again.
func TestLateAnswer(t *testing.T) {
	for why, c := range map[string]struct {
		answer            string
		accepted, pending int
	}{
		"applied":          {`{"epoch":5,"seq":1,"results":[{}]}`, 1, 0},
		"not known":        {`{"epoch":5,"error":{"code":"busy"}}`, 0, 1},
		"another relay's":  {`{"epoch":6,"error":{"code":"busy"}}`, 0, 2}, // it is told everything, too
		"a former relay's": {`{"epoch":4,"seq":1,"results":[{}]}`, 0, 1},
	} {
		s := newScripted(t, lampPut)
		first := s.flush(s.now)
		for range 3 {
			s.now = s.now.Add(time.Hour)
			s.expire(s.now)
			ask := s.flush(s.now)
			if ask == nil || ask.msg.Reply != first.msg.Reply || ask.msg.Header.Get("Dnp-Again") == "" || len(ask.msg.Data) > 0 || s.flush(s.now) != nil {
				t.Fatalf("%s: the relay gets %+v, want one question for the answer", why, ask)
			}
			s.answered(s.now, &nats.Msg{Subject: first.msg.Reply, Header: nats.Header{"Status": {"503"}}}) // no relay at the moment
		}
		for range 2 {
			s.answered(s.now, &nats.Msg{Subject: first.msg.Reply, Data: []byte(c.answer)})
		}
		if int(s.counters.Accepted) != c.accepted || len(s.sent) != 0 || s.pendingOps() != c.pending {
			t.Errorf("%s: accepted %d; under way %d, pending %d; want %d, none and %d", why, s.counters.Accepted, len(s.sent), s.pendingOps(), c.accepted, c.pending)
		}
	}
}

// TestWriteBeforeAnswer: what a client writes while an op has no answer is later than the op if its position is, because the answer was lost and
// asked for. Otherwise answers and events come in the order in which the relay applied them, so the op is later.
func TestWriteBeforeAnswer(t *testing.T) {
	for seq, want := range map[int]string{2: "9", 3: "7", 4: "7"} { // of the answer
		s := newScripted(t, lampPut)
		s.answer(`{"epoch":5,"seq":1,"results":[{}]}`)
		if err := s.Post(Set{"lamp", Values{"on": 7}}); err != nil {
			t.Fatal(err)
		}
		op := s.flush(s.now)
		s.event(s.now, []byte(`{"type":"changed","epoch":5,"seq":3,"key":"lamp","client":"ann","values":{"on":9}}`))
		s.answered(s.now, &nats.Msg{Subject: op.msg.Reply, Data: fmt.Appendf(nil, `{"epoch":5,"seq":%d,"results":[{}]}`, seq)})
		if st, _ := s.State("lamp"); fmt.Sprint(st.Value("on")) != want {
			t.Errorf("the answer has the position %d and the write 3: the copy has %v, want %s", seq, st.Value("on"), want)
		}
	}
}

// TestLostState: a relay that does not know a state gets all of it, with what clients wrote, and a relay that contradicts itself is
// believed in the end.
func TestLostState(t *testing.T) {
	s := newScripted(t, lampPut)
	s.answer(`{"epoch":5,"seq":1,"results":[{}]}`)
	s.event(s.now, []byte(`{"type":"changed","epoch":5,"seq":2,"key":"lamp","client":"ann","values":{"hue":9}}`))
	const set, lost = `{"atomic":false,"ops":[{"op":"set","key":"lamp","values":{"0":7}}]}`, `{"epoch":5,"results":[{"error":{"code":"unknown_state","message":"m"}}]}`
	if err := s.Post(Set{"lamp", Values{"on": 7}}); err != nil {
		t.Fatal(err)
	}
	if sent := s.answer(lost); sent != set {
		t.Errorf("the relay gets %s, want %s", sent, set)
	}
	for n := 1; n < 6; n++ {
		if sent := s.answer(lost); !strings.Contains(sent, `"value":7`) || !strings.Contains(sent, `"value":9`) {
			t.Errorf("after %d refusals the relay gets %s, want the state with the value of the client", n, sent)
		}
	}
	if len(s.refused) != 1 || s.pendingOps() != 0 {
		t.Errorf("after six refusals: refused %q, pending %d", s.refused, s.pendingOps())
	}
}

// TestUnknownClient: the groups and eyes of a client of which the relay has yet to hear are said again a moment later.
func TestUnknownClient(t *testing.T) {
	for _, op := range []Op{Group{Client: "ann", Join: []string{"red"}}, Eye{Client: "ann"}} {
		s := newScripted(t, op)
		s.answer(`{"epoch":5,"results":[{"error":{"code":"unknown_client","message":"m"}}]}`)
		if next := s.flush(s.now); next != nil || len(s.refused) > 0 || s.pendingOps() != 1 {
			t.Errorf("%T: at once the relay gets %v; refused %q, pending %d", op, next, s.refused, s.pendingOps())
		}
		s.pushDelayed(s.now.Add(s.p.cfg.Retry))
		if s.answer(`{"epoch":5,"seq":1,"results":[{}]}`); s.counters.Accepted != 1 || s.pendingOps() != 0 {
			t.Errorf("%T: accepted %d, pending %d", op, s.counters.Accepted, s.pendingOps())
		}
	}
}

// TestWindow: as many publishes are under way as Config.Window says.
func TestWindow(t *testing.T) {
	s := newScripted(t)
	s.p.cfg.Window = 3
	for i := range 5 {
		if err := s.Post(Remove{strconv.Itoa(i)}); err != nil {
			t.Fatal(err)
		}
		if next := s.flush(s.now); (next != nil) != (i < 3) {
			t.Errorf("publish %d is sent: %t", i+1, next != nil)
		}
	}
	s.transmitted(s.now, &transmission{1, &nats.Msg{}}, nats.ErrMaxPayload)
	s.transmitted(s.now, &transmission{2, &nats.Msg{}}, errors.New("closed"))
	if s.counters.Refused != 1 || s.counters.Repeated != 1 || len(s.sent) != 1 {
		t.Errorf("refused %d, repeated %d, under way %d; want what NATS never takes refused, and the rest sent again", s.counters.Refused, s.counters.Repeated, len(s.sent))
	}
}

// TestWrittenValues: what a client wrote is not sent back, and does not replace what this game server is about to say.
func TestWrittenValues(t *testing.T) {
	s := newScripted(t, lampPut)
	s.answer(`{"epoch":5,"seq":1,"results":[{}]}`)
	if err := s.Post(Set{"lamp", Values{"on": 7}}); err != nil {
		t.Fatal(err)
	}
	s.event(s.now, []byte(`{"type":"changed","epoch":5,"seq":2,"key":"lamp","client":"ann","values":{"on":8,"hue":9}}`))
	state, ok := s.State("lamp")
	if got := fmt.Sprint(state.Values, ok); got != "[{on uint8 7 false} {hue uint8 9 true}] true" {
		t.Errorf("the copy is %s", got)
	}
	s.answer(`{"epoch":5,"seq":3,"results":[{}]}`)
	s.follow(6)
	s.assertSome(assertMax)
	if sent := s.answer(`{"epoch":6,"seq":1,"results":[{}]}`); !strings.Contains(sent, `"name":"on","value":7,"as_of":[5,3]`) || !strings.Contains(sent, `"name":"hue","value":9,"as_of":[5,2]`) {
		t.Errorf("a new relay gets %s, want each value with the position at which it was said", sent)
	}
	late := func(why, event, want string) {
		t.Helper()
		s.event(s.now, []byte(event))
		if state, _ := s.State("lamp"); fmt.Sprint(state.Value("on")) != want {
			t.Errorf("%s: the copy has %v, want %s", why, state.Value("on"), want)
		}
	}
	late("a write of before the answer", `{"type":"changed","epoch":5,"seq":2,"key":"lamp","values":{"on":8}}`, "7")
	late("a write of behind the answer", `{"type":"changed","epoch":6,"seq":1,"key":"lamp","values":{"on":8}}`, "8")
	if err := s.Post(Set{"lamp", Values{"on": 5}}); err != nil {
		t.Fatal(err)
	}
	next := s.flush(s.now)
	late("a write before the answer to a set, which the relay applies later", `{"type":"changed","epoch":6,"seq":2,"key":"lamp","values":{"on":6}}`, "5")
	s.answered(s.now, &nats.Msg{Subject: next.msg.Reply, Data: []byte(`{"epoch":6,"seq":2,"results":[{}]}`)})
	late("a write behind that answer, in the same batch", `{"type":"changed","epoch":6,"seq":2,"key":"lamp","values":{"on":4}}`, "4")
	if err := s.Post(Set{"lamp", Values{"hue": 3}}); err != nil {
		t.Fatal(err)
	}
	s.answer(`{"epoch":6,"seq":2,"results":[{}]}`)
	if state, _ := s.State("lamp"); state.Values[1].Client || state.Value("hue") != state.Values[1].Value {
		t.Errorf("after the game server set it, the copy has %+v", state.Values)
	}
}

// TestOtherRelay: a new relay is told of all interests, eyes and groups, and of removals that the one before it may not have stored.
func TestOtherRelay(t *testing.T) {
	s := newScripted(t, lampPut, Group{Client: "ann", Join: []string{"red"}}, Eye{Client: "ann"}, Interest{"walker", Distance{At: "0", Bands: []Band{{Within: 1}}}})
	s.answer(`{"epoch":5,"seq":1,"results":[{},{},{},{}]}`)
	if err := s.Post(Remove{"lamp"}); err != nil {
		t.Fatal(err)
	}
	s.answer(`{"epoch":5,"seq":2,"results":[{}]}`)
	s.follow(6)
	s.assertSome(assertMax)
	sent := s.answer(`{"epoch":6,"seq":1,"results":[{},{},{},{}]}`)
	for _, want := range []string{`{"op":"interest","name":"walker"`, `{"op":"eye","client":"ann"`, `{"op":"group","client":"ann","join":["red"]}`, `{"op":"remove","key":"lamp","as_of":[5,2]}`} {
		if !strings.Contains(sent, want) {
			t.Errorf("the new relay gets %s, want %s", sent, want)
		}
	}
	s.forgetRemoved(time.Now().Add(59 * time.Second))
	if len(s.removed) != 1 {
		t.Error("a removal is forgotten before a relay must have stored it")
	}
	if s.forgetRemoved(time.Now().Add(61 * time.Second)); len(s.removed)+len(s.states) > 0 {
		t.Errorf("after a minute the copy has %v", s.removed)
	}
}

// TestPutAgainKeeps: a put that says nothing of the interest leaves it, and one without a time to live takes that away.
func TestPutAgainKeeps(t *testing.T) {
	first := lampPut
	first.Interest, first.TTL = "walker", time.Minute
	s := newScripted(t, first)
	s.answer(`{"epoch":5,"seq":1,"results":[{}]}`)
	if err := s.Post(lampPut); err != nil {
		t.Fatal(err)
	}
	if sent := s.answer(`{"epoch":5,"seq":2,"results":[{}]}`); !strings.Contains(sent, `"interest":"walker","ttl":"0s"`) {
		t.Errorf("the relay gets %s", sent)
	}
}

// TestSaid has what edges pass on from clients: messages, and what the game server only has to know the number of.
func TestSaid(t *testing.T) {
	s := quietSpace()
	for want, header := range map[string]nats.Header{
		"message": {subject.HeaderSession: {"s"}},
		"":        {subject.HeaderSession: {"s"}, subject.HeaderReliable: {"true"}, subject.HeaderNumber: {"3"}, subject.HeaderRequest: {"7"}}, // a refused command
	} {
		ev, ok := s.said(time.Now(), &nats.Msg{Subject: s.p.subjects.From("demo", "ann"), Header: header, Data: []byte("x")})
		if ok != (want != "") || string(ev.Kind) != want || ok && (ev.Client != "ann" || string(ev.Message.Data) != "x") {
			t.Errorf("%v is the event %+v, %t", header, ev, ok)
		}
	}
	for why, header := range map[string]nats.Header{
		"no session": {}, "no number": {subject.HeaderSession: {"s"}, subject.HeaderReliable: {"true"}},
		"a number that is none": {subject.HeaderSession: {"s"}, subject.HeaderReliable: {"true"}, subject.HeaderNumber: {"x"}},
	} {
		if ev, ok := s.said(time.Now(), &nats.Msg{Subject: s.p.subjects.From("demo", "ann"), Header: header}); ok {
			t.Errorf("%s: %+v", why, ev)
		}
	}
	cmd := &Command{Client: "ann", Name: "open", space: s}
	if err := cmd.Reply(context.Background(), make([]byte, 1<<20)); err == nil || !strings.Contains(err.Error(), "open") {
		t.Errorf("an answer that no client takes: %v", err)
	}
}

// TestAnswerOfSession: an answer names the client, the session and the request, so that no other session gets it.
func TestAnswerOfSession(t *testing.T) {
	s := quietSpace()
	s.p.nc = &nats.Conn{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nothing is sent
	m := &nats.Msg{Header: nats.Header{}}
	err := s.answerOnce(ctx, "ann", "s1", 7, m)
	if !errors.Is(err, context.Canceled) || m.Subject != s.p.subjects.To("demo", "ann") || m.Header.Get(subject.HeaderSession) != "s1" || m.Header.Get(subject.HeaderAnswer) != "7" {
		t.Errorf("the answer is %+v, %v", m, err)
	}
}

// TestBoundEnds: a Bound gives away no memory of its own, and changes nothing when its state is another's, is removed, or its Space
// is closed.
func TestBoundEnds(t *testing.T) {
	type lamp struct{ Data []byte }
	over, cancel := context.WithCancel(t.Context())
	cancel() // nothing is sent
	for why, end := range map[string]func(s *Space){
		"removed": func(s *Space) { _ = s.Post(Remove{"lamp"}) }, "cleared": func(s *Space) { _ = s.Clear(over) }, "closed": func(s *Space) { s.stop() },
		"put by other means": func(s *Space) { _ = s.Post(Put{Key: "lamp", Values: []Value{{Type: Uint8, Value: 1}}}) },
	} {
		s := quietSpace()
		s.p.nc = &nats.Conn{}
		b, err := Bind(s, Put{Key: "lamp"}, lamp{Data: []byte{1}})
		if err != nil {
			t.Fatal(err)
		}
		b.Get().Data[0] = 9
		if got := b.Get().Data[0]; got != 1 {
			t.Errorf("who changes what Get returned changes the state to %d", got)
		}
		end(s)
		if err := b.Set(lamp{Data: []byte{2}}); err == nil {
			t.Errorf("%s: the Bound goes on", why)
		}
		if why == "cleared" && len(s.states)+len(s.interests) > 0 {
			t.Errorf("after Clear the copy has %v", s.states)
		}
	}
}
