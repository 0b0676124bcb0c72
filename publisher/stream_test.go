package publisher

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/command"
	"github.com/dnprelay/dnprelay/internal/natsembed"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
)

// TestPasses has events that loops want, and those that they do not.
func TestPasses(t *testing.T) {
	sees := Event{Kind: KindSees, Client: "ann", Keys: []string{"npc.1", "door.a", "door.b"}}
	anew := Event{Kind: KindSees, Client: "ann", Keys: []string{"npc.1"}, Anew: true}
	doors := Filter{KeyPrefix: "door."}
	for _, c := range []struct {
		why    string
		filter Filter
		ev     Event
		want   string // the keys that are left; - if it does not pass
	}{
		{"all", Filter{}, sees, "npc.1 door.a door.b"},
		{"all but commands", Filter{}, Event{Kind: KindCommand}, "-"},
		{"commands for who asks", Filter{Kinds: []Kind{KindCommand}}, Event{Kind: KindCommand}, ""},
		{"another kind", Filter{Kinds: []Kind{KindUnsees}}, sees, "-"},
		{"some of the keys", doors, sees, "door.a door.b"},
		{"none of the keys", doors, Event{Kind: KindSees, Keys: []string{"npc.1"}}, "-"},
		{"none of the keys, and nothing else any more", doors, anew, ""},
		{"another key", doors, Event{Kind: KindLinked, Key: "gate"}, "-"},
		{"another client", Filter{Client: "bob"}, sees, "-"},
		{"the client", Filter{Client: "ann"}, sees, "npc.1 door.a door.b"},
		{"of no client", Filter{Client: "ann"}, Event{Kind: KindReassert}, ""},
	} {
		got := "-"
		if ev := c.ev; c.filter.passes(&ev) {
			c.filter.narrow(&ev)
			got = strings.Join(ev.Keys, " ")
		}
		if got != c.want {
			t.Errorf("%s: %+v has %q left of %+v, want %q", c.why, c.filter, got, c.ev, c.want)
		}
	}
	if !slices.Equal(sees.Keys, []string{"npc.1", "door.a", "door.b"}) {
		t.Errorf("other loops get the keys %q", sees.Keys)
	}
}

// TestWaitingEvents: 65,536 events and 16 MiB of them wait for a loop, which is told that it misses the rest.
func TestWaitingEvents(t *testing.T) {
	message := func(size int) Event { return Event{Kind: KindMessage, Message: &Message{Data: make([]byte, size)}} }
	for _, c := range []struct {
		why  string
		ev   Event
		most int
	}{
		{"events", Event{Kind: KindLinked}, 65_536},
		{"messages", message(1 << 20), 16},
		{"keys", Event{Kind: KindSees, Keys: []string{strings.Repeat("x", 1<<19), strings.Repeat("y", 1<<19)}}, 16},
	} {
		st := &stream{wake: make(chan struct{}, 1)}
		for range 2 { // what was taken makes room
			for i := range c.most + 2 {
				st.push(c.ev)
				if want := i >= c.most; st.lost != want {
					t.Fatalf("%s: after %d the loop misses some: %t", c.why, i+1, st.lost)
				}
			}
			if list, lost := st.take(); len(list) != c.most || !lost {
				t.Errorf("%s: the loop gets %d, and is told that it misses some: %t; want %d", c.why, len(list), lost, c.most)
			}
		}
	}
}

// TestMissed: a loop hears where events are missing, because it was slow or NATS was away.
func TestMissed(t *testing.T) {
	srv, err := natsembed.Start(natsembed.Config{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Shutdown()
	again := make(chan struct{}, 1)
	nc, err := nats.Connect(srv.URL(), nats.ReconnectHandler(func(*nats.Conn) { again <- struct{}{} }))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	s := quietSpace()
	s.p.nc = nc
	st := &stream{filter: Filter{Kinds: []Kind{KindLinked}}, wake: make(chan struct{}, 1), ready: make(chan struct{})}
	close(st.ready)
	st.push(Event{Kind: KindLinked, Key: "a"})
	st.lose()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var got []string
	wanted := true
	err = st.loop(ctx, s, func(ev Event) {
		switch got = append(got, strings.TrimSpace(string(ev.Kind)+" "+ev.Key)); len(got) {
		case 2:
			if err := nc.ForceReconnect(); err != nil {
				t.Error(err)
			}
			<-again
			st.push(Event{Kind: KindLinked, Key: "b"})
		case 4:
			wanted = false
		}
	}, &wanted)
	if want := []string{"linked a", "missed", "missed", "linked b"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("the loop hears %q, %v, want %q", got, err, want)
	}
}

// TestPresence has events about sessions come late, twice, and not at all: a loop hears once that each joined, before what its
// client says, and once that it left.
func TestPresence(t *testing.T) {
	var got []string
	w := &follower{sessions: map[string]*presence{}, follows: true, f: func(ev Event) { got = append(got, string(ev.Kind)+" "+ev.Session) }}
	for _, c := range []struct {
		why   string
		ev    Event
		stale bool // the loop asks the edges
		want  []string
	}{
		{"it joins", Event{Kind: KindJoined, Session: "1"}, false, []string{"joined 1"}},
		{"the same", Event{Kind: KindJoined, Session: "1"}, false, nil},
		{"it speaks", Event{Kind: KindMessage, Session: "1"}, false, []string{"message 1"}},
		{"one speaks that did not join", Event{Kind: KindMessage, Session: "2"}, true, []string{"joined 2", "message 2"}},
		{"one asks that did not join", Event{Kind: KindCommand, Session: "3"}, true, []string{"joined 3", "command 3"}},
		{"one leaves", Event{Kind: KindLeft, Session: "1"}, false, []string{"left 1"}},
		{"the same", Event{Kind: KindLeft, Session: "1"}, false, nil},
		{"its last words", Event{Kind: KindMessage, Session: "1"}, false, []string{"message 1"}},
		{"one leaves that did not join", Event{Kind: KindLeft, Session: "9"}, false, nil},
	} {
		got, w.stale = nil, false
		w.event(c.ev)
		if !slices.Equal(got, c.want) || w.stale != c.stale {
			t.Errorf("%s: the loop hears %q and asks %t, want %q and %t", c.why, got, w.stale, c.want, c.stale)
		}
	}
	got, w.stale = nil, false
	if w.missed(); !w.stale || !slices.Equal(got, []string{"missed "}) {
		t.Errorf("where events are missing the loop hears %q and asks %t", got, w.stale)
	}
	for i := range 1000 {
		w.event(Event{Kind: KindJoined, Session: fmt.Sprint("x", i)})
		w.event(Event{Kind: KindLeft, Session: fmt.Sprint("x", i)})
		if n := len(w.gone); n > 256 {
			t.Fatalf("the loop remembers %d sessions that left, want at most 256", n)
		}
	}
	if got = nil; !slices.Contains(w.gone, "x999") || len(w.sessions) != 2 {
		t.Errorf("the loop remembers %d sessions, and %q", len(w.sessions), w.gone)
	}
}

// TestLeft: the Space forgets the groups and eyes of a client that left, as the relay does, and not those of one whose newer
// session takes the place of the older.
func TestLeft(t *testing.T) {
	for reason, want := range map[string]int{"closed": 0, "replaced": 1} {
		s := quietSpace()
		if err := s.Post(Group{Client: "ann", Join: []string{"red"}}, Eye{Client: "ann"}); err != nil {
			t.Fatal(err)
		}
		ev, ok := s.event(time.Now(), fmt.Appendf(nil, `{"type":"left","client":"ann","session":"s","reason":%q}`, reason))
		if !ok || ev.Kind != KindLeft || len(s.groups) != want || len(s.eyes) != want {
			t.Errorf("%s: the event is %+v; groups %v and eyes %v are left", reason, ev, s.groups, s.eyes)
		}
	}
}

// TestCommandsAreShared: of the loops of one queue one gets a command, and no loop of another queue.
func TestCommandsAreShared(t *testing.T) {
	s := quietSpace()
	loop := func(f Filter) *stream { return &stream{filter: f, wake: make(chan struct{}, 1)} }
	asks := []Kind{KindCommand}
	one, two, other, all := loop(Filter{Kinds: asks}), loop(Filter{Kinds: asks}), loop(Filter{Kinds: asks, Queue: "other"}), loop(Filter{})
	s.streams = map[*stream]bool{one: true, two: true, other: true, all: true}
	m := &nats.Msg{Subject: s.p.subjects.Command("demo", "door"), Reply: "r", Sub: &nats.Subscription{Queue: "commands"}, Header: nats.Header{
		subject.HeaderClient: {"ann"}, subject.HeaderSession: {"s"}, subject.HeaderCommand: {"open"}, subject.HeaderRequest: {"7"},
	}}
	for range 200 { // whatever the order of the loops
		s.hear(m)
	}
	if n := len(one.queue) + len(two.queue); n != 200 || len(other.queue)+len(all.queue) > 0 {
		t.Errorf("the queue gets 200 commands %d times, other loops %d", n, len(other.queue)+len(all.queue))
	}
	for why, change := range map[string]func(nats.Header){
		"no client": func(h nats.Header) { h.Del(subject.HeaderClient) }, "no session": func(h nats.Header) { h.Del(subject.HeaderSession) },
		"no name": func(h nats.Header) { h.Del(subject.HeaderCommand) }, "no id": func(h nats.Header) { h.Del(subject.HeaderRequest) },
		"the id of the hello": func(h nats.Header) { h.Set(subject.HeaderRequest, fmt.Sprint(command.HelloID)) }, "a wide id": func(h nats.Header) { h.Set(subject.HeaderRequest, "65536") },
	} {
		h := nats.Header{}
		for name, values := range m.Header {
			h[name] = values
		}
		change(h)
		if c := s.parseCommand(h, h.Get(subject.HeaderClient), "door", nil); c != nil {
			t.Errorf("%s: %+v is a command", why, c)
		}
	}
}

// TestRefusalsAreBounded: 256 answers to refused commands are under way at most; the edge gave one already.
func TestRefusalsAreBounded(t *testing.T) {
	s := quietSpace()
	s.refusals.waiting.Store(256)
	s.answerRefused("ann", nats.Header{subject.HeaderRequest: {"7"}})
	if n := s.refusals.waiting.Load(); n != 256 {
		t.Errorf("%d answers are under way", n)
	}
}

// TestCopyIsBounded: a Space remembers the groups of as many clients as Config.StatesMax says, likewise eyes, and 256 interests.
func TestCopyIsBounded(t *testing.T) {
	s := quietSpace()
	s.p.cfg.StatesMax = 256
	for why, op := range map[string]func(name string) Op{
		"states":    func(name string) Op { return Put{Key: name, Values: []Value{{Type: Uint8, Value: 1}}} },
		"groups":    func(name string) Op { return Group{Client: name, Join: []string{"red"}} },
		"eyes":      func(name string) Op { return Eye{Client: name} },
		"interests": func(name string) Op { return Interest{name, Distance{At: "0", Bands: []Band{{Within: 1}}}} },
	} {
		for i := range 257 {
			err := s.Post(op(fmt.Sprint("c", i)))
			var problem *Error
			if full := i == 256; full != (err != nil) || full && (!asError(err, &problem) || problem.Code != Code(replication.CodeTooLarge)) {
				t.Fatalf("%s: number %d: %v", why, i+1, err)
			}
		}
		if err := s.Post(op("c0")); err != nil {
			t.Errorf("%s: a change of what the Space remembers: %v", why, err)
		}
	}
}

func asError(err error, to **Error) bool {
	e, ok := err.(*Error)
	*to = e
	return ok
}

// TestCursorTakes has messages of one session in the order in which a stream may have them.
func TestCursorTakes(t *testing.T) {
	var c Cursor
	for _, x := range []struct {
		why              string
		number, previous uint64
		chained          bool
		fresh            bool
		lost             string
	}{
		{"the first", 3, 0, true, true, ""},
		{"the same", 3, 0, true, false, ""},
		{"an older one", 1, 0, false, false, ""},
		{"the next", 4, 4, true, true, ""},
		{"with numbers in between that are no messages", 9, 5, true, true, ""},
		{"one whose predecessor is unknown", 12, 0, false, true, ""},
		{"one whose predecessor is missing", 15, 14, true, true, "13 to 13"},
	} {
		fresh, gap := c.take(&Message{Client: "ann", Session: "s", Number: x.number, Previous: x.previous, chained: x.chained, Time: time.Unix(1000, 0)})
		if fresh != x.fresh || (gap != nil) != (x.lost != "") || gap != nil && !strings.Contains(gap.Error(), x.lost) {
			t.Errorf("%s: number %d is new: %t, %v; want %t, lost %q", x.why, x.number, fresh, gap, x.fresh, x.lost)
		}
	}
	if c.Next("s") != 16 || c.Next("t") != 0 {
		t.Errorf("next are %d and %d", c.Next("s"), c.Next("t"))
	}
	old := Cursor{progress{Sessions: map[string]place{}}}
	for i := range cursorMax { // all but ten have ended a day ago
		at := time.Unix(1000, 0)
		if i < 10 {
			at = at.Add(cursorAge)
		}
		old.take(&Message{Session: fmt.Sprint(i), Time: at})
	}
	old.take(&Message{Session: "new", Time: time.Unix(1000, 0).Add(cursorAge + time.Second)})
	if n := len(old.at.Sessions); n != 11 || old.Next("0") != 1 {
		t.Errorf("%d sessions are left, want those that may not have ended", n)
	}
	if data, err := json.Marshal(Cursor{}); err != nil || string(data) != `{"made":0,"stream":0,"sessions":null}` {
		t.Errorf("an empty cursor is %s, %v", data, err)
	}
}
