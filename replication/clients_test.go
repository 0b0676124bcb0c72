package replication

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

func TestStoreGroups(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.Join("c1", "s1")
	s.Join("c1", "s2")
	s.ok(Op{Kind: OpGroup, Client: "c1", Join: []string{"red", "blue"}})
	s.ok(Op{Kind: OpGroup, Client: "c1", Join: []string{"red"}, Leave: []string{"blue"}})
	if got := fmt.Sprint(s.Groups("c1")); got != "[red]" {
		t.Fatalf("the groups are %s", got)
	}
	s.sends("groups travel as a state of their own", 0, "batch 7 1<0 assign 1.0=1 1:describe 1:3:05000103726564",
		"answer 77 (7, 1) durable true", "answer 77 (7, 1) durable true")
	if l := s.List("", 10); len(l.States) != 0 {
		t.Fatalf("get shows %q", l.States[0].Desc.Key)
	}
	s.Leave("c1", "s1")
	s.sends("the client still has a session", 20*time.Millisecond)
	s.Leave("c1", "s2")
	s.sends("groups are forgotten with the last session", 20*time.Millisecond, "batch 7 2<1 1:6:")
	s.ok(tower("a"))
	s.ok(Op{Kind: OpClear})
	if s.stats.States = 0; s.Stats().States != 0 {
		t.Fatal("clear left a state of a publisher")
	}
}

func TestStoreClear(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.Join("c1", "s1")
	s.ok(tower("a"))
	s.ok(Op{Kind: OpGroup, Client: "c1", Join: []string{"red"}})
	s.Write(s.now, Write{Kind: WriteAssert, Client: "c1", Session: "s1", Link: 3, Values: []WriteValue{{Index: 0, Type: typ("uint8"), Value: []byte{1}}}})
	s.ok(Op{Kind: OpClear})
	if l := s.List("", 10); len(l.States) != 1 || l.States[0].Desc.Key != "client.c1.3" || len(s.Groups("c1")) != 1 {
		t.Fatalf("clear must remove the states of publishers and no others, but left %+v", l)
	}
}

func TestStoreWrites(t *testing.T) {
	s := newStoreTest(t, Limits{})
	op := tower("a", u8(1), u8(2), str("x"))
	op.HasAccess, op.Access = true, Access{Kind: AccessWriters, Writers: []string{"c1"}}
	s.ok(op)
	s.Advance(s.now)
	write := func(number uint32, index int, enc ...byte) Write {
		return Write{Kind: WriteValues, Session: "s1", Client: "c1", State: 1, Epoch: 7, Number: number, Token: 4,
			Values: []WriteValue{{Index: index, Type: typ("uint8"), Value: enc}}}
	}
	s.Write(s.now, write(1, 0, 50))
	s.sends("ok is sent behind the batch, or the edge would send its client the previous value", 20*time.Millisecond,
		"batch 7 2<1 1:1:0032", "event changed c1 a (7, 2) hp=32", "write 4 code 0 state 1 epoch 7")
	s.Write(s.now, write(1, 0, 51))
	s.sends("a repetition is ok and changes nothing", 20*time.Millisecond, "write 4 code 0 state 1 epoch 7")
	for _, c := range []struct {
		why    string
		change func(w *Write)
		want   []string
	}{
		{"not a writer", func(w *Write) { w.Client = "c2" },
			[]string{"event refused c2 a (7, 2) hp=01 not_authorised", "write 4 code 1 state 1 epoch 7"}},
		{"no such value", func(w *Write) { w.Values[0].Index = 3 },
			[]string{"event refused c1 a (7, 2) 3=01 bad_request", "write 4 code 1 state 1 epoch 7"}},
		{"another type", func(w *Write) { w.Values[0].Type = typ("sint8") },
			[]string{"event refused c1 a (7, 2) hp=01 type_mismatch", "write 4 code 1 state 1 epoch 7"}},
		{"not a value", func(w *Write) { w.Values[0].Value = []byte{1, 2} },
			[]string{"event refused c1 a (7, 2) hp=0102 type_mismatch", "write 4 code 1 state 1 epoch 7"}},
		{"no such state", func(w *Write) { w.State = 9 }, []string{"write 4 code 2 state 9 epoch 7"}},
		{"another epoch", func(w *Write) { w.Epoch = 8 }, []string{"write 4 code 4 state 1 epoch 7"}},
		{"unknown kind", func(w *Write) { w.Kind = 9 }, []string{"write 4 code 1 state 1 epoch 7"}},
	} {
		w := write(9, 0, 1)
		c.change(&w)
		s.Write(s.now, w)
		s.sends(c.why, 20*time.Millisecond, c.want...)
	}
}

func TestStoreClientStates(t *testing.T) {
	s := newStoreTest(t, Limits{ClientStates: 1})
	assert := Write{Kind: WriteAssert, Session: "s1", Client: "c1", Link: 3, Epoch: 7, Token: 4, Audience: AudienceAllBut,
		ReadOnly: true, Values: []WriteValue{{Index: 0, Type: typ("uint8"), Value: []byte{1}}}}
	s.Write(s.now, assert)
	s.sends("the session has not joined, or has left: the edge tries again", 0, "write 4 code 3 state 0 epoch 7")
	s.Join("c1", "s1")
	s.Write(s.now, assert)
	s.sends("made", 20*time.Millisecond, "batch 7 1<0 assign 1.0=1 1:describe 1:3:01", "write 4 code 0 state 1 epoch 7")
	s.Write(s.now, assert)
	s.sends("confirmed", 20*time.Millisecond, "write 4 code 0 state 1 epoch 7")
	later := assert
	later.Values = []WriteValue{{Index: 0, Type: typ("uint8"), Value: []byte{2}}}
	s.Write(s.now, later)
	s.sends("repeated, with what the client wrote since: that comes as a write", 20*time.Millisecond, "write 4 code 0 state 1 epoch 7")
	anew := assert
	anew.State, anew.Values = AssertAnew, []WriteValue{{Index: 0, Type: typ("uint8"), Value: []byte{2}}}
	s.Write(s.now, anew)
	s.sends("the client offered another one under the LinkId", 20*time.Millisecond, "batch 7 2<1 1:1:0002", "write 4 code 0 state 1 epoch 7")
	l, _ := s.Get("client.c1.3")
	if d := l.States[0].Desc; !d.Access.MayWrite("c1") || d.Access.MayWrite("c2") || d.Audience.Includes("c1", nil) || !d.Audience.Includes("c2", nil) {
		t.Fatalf("access and audience are %+v", d)
	}
	s.refuse("the client's flags keep game servers out", CodeNotAuthorised, "client.c1.3", set("client.c1.3", "0", u8(1)))
	other := assert
	other.Link = 4
	s.Write(s.now, other)
	s.sends("one state per client here", 20*time.Millisecond, "answer 0 not_authorised", "write 4 code 1 state 0 epoch 7")
	s.Write(s.now, Write{Kind: WriteDrop, Session: "s0", Client: "c1", Link: 3, Epoch: 7})
	s.sends("another session may not drop it", 20*time.Millisecond, "write 0 code 0 state 0 epoch 7")
	s.Write(s.now, Write{Kind: WriteDrop, Session: "s1", Client: "c1", Link: 3, Epoch: 7})
	s.sends("dropped", 20*time.Millisecond, "batch 7 3<2 1:6:", "write 0 code 0 state 0 epoch 7")
	s.Write(s.now, other)
	s.Advance(s.now.Add(time.Second))
	s.Join("c1", "s2")
	s.Leave("c1", "s2")
	s.sends("another session of the client ends, and late checks are merged into one", 20*time.Second, "batch 7 5<4 1:2:1bdf05a5")
	s.Leave("c1", "s1")
	s.sends("the state ends with its session", 20*time.Millisecond, "batch 7 6<5 1:6:")
	if n := s.Dirty(); n != 0 {
		t.Fatalf("%d states of clients are queued to be stored", n)
	}
}

// TestStoreWritesOfSessions has an edge tell of a session, with the groups of its login, and that it left. It cannot make the
// session that of another client, and no more sessions than are allowed.
func TestStoreWritesOfSessions(t *testing.T) {
	s := newStoreTest(t, Limits{Groups: 2, Sessions: 2})
	w := Write{Kind: WriteJoin, Session: "s1", Client: "c1", Epoch: 7, Token: 4, Join: []string{"red", "blue"}}
	s.Write(s.now, Write{Kind: WriteJoin, Session: "s1", Client: "c1", Epoch: 7, Token: 4})
	s.sends("nothing has to be replicated: the edge hears at once that the client is known", 0, "write 4 code 0 state 0 epoch 7")
	if _, sessions := s.Look("", "c1"); sessions != 1 {
		t.Errorf("the client has %d sessions, want one", sessions)
	}
	s.Join("c2", "s2")
	s.Write(s.now, Write{Kind: WriteJoin, Session: "s3", Client: "c3", Epoch: 7, Token: 4})
	s.sends("there are as many sessions as may be", 0, "write 4 code 3 state 0 epoch 7")
	stranger := w
	stranger.Client = "c2"
	s.Write(s.now, stranger)
	s.sends("the session is that of another client", 0, "write 4 code 3 state 0 epoch 7")
	s.Write(s.now, w)
	s.Advance(s.now.Add(20 * time.Millisecond))
	if got := s.Groups("c1"); !slices.Equal(got, []string{"red", "blue"}) {
		t.Fatalf("the client is in %q, want red and blue", got)
	}
	for why, bad := range map[string]Write{
		"a name that is no group":      {Join: []string{"a.b"}},
		"more groups than are allowed": {Join: []string{"green"}},
		"a group to leave is no name":  {Leave: []string{"*"}},
	} {
		bad.Kind, bad.Session, bad.Client, bad.Epoch = WriteJoin, "s1", "c1", 7
		s.Write(s.now, bad)
		s.sends(why, 0, "write 0 code 1 state 0 epoch 7")
	}
	s.Write(s.now, Write{Kind: WriteJoin, Session: "s1", Client: "c1", Epoch: 6, Leave: []string{"red"}})
	s.sends("the edge follows an earlier holder", 0, "write 0 code 4 state 0 epoch 7")
	s.Write(s.now, Write{Kind: WriteJoin, Session: "s1", Client: "c1", Epoch: 7, Join: []string{"green"}, Leave: []string{"red"}})
	s.Advance(s.now.Add(40 * time.Millisecond))
	if got := s.Groups("c1"); !slices.Equal(got, []string{"blue", "green"}) || len(s.Groups("c2")) != 0 {
		t.Errorf("the clients are in %q and %q, want blue and green, and none", got, s.Groups("c2"))
	}
	for range 2 {
		s.Write(s.now, Write{Kind: WriteLeave, Session: "s1", Client: "c1", Epoch: 7, Token: 5})
		s.Advance(s.now.Add(60 * time.Millisecond))
	}
	if _, sessions := s.Look("", "c1"); sessions != 0 || len(s.Groups("c1")) != 0 {
		t.Errorf("the client left, and has %d sessions and the groups %q", sessions, s.Groups("c1"))
	}
}

func TestStoreKick(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.Join("c1", "s1")
	s.ok(Op{Kind: OpKick, Client: "c1"})
	s.sends("the edges get the kick", 0, "kick c1", "answer 77 (7, 0) durable true")
	s.refuse("a kick in a failed publish is not sent", CodeUnknownClient, "c9", Op{Kind: OpKick, Client: "c1"}, Op{Kind: OpKick, Client: "c9"})
	s.sends("only the error", 0, "answer 0 unknown_client")
	s.ok(Op{Kind: OpKick, Client: "c1", Reason: strings.Repeat("a", KickReasonMax)})
	s.sends("the reason goes to the edges", 0, "kick c1 "+strings.Repeat("a", KickReasonMax), "answer 77 (7, 0) durable true")
	s.refuse("an event has no room for a longer reason", CodeBadRequest, "at most 200 bytes, got 201", Op{Kind: OpKick, Client: "c1", Reason: strings.Repeat("a", KickReasonMax+1)})
	s.refuse("an event is text", CodeBadRequest, "want UTF-8", Op{Kind: OpKick, Client: "c1", Reason: "\xff"})
}

// TestStoreKickRepeats: an edge is told of a kick until the session has left. A session that the client begins meanwhile stays.
func TestStoreKickRepeats(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.Join("c1", "s2")
	s.Join("c1", "s1")
	s.Join("c2", "s3")
	s.ok(Op{Kind: OpKick, Client: "c1", Reason: "cheats"})
	s.sends("the edges get the kick", 0, "kick c1 cheats", "answer 77 (7, 0) durable true")
	s.Join("c1", "s4")
	s.sends("not yet again", kickPause-1)
	if at, ok := s.NextTimeout(); !ok || !at.Equal(s.now.Add(1)) {
		t.Errorf("the next call is due at %v, %v, want %v", at, ok, s.now.Add(1))
	}
	s.sends("both sessions are there", 1, "kick c1 s1 cheats", "kick c1 s2 cheats")
	s.Leave("c1", "s2")
	s.sends("one has left", kickPause, "kick c1 s1 cheats")
	s.Leave("c1", "s1")
	s.sends("both have left", 10*kickPause)
	if at, ok := s.NextTimeout(); ok {
		t.Errorf("a call is due at %v, want none", at)
	}
}

// TestNoEmptyData: whichever way an empty data value comes into a store, clients get one zero byte
// (dnp/PROTOCOL.md, rule no-empty): an engine client that is offered an empty one ends.
func TestNoEmptyData(t *testing.T) {
	empty := Encoded{wire.TypeData, []byte{0, 0}}
	s := newStoreTest(t, Limits{})
	s.ok(Op{Kind: OpPut, Key: "put", HasAccess: true, Access: Access{Kind: AccessWriters, Writers: []string{"c1"}}, Values: []PutValue{
		{ValueDef: ValueDef{Type: wire.TypeData}, Value: empty},
		{ValueDef: ValueDef{Type: wire.TypeData, Nullable: true, Null: []byte{0, 0}}, Value: Null{}},
		{ValueDef: ValueDef{Type: wire.TypeString}, Value: str("")}, // a string may be empty
	}})
	want := func(way, key string, values ...string) {
		t.Helper()
		l, err := s.Get(key)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range values {
			if got := hex.EncodeToString(l.States[0].Values.Value(i)); got != v {
				t.Errorf("%s: value %d is %s, want %s", way, i, got, v)
			}
		}
	}
	want("a put", "put", "010000", "010000", "0000")
	s.ok(set("put", "0", Encoded{wire.TypeData, []byte{1, 0, 7}}))
	s.ok(set("put", "0", empty))
	want("a set", "put", "010000")
	s.ok(set("put", "0", Encoded{wire.TypeData, []byte{1, 0, 7}}))
	s.Write(s.now, Write{Kind: WriteValues, Session: "s1", Client: "c1", State: 1, Epoch: 7, Number: 1, Values: []WriteValue{{Index: 0, Type: wire.TypeData, Value: empty.Value}}})
	want("a client's write", "put", "010000")
	s.Join("c1", "s1")
	s.Write(s.now, Write{Kind: WriteAssert, Session: "s1", Client: "c1", Link: 3, Epoch: 7, Values: []WriteValue{{Index: 0, Type: wire.TypeData, Value: empty.Value}}})
	want("a client's state", "client.c1.3", "010000")
}

// levers is a put of a state with two values that some clients may write.
func levers(a, b *Bounds, writers ...string) Op {
	return Op{Kind: OpPut, Key: "door", HasAccess: true, Access: Access{Kind: AccessWriters, Writers: writers}, Values: []PutValue{
		{ValueDef: ValueDef{Name: "a", Type: typ("uint8"), Bounds: a}, Value: u8(1)},
		{ValueDef: ValueDef{Name: "b", Type: typ("uint8"), Bounds: b}, Value: u8(2)},
	}}
}

func numberedValue(index int, number uint32, v byte) WriteValue {
	return WriteValue{Index: index, Type: typ("uint8"), Value: []byte{v}, Number: number}
}

// numbered returns what writes values of client c1, each time in a new request.
func (t *storeTest) numbered() func(...WriteValue) {
	request := uint32(0)
	return func(values ...WriteValue) {
		request++
		t.Write(t.now, Write{Kind: WriteValues, Session: "s1", Client: "c1", State: 1, Epoch: 7, Number: request, Values: values})
	}
}

// TestNumberedWrites: a client that numbers its writes repeats them, by another edge, too, until it hears that they have
// ended. Each number is applied once to each value, whatever was set in between.
func TestNumberedWrites(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.ok(levers(nil, nil, "c1", "c2"))
	s.Advance(s.now)
	write, value, tick := s.numbered(), numberedValue, 20*time.Millisecond
	write(value(0, 1, 10), value(1, 2, 20))
	s.sends("two writes in one request", tick, "batch 7 2<1 1:1:000a0114", "event changed c1 door (7, 2) a=0a b=14", "write 0 code 0 state 1 epoch 7")
	s.ok(set("door", "a", u8(11)))
	s.sends("the game server corrects the first", tick, "batch 7 3<2 1:1:000b", "answer 77 (7, 3) durable true")
	write(value(0, 1, 10))
	s.sends("a repeat, in another request: nothing is undone, and there is no event", tick, "write 0 code 0 state 1 epoch 7")
	write(value(0, 3, 12), value(1, 2, 20))
	s.sends("a new write beside a repeat", tick, "batch 7 4<3 1:1:000c", "event changed c1 door (7, 4) a=0c", "write 0 code 0 state 1 epoch 7")
	write(value(0, 2, 99))
	s.sends("a datagram that was overtaken", tick, "write 0 code 0 state 1 epoch 7")
	s.Write(s.now, Write{Kind: WriteValues, Session: "s2", Client: "c2", State: 1, Epoch: 7, Number: 1, Values: []WriteValue{value(0, 1, 13)}})
	s.sends("the numbers of another session are its own", tick, "batch 7 5<4 1:1:000d", "event changed c2 door (7, 5) a=0d", "write 0 code 0 state 1 epoch 7")
}

// TestNumberedRefusals: a repeat of a refused write is refused again, and makes no second event.
func TestNumberedRefusals(t *testing.T) {
	s := newStoreTest(t, Limits{})
	bounds := func(access ...string) Op { return levers(&Bounds{Max: []byte{50}}, &Bounds{Rate: 0.01}, access...) }
	s.ok(bounds("c1"))
	s.Advance(s.now)
	write, value, tick := s.numbered(), numberedValue, 20*time.Millisecond
	write(value(0, 1, 51), value(1, 1, 3))
	s.sends("one value is out of bounds", tick, "event refused c1 door (7, 1) a=33 out_of_range max", "batch 7 2<1 1:1:0103",
		"event changed c1 door (7, 2) b=03", "write 0 code 5 state 1 epoch 7 refused [0 bounds]")
	write(value(0, 1, 51), value(1, 1, 3))
	s.sends("the repeat", tick, "write 0 code 5 state 1 epoch 7 refused [0 bounds]")
	write(value(1, 2, 4))
	s.sends("too often", tick, "event refused c1 door (7, 2) b=04 too_often rate", "write 0 code 5 state 1 epoch 7 refused [1 rate]")
	s.ok(bounds("c2"))
	s.Advance(s.now.Add(time.Second))
	write(value(0, 3, 5))
	s.sends("the client may not write any more", tick, "event refused c1 door (7, 3) a=05 not_authorised", "write 0 code 5 state 1 epoch 7 refused [0 not_authorised]")
}
