package replication

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication/view"
)

// A storeTest is a transcript of what a Store is told and must send.
type storeTest struct {
	testing.TB
	*Store
	now time.Time
}

func newStoreTest(t testing.TB, limits Limits) *storeTest {
	return &storeTest{t, NewStore(StoreConfig{Space: "s", Epoch: 7, Tick: 10 * time.Millisecond, Limits: limits}), time.Unix(1000, 0)}
}

// ok publishes one op that must be applied.
func (t *storeTest) ok(op Op) {
	t.Helper()
	if err := publish(t.Store, t.now, op); err != nil {
		t.Fatalf("%+v: %v", op, err)
	}
}

// refuse publishes ops of which the last must be refused, and nothing applied.
func (t *storeTest) refuse(why string, code Code, about string, ops ...Op) {
	t.Helper()
	before := t.contents()
	err := publish(t.Store, t.now, ops...)
	switch {
	case err == nil:
		t.Fatalf("%s: was applied, want %s", why, code)
	case err.Code != code || !strings.Contains(err.Message, about) || err.Op != max(len(ops)-1, 0):
		t.Fatalf("%s: got %v, want %s about %q at op %d", why, err, code, about, len(ops)-1)
	}
	if after := t.contents(); after != before {
		t.Fatalf("%s: the space changed from\n%s to\n%s", why, before, after)
	}
}

func (t *storeTest) contents() string {
	var b strings.Builder
	for _, l := range t.List("", 1000).States {
		fmt.Fprintf(&b, "%d %x", l.Number, appendDescribe(nil, l.Desc))
		for i := range l.Desc.Values {
			fmt.Fprintf(&b, " %x %v", l.Values.Value(i), l.IsNull(i))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// sends moves time on and compares everything that leaves, one line each.
func (t *storeTest) sends(why string, after time.Duration, want ...string) {
	t.Helper()
	t.now = t.now.Add(after)
	var got []string
	for _, o := range t.Advance(t.now) {
		got = append(got, describeOutput(o))
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Fatalf("%s: sent\n%s\nwant\n%s", why, g, w)
	}
}

func describeOutput(o Output) string {
	switch o.Kind {
	case OutputBatch:
		return describeBatch(o.Data)
	case OutputAnswer:
		if o.Answer.Err != nil {
			return fmt.Sprintf("answer %d %s", o.Answer.Token, o.Answer.Err.Code)
		}
		return fmt.Sprintf("answer %d (%d, %d) durable %v", o.Answer.Token, o.Answer.Epoch, o.Answer.Seq, o.Answer.Durable)
	case OutputWrite:
		return fmt.Sprintf("write %d code %d state %d epoch %d", o.Write.Token, o.Write.Code, o.Write.State, o.Write.Epoch)
	case OutputEvent:
		e := o.Event
		s := fmt.Sprintf("event %s %s %s (%d, %d)", e.Type, e.Client, e.Key, e.Epoch, e.Seq)
		for _, v := range e.Values {
			s += fmt.Sprintf(" %s=%x", v.Name, v.Value)
		}
		return strings.TrimSpace(s + " " + string(e.Code))
	}
	return "kick " + o.Client
}

// describeBatch writes a batch as position and records, each ref:message:data.
func describeBatch(p []byte) string {
	h, rest, err := view.Parse(p)
	if err != nil {
		return err.Error()
	}
	s := fmt.Sprintf("batch %d %d<%d", h.Epoch, h.Seq, h.Prev)
	if h.Flags != 0 {
		s += fmt.Sprintf(" flags %d part %d", h.Flags, h.Part)
	}
	r := view.NewRecords(rest)
	for {
		m, ok := r.Next()
		if !ok {
			break
		}
		switch m.Message {
		case view.RefIDAssign:
			ref, _ := m.Assigned()
			s += fmt.Sprintf(" assign %d.%d=%d", m.Entity.State(), m.Entity.View(), ref)
		case view.Describe:
			s += fmt.Sprintf(" %d:describe", m.Ref)
		default:
			s += fmt.Sprintf(" %d:%d:%x", m.Ref, m.Message, m.Data)
		}
	}
	return s
}

func u8(v byte) Literal { return Encoded{typ("uint8"), []byte{v}} }

func str(s string) Literal { return Encoded{wire.TypeString, appendLong(nil, []byte(s))} }

// tower is a put of a state with a uint8, a nullable uint8 and a string.
func tower(key string, values ...Literal) Op {
	op := Op{Kind: OpPut, Key: key, Values: []PutValue{
		{ValueDef: ValueDef{Name: "hp", Type: typ("uint8")}},
		{ValueDef: ValueDef{Name: "owner", Type: typ("uint8"), Nullable: true, Null: []byte{9}}},
		{ValueDef: ValueDef{Name: "text", Type: wire.TypeString}},
	}}
	for i, v := range values {
		op.Values[i].Value = v
	}
	return op
}

func set(key string, pairs ...any) Op {
	op := Op{Kind: OpSet, Key: key}
	for i := 0; i < len(pairs); i += 2 {
		op.Sets = append(op.Sets, SetValue{pairs[i].(string), pairs[i+1].(Literal)})
	}
	return op
}

func TestStoreBatches(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.Publish(s.now, Publish{Ops: []Op{tower("a", u8(1), u8(2), str("x"))}, Atomic: true, Token: 5})
	s.sends("the first batch leaves at once, the answer behind it", 0,
		"batch 7 1<0 assign 1.0=1 1:describe 1:3:000102010078", "answer 5 (7, 1) durable true")
	s.ok(set("a", "hp", u8(3)))
	s.sends("the tick has not passed", 9*time.Millisecond)
	s.ok(set("a", "hp", u8(4), "1", Null{}))
	s.sends("what changed twice in a tick is told once; null is index|0x80", time.Millisecond,
		"batch 7 2<1 1:1:000481", "answer 77 (7, 2) durable true", "answer 77 (7, 2) durable true")
	s.Publish(s.now, Publish{Ops: []Op{set("a", "hp", u8(4))}, Atomic: true, Token: 6})
	s.sends("nothing changed: no batch, the current position", 0, "answer 6 (7, 2) durable true")
	s.SetDurable(false)
	s.Publish(s.now, Publish{Ops: []Op{tower("a", u8(4), Null{}, str("y"))}, Atomic: true, Token: 7})
	s.sends("a put with the same layout tells what changed", 10*time.Millisecond,
		"batch 7 3<2 1:1:02010079", "answer 7 (7, 3) durable false")
	op := tower("a")
	op.HasFarewell, op.Farewell = true, []byte("bye")
	s.ok(op)
	s.sends("another description, no other value", 10*time.Millisecond, "batch 7 4<3 1:describe", "answer 77 (7, 4) durable false")
	s.ok(Op{Kind: OpPut, Key: "a", Values: []PutValue{{ValueDef: ValueDef{Type: typ("uint8")}, Value: u8(8)}}})
	s.sends("another layout is another state; the RefId is free again", 10*time.Millisecond,
		"batch 7 5<4 1:6: assign 2.0=1 1:describe 1:3:08", "answer 77 (7, 5) durable false")
	s.ok(Op{Kind: OpRemove, Key: "a"})
	s.sends("removal", 10*time.Millisecond, "batch 7 6<5 1:6:", "answer 77 (7, 6) durable false")
	s.ok(tower("b"))
	s.ok(Op{Kind: OpRemove, Key: "b"})
	s.sends("what came and went within a tick is nobody's business", 10*time.Millisecond,
		"answer 77 (7, 6) durable false", "answer 77 (7, 6) durable false")
	if at, ok := s.NextTimeout(); ok {
		t.Fatalf("nothing is to be done, but NextTimeout is %v", at)
	}
}

func TestStoreRenamingKeepsTheState(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.ok(tower("a", u8(1)))
	op := tower("a")
	op.Values[0].Name = "health"
	s.ok(op)
	s.ok(set("a", "health", u8(2)))
	if l, _ := s.Get("a"); l.States[0].Number != 1 {
		t.Fatal("names are no part of the layout, but the state was replaced")
	}
	s.refuse("the old name is gone", CodeBadRequest, `"hp"`, set("a", "hp", u8(2)))
}

func TestStoreErrors(t *testing.T) {
	s := newStoreTest(t, Limits{Values: 300, ValueBytes: 16_000, Groups: 2, Views: 6})
	s.ok(tower("a", u8(1), u8(2), str("x")))
	s.Join("c1", "s1")
	long := strings.Repeat("x", 16_001)
	put := func(change func(op *Op)) Op {
		op := tower("b")
		change(&op)
		return op
	}
	value := func(change func(v *PutValue)) Op {
		return put(func(op *Op) { change(&op.Values[1]) })
	}
	for _, c := range []struct {
		why   string
		code  Code
		about string
		op    Op
	}{
		{"unknown op", CodeBadRequest, "op", Op{Kind: 99}},
		{"bad key", CodeBadRequest, "a b", tower("a b")},
		{"empty key", CodeBadRequest, "key", tower("")},
		{"nine tokens", CodeBadRequest, "key", tower("a.a.a.a.a.a.a.a.a")},
		{"key of groups", CodeBadRequest, "_groups", tower("_groups.c1")},
		{"key of clients", CodeBadRequest, "client", tower("client.c1.3")},
		{"a client's state cannot be removed", CodeBadRequest, "client", Op{Kind: OpRemove, Key: "client.c1.3"}},
		{"groups cannot be set", CodeBadRequest, "_groups", set("_groups.c1", "0", u8(1))},
		{"set of nothing", CodeUnknownState, "no", set("no", "hp", u8(1))},
		{"removal of nothing", CodeUnknownState, "no", Op{Kind: OpRemove, Key: "no"}},
		{"audience of nothing", CodeUnknownState, "no", Op{Kind: OpAudience, Key: "no"}},
		{"kick of nobody", CodeUnknownClient, "c9", Op{Kind: OpKick, Client: "c9"}},
		{"groups of nobody", CodeUnknownClient, "c9", Op{Kind: OpGroup, Client: "c9", Join: []string{"g"}}},
		{"bad client", CodeBadRequest, "c 9", Op{Kind: OpKick, Client: "c 9"}},
		{"bad group", CodeBadRequest, "g g", Op{Kind: OpGroup, Client: "c1", Join: []string{"g g"}}},
		{"too many groups", CodeTooLarge, "3 groups", Op{Kind: OpGroup, Client: "c1", Join: []string{"a", "b", "c"}}},
		{"no value of that name", CodeBadRequest, "mana", set("a", "mana", u8(1))},
		{"no value of that index", CodeBadRequest, "3", set("a", "3", u8(1))},
		{"a value twice", CodeBadRequest, "twice", set("a", "hp", u8(1), "0", u8(2))},
		{"set of no value", CodeBadRequest, "no value", set("a")},
		{"wrong type", CodeTypeMismatch, `"hp"`, set("a", "hp", str("x"))},
		{"null for a value that has to be there", CodeTypeMismatch, `"hp"`, set("a", "hp", Null{})},
		{"too long text", CodeTooLarge, `"text"`, set("a", "text", str(long))},
		{"too long text in a put", CodeTooLarge, `"text"`, tower("b", u8(1), u8(1), str(long))},
		{"empty message", CodeBadRequest, "message", put(func(op *Op) { op.HasMessage = true })},
		{"too long message", CodeTooLarge, "message", put(func(op *Op) { op.HasMessage, op.Message = true, []byte(long) })},
		{"too long farewell", CodeTooLarge, "farewell", put(func(op *Op) { op.HasFarewell, op.Farewell = true, []byte(long) })},
		{"no values", CodeBadRequest, "value", put(func(op *Op) { op.Values = nil })},
		{"too many values", CodeTooLarge, "301", put(func(op *Op) { op.Values = make([]PutValue, 301) })},
		{"unknown type", CodeTypeMismatch, "99", value(func(v *PutValue) { v.Type = 99 })},
		{"bad name", CodeBadRequest, "1st", value(func(v *PutValue) { v.Name = "1st" })},
		{"a name twice", CodeBadRequest, "hp", value(func(v *PutValue) { v.Name = "hp" })},
		{"bad precision", CodeOutOfRange, "precision", value(func(v *PutValue) { v.Precision = -1 })},
		{"substitute of another type", CodeTypeMismatch, "substitute", value(func(v *PutValue) { v.Null = []byte{1, 2} })},
		{"bad writer", CodeBadRequest, "w w", put(func(op *Op) { op.Access = Access{Kind: AccessWriters, Writers: []string{"w w"}} })},
		{"unknown access", CodeBadRequest, "access", put(func(op *Op) { op.Access.Kind = 9 })},
		{"unknown audience", CodeBadRequest, "audience", Op{Kind: OpAudience, Key: "a", Audience: Audience{Kind: 9}}},
		{"too many names", CodeTooLarge, "1025", Op{Kind: OpAudience, Key: "a", Audience: Audience{Kind: AudienceListed, Clients: make([]string, 1025)}}},
		{"too many views", CodeTooLarge, "views", put(func(op *Op) { op.Values = strings16k(6) })},
		{"LinkState beyond what clients can be sent", CodeTooLarge, "60000", put(func(op *Op) { op.Values = largeStrings(4) })},
	} {
		s.refuse(c.why, c.code, c.about, c.op)
		s.refuse(c.why+", after ops that had to be taken back", c.code, c.about,
			tower("a", u8(9), Null{}, str("zzz")), tower("new"), set("a", "hp", u8(7)), c.op)
	}
	s.refuse("no op", CodeBadRequest, "no op")
}

// strings16k are n string values of which each takes a view.
func strings16k(n int) []PutValue {
	v := make([]PutValue, n)
	for i := range v {
		v[i].Type = wire.TypeString
	}
	return v
}

func largeStrings(n int) []PutValue {
	v := strings16k(n)
	for i := range v {
		v[i].Value = str(strings.Repeat("y", 15_100))
	}
	return v[:n]
}

// A set may not grow a state beyond its LinkState either.
func TestStoreSetKeepsTheLinkStateSmall(t *testing.T) {
	s := newStoreTest(t, Limits{ValueBytes: 16_000})
	op := Op{Kind: OpPut, Key: "a", Values: largeStrings(3)}
	op.Values = append(op.Values, strings16k(1)...)
	s.ok(op)
	s.refuse("60,000 bytes", CodeTooLarge, "60000", set("a", "3", str(strings.Repeat("y", 15_000))))
	s.ok(set("a", "3", str(strings.Repeat("y", 14_000))))
}

func TestStoreFailedAtomicEmitsNothing(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.ok(tower("a", u8(1), u8(2), str("x")))
	s.ok(tower("b", u8(1)))
	s.sends("both", 0, "batch 7 1<0 assign 1.0=1 1:describe 1:3:000102010078 assign 2.0=2 2:describe 2:3:01010000",
		"answer 77 (7, 1) durable true", "answer 77 (7, 1) durable true")
	describe := tower("a", u8(5), Null{}, str("long text"))
	describe.HasMessage, describe.Message = true, []byte("other")
	s.refuse("every kind of op was taken back", CodeUnknownState, "no", describe, set("a", "hp", u8(3)),
		Op{Kind: OpRemove, Key: "b"}, tower("b"), Op{Kind: OpClear}, tower("a"), Op{Kind: OpRemove, Key: "no"})
	s.sends("nothing is left of it", 20*time.Millisecond, "answer 0 unknown_state")
	s.ok(set("b", "hp", u8(2)))
	s.sends("RefIds and states are what they were", 20*time.Millisecond, "batch 7 2<1 2:1:0002", "answer 77 (7, 2) durable true")
}

func TestStoreEachForItself(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.Publish(s.now, Publish{Ops: []Op{tower("a"), set("no", "hp", u8(1)), set("a", "hp", u8(1))}, Token: 3})
	for _, o := range s.Advance(s.now) {
		if o.Kind != OutputAnswer {
			continue
		}
		r := o.Answer.Results
		if len(r) != 3 || r[0].Err != nil || r[1].Err == nil || r[1].Err.Code != CodeUnknownState || r[1].Err.Op != 1 || r[2].Err != nil {
			t.Fatalf("results %+v", r)
		}
		return
	}
	t.Fatal("no answer")
}

func TestStoreBusy(t *testing.T) {
	s := newStoreTest(t, Limits{Waiting: 2})
	for range 2 {
		s.ok(tower("a", u8(byte(s.stats.Publishes))))
	}
	err := publish(s.Store, s.now, tower("a"))
	if err == nil || err.Code != CodeBusy || err.RetryAfter == 0 {
		t.Fatalf("a third that waits: %v, want busy and when to try again", err)
	}
}

func TestStorePrecision(t *testing.T) {
	s := newStoreTest(t, Limits{})
	f := typ("float32")
	lit := func(hexBytes string) Literal {
		b, _ := hex.DecodeString(hexBytes)
		return Encoded{f, b}
	}
	s.ok(Op{Kind: OpPut, Key: "a", Values: []PutValue{{ValueDef: ValueDef{Type: f, Precision: 0.5}, Value: lit("00000000")}}})
	s.Advance(s.now)
	s.ok(set("a", "0", lit("0000c03e"))) // 0.375
	s.sends("0.375 from what was emitted", 20*time.Millisecond, "answer 77 (7, 1) durable true")
	s.ok(set("a", "0", lit("0000403f"))) // 0.75
	s.sends("0.75 from what was emitted, although 0.375 from the last one", 20*time.Millisecond,
		"batch 7 2<1 1:1:000000403f", "answer 77 (7, 2) durable true")
	s.ok(set("a", "0", lit("0000c07f"))) // NaN
	s.sends("NaN is within nothing", 20*time.Millisecond, "batch 7 3<2 1:1:000000c07f", "answer 77 (7, 3) durable true")
	for _, c := range []struct {
		typ  string
		a, b string
		want bool
	}{
		{"float16", "0000", "0038", true},  // 0, 0.5
		{"float16", "0000", "003c", false}, // 0, 1
		{"vector2f32", "0000000000000000", "0000000000000040", false},
		{"float64", "0000000000000000", "000000000000e03f", true},
		{"uint8", "00", "01", false},
	} {
		a, _ := hex.DecodeString(c.a)
		b, _ := hex.DecodeString(c.b)
		if got := within(typ(c.typ), 0.5, a, b); got != c.want {
			t.Errorf("%s %s %s within 0.5: %v", c.typ, c.a, c.b, got)
		}
	}
}

func TestStoreChecksums(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.ok(Op{Kind: OpPut, Key: "a", Values: []PutValue{{ValueDef: ValueDef{Type: typ("uint8")}, Value: u8(1)}}})
	s.Advance(s.now)
	const sum = "1bdf05a5" // CRC-32 of 01
	for i, after := range []time.Duration{500, 1500, 3000, 25_000} {
		if at, ok := s.NextTimeout(); !ok || at.Sub(s.now) != after*time.Millisecond {
			t.Fatalf("check %d is due in %v, want %v ms", i, at.Sub(s.now), int(after))
		}
		s.sends("not before it is due", after*time.Millisecond-1)
		s.sends("0.5, 2, 5, 30 s after the last update", 1, fmt.Sprintf("batch 7 %d<%d 1:2:%s", i+2, i+1, sum))
	}
	if _, ok := s.NextTimeout(); ok {
		t.Fatal("a quiet state costs something after 30 s")
	}
	checks := s.stats.Checksums
	for i := range 700 {
		s.ok(set("a", "0", u8(byte(i))))
		s.now = s.now.Add(10 * time.Millisecond)
		s.Advance(s.now)
	}
	if n := s.stats.Checksums - checks; n != 1 {
		t.Fatalf("a state that never went quiet for 7 s was checked %d times, want once after 5 s", n)
	}
}

func TestStoreGroups(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.Join("c1", "s1")
	s.Join("c1", "s2")
	s.ok(Op{Kind: OpGroup, Client: "c1", Join: []string{"red", "blue"}})
	s.ok(Op{Kind: OpGroup, Client: "c1", Join: []string{"red"}, Leave: []string{"blue"}})
	if got := fmt.Sprint(s.Groups("c1")); got != "[red]" {
		t.Fatalf("groups are %s", got)
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
		t.Fatal("clear left something")
	}
}

func TestStoreClear(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.Join("c1", "s1")
	s.ok(tower("a"))
	s.ok(Op{Kind: OpGroup, Client: "c1", Join: []string{"red"}})
	s.Write(s.now, Write{Kind: WriteAssert, Client: "c1", Session: "s1", Link: 3, Values: []WriteValue{{0, typ("uint8"), []byte{1}}}})
	s.ok(Op{Kind: OpClear})
	if l := s.List("", 10); len(l.States) != 1 || l.States[0].Desc.Key != "client.c1.3" || len(s.Groups("c1")) != 1 {
		t.Fatalf("clear must remove what publishers made and nothing else, left is %+v", l)
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
			Values: []WriteValue{{index, typ("uint8"), enc}}}
	}
	s.Write(s.now, write(1, 0, 50))
	s.sends("ok leaves behind the batch, or the edge would send its client the value from before", 20*time.Millisecond,
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
		ReadOnly: true, Values: []WriteValue{{0, typ("uint8"), []byte{1}}}}
	s.Write(s.now, assert)
	s.sends("its session has not joined, or has left: the edge asks again", 0, "write 4 code 3 state 0 epoch 7")
	s.Join("c1", "s1")
	s.Write(s.now, assert)
	s.sends("made", 20*time.Millisecond, "batch 7 1<0 assign 1.0=1 1:describe 1:3:01", "write 4 code 0 state 1 epoch 7")
	s.Write(s.now, assert)
	s.sends("confirmed", 20*time.Millisecond, "write 4 code 0 state 1 epoch 7")
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
	s.sends("dropped", 20*time.Millisecond, "batch 7 2<1 1:6:", "write 0 code 0 state 0 epoch 7")
	s.Write(s.now, other)
	s.Advance(s.now.Add(time.Second))
	s.Leave("c1", "s1")
	s.sends("gone with its session", 20*time.Second, "batch 7 4<3 1:6:")
	if n := s.Dirty(); n != 0 {
		t.Fatalf("%d states that clients made are to be stored", n)
	}
}

func TestStoreKick(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.Join("c1", "s1")
	s.ok(Op{Kind: OpKick, Client: "c1"})
	s.sends("told to the edges", 0, "kick c1", "answer 77 (7, 0) durable true")
	s.refuse("a kick among ops that fail is not told", CodeUnknownClient, "c9", Op{Kind: OpKick, Client: "c1"}, Op{Kind: OpKick, Client: "c9"})
	s.sends("only the error", 0, "answer 0 unknown_client")
}

func TestStorePaging(t *testing.T) {
	s := newStoreTest(t, Limits{})
	for i := range 25 {
		s.ok(tower(fmt.Sprintf("k%02d", i)))
	}
	var keys []string
	for after, pages := "", 0; ; pages++ {
		l := s.List(after, 10)
		for _, st := range l.States {
			keys = append(keys, st.Desc.Key)
		}
		if after = l.After; after == "" {
			if pages != 2 {
				t.Fatalf("%d pages", pages+1)
			}
			break
		}
		s.ok(Op{Kind: OpRemove, Key: after}) // paging goes on after a key that is gone
	}
	if len(keys) != 25 || keys[24] != "k24" {
		t.Fatalf("got %v", keys)
	}
	if _, err := s.Get("no"); err == nil || err.Code != CodeUnknownState {
		t.Fatalf("get of nothing: %v", err)
	}
}

func TestStoreSplitsBatches(t *testing.T) {
	s := newStoreTest(t, Limits{ValueBytes: 16_000})
	for i := range 20 {
		s.ok(Op{Kind: OpPut, Key: fmt.Sprint("k", i), Values: largeStrings(3)})
	}
	seq, total := uint64(0), 0
	for _, o := range s.Advance(s.now) {
		if o.Kind == OutputAnswer {
			if o.Answer.Seq != seq {
				t.Fatalf("answer at %d, the last batch is %d", o.Answer.Seq, seq)
			}
			continue
		}
		h, _, err := view.Parse(o.Data)
		if err != nil || h.Seq != seq+1 || h.Prev != seq || len(o.Data) > view.BatchMax {
			t.Fatalf("batch %+v of %d bytes, %v", h, len(o.Data), err)
		}
		seq, total = h.Seq, total+len(o.Data)
	}
	if seq < 4 || total < 20*45_000 {
		t.Fatalf("%d batches, %d bytes", seq, total)
	}
	for _, part := range s.Repair(s.now, (&RepairRequest{Kind: RepairRange, Space: "s", Epoch: 7, From: 1, To: rangeOpen}).append(nil)) {
		if _, _, err := view.Parse(part); err != nil {
			t.Fatalf("part of %d bytes: %v", len(part), err)
		}
	}
}

func TestStoreTrace(t *testing.T) {
	s := newStoreTest(t, Limits{})
	trace := bytes.Repeat([]byte{7}, view.TraceSize)
	s.Publish(s.now, Publish{Ops: []Op{tower("a")}, Trace: trace})
	out := s.Advance(s.now)
	h, _, _ := view.Parse(out[0].Data)
	if !bytes.Equal(h.Trace, trace) {
		t.Fatalf("trace is %x", h.Trace)
	}
	part := s.Repair(s.now, (&RepairRequest{Kind: RepairRange, Space: "s", Epoch: 7, From: 1, To: 1}).append(nil))[0]
	h, rest, err := view.Parse(part)
	if err != nil || h.Flags != view.FlagReply|view.FlagLast || len(rest) == 0 {
		t.Fatalf("repeated as %+v, %v", h, err)
	}
}

// Restored states are what was stored, keep their numbers, and later ones never
// meet a number that the former holder may have given.
func TestRestore(t *testing.T) {
	s := newStoreTest(t, Limits{ValueBytes: 2000})
	s.ok(tower("a", u8(1), Null{}, str("x")))
	s.ok(Op{Kind: OpPut, Key: "b", Values: []PutValue{{ValueDef: ValueDef{Type: wire.TypeString}, Value: str("text")}}})
	s.ok(tower("gone"))
	s.Advance(s.now)
	since := s.now
	s.now = s.now.Add(time.Second)
	s.ok(Op{Kind: OpRemove, Key: "gone"})
	s.Advance(s.now)
	if at, ok := s.DirtySince(); !ok || at != since {
		t.Fatalf("dirty since %v", at)
	}
	first := s.TakeDirty(nil, 1)
	s.MarkDirty(since, first[0].Number)
	all := s.TakeDirty(nil, 10)
	if len(all) != 3 || s.Dirty() != 0 || all[2].Data != nil {
		t.Fatalf("got %d, the removed one has %d bytes", len(all), len(all[2].Data))
	}
	next := &storeTest{t, NewStore(StoreConfig{Space: "s", Epoch: 8}), s.now} // other limits than the former holder
	for _, d := range all {
		if err := next.Restore(d.Number, d.Data); err != nil {
			t.Fatal(err)
		}
		for n := range d.Data {
			if NewStore(StoreConfig{Epoch: 8}).Restore(d.Number, d.Data[:n]) == nil && n > 0 {
				t.Fatalf("state %d was restored from %d of %d bytes", d.Number, n, len(d.Data))
			}
		}
	}
	if next.contents() != s.contents() {
		t.Fatalf("restored\n%swant\n%s", next.contents(), s.contents())
	}
	if next.Restore(1, all[0].Data) == nil {
		t.Fatal("a state was restored twice")
	}
	next.ok(tower("new"))
	if l, _ := next.Get("new"); l.States[0].Number < 3+1<<20 {
		t.Fatalf("number %d could be that of another state", l.States[0].Number)
	}
	next.sends("restored states are not told, replicas ask", 0,
		fmt.Sprintf("batch 8 1<0 assign %d.0=3 3:describe 3:3:01000000", 3+1<<20), "answer 77 (8, 1) durable true")
}
