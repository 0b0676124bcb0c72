package replication

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication/view"
)

// A storeTest is a transcript of the input and output of a Store.
type storeTest struct {
	testing.TB
	*Store
	now time.Time
}

func newStoreTest(t testing.TB, limits Limits) *storeTest {
	return &storeTest{t, NewStore(StoreConfig{Space: "s", Epoch: 7, Tick: 10 * time.Millisecond, Limits: limits}), time.Unix(1000, 0)}
}

// ok publishes ops that must be applied.
func (t *storeTest) ok(op Op) {
	t.Helper()
	if err := publish(t.Store, t.now, op); err != nil {
		t.Fatalf("%+v: %v", op, err)
	}
}

// refuse publishes ops of which the last must be refused and none applied.
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

// sends advances time and compares all outputs, one line each.
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
		s := fmt.Sprintf("write %d code %d state %d epoch %d", o.Write.Token, o.Write.Code, o.Write.State, o.Write.Epoch)
		if o.Write.Refused != nil {
			s += " refused ["
			for i, v := range o.Write.Refused {
				if i > 0 {
					s += " "
				}
				if s += strconv.Itoa(int(v.Index)); v.Code != 0 {
					s += " " + v.Code.String()
				}
			}
			s += "]"
		}
		return s
	case OutputEvent:
		e := o.Event
		s := fmt.Sprintf("event %s %s %s (%d, %d)", e.Type, e.Client, e.Key, e.Epoch, e.Seq)
		for _, v := range e.Values {
			s += fmt.Sprintf(" %s=%x", v.Name, v.Value)
		}
		return strings.TrimSpace(strings.TrimSpace(s+" "+string(e.Code)) + " " + e.Reason)
	}
	return strings.Join(slices.DeleteFunc([]string{"kick", o.Client, o.Session, string(o.Data)}, func(s string) bool { return s == "" }), " ")
}

// describeBatch formats a batch as its position and records, each ref:message:data.
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
		op.Sets = append(op.Sets, SetValue{Name: pairs[i].(string), Value: pairs[i+1].(Literal)})
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
	s.sends("two changes in one tick are emitted once; null is index|0x80", time.Millisecond,
		"batch 7 2<1 1:1:000481", "answer 77 (7, 2) durable true", "answer 77 (7, 2) durable true")
	s.Publish(s.now, Publish{Ops: []Op{set("a", "hp", u8(4))}, Atomic: true, Token: 6})
	s.sends("without a change there is no batch, and the answer has the current position", 0, "answer 6 (7, 2) durable true")
	s.SetDurable(false)
	s.Publish(s.now, Publish{Ops: []Op{tower("a", u8(4), Null{}, str("y"))}, Atomic: true, Token: 7})
	s.sends("a put with the same layout emits the changed values", 10*time.Millisecond,
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
	s.sends("a state that lives within one tick is not emitted", 10*time.Millisecond,
		"answer 77 (7, 6) durable false", "answer 77 (7, 6) durable false")
	if at, ok := s.NextTimeout(); ok {
		t.Fatalf("nothing is due, but NextTimeout is %v", at)
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
		t.Fatal("the state was replaced, although names are not part of the layout")
	}
	s.refuse("the old name is gone", CodeBadRequest, `no value is named "hp"; the state has "health", "owner", "text"`, set("a", "hp", u8(2)))
	many := Op{Kind: OpPut, Key: "many", Values: make([]PutValue, namesListed+2)}
	for i := range many.Values {
		many.Values[i].Type = typ("uint8")
	}
	s.ok(many)
	s.refuse("an error lists the first names only", CodeBadRequest, `has "0", "1", "2", "3", "4", "5", "6", "7", and 2 more`, set("many", "hp", u8(2)))
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
	s.sends("0.375 from the emitted value", 20*time.Millisecond, "answer 77 (7, 1) durable true")
	s.ok(set("a", "0", lit("0000403f"))) // 0.75
	s.sends("0.75 from the emitted value, although 0.375 from the last one", 20*time.Millisecond,
		"batch 7 2<1 1:1:000000403f", "answer 77 (7, 2) durable true")
	s.ok(set("a", "0", lit("0000c07f"))) // NaN
	s.sends("NaN is within nothing", 20*time.Millisecond, "batch 7 3<2 1:1:000000c07f", "answer 77 (7, 3) durable true")
	s.ok(set("a", "0", lit("0000803f"))) // 1
	s.ok(set("a", "0", lit("0000403f"))) // 0.75
	s.sends("while a value waits, the newest counts", 20*time.Millisecond,
		"batch 7 4<3 1:1:000000403f", "answer 77 (7, 4) durable true", "answer 77 (7, 4) durable true")
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
		t.Fatal("a quiet state is still checked after 30 s")
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
		s.ok(Op{Kind: OpRemove, Key: after}) // paging continues behind a removed key
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
	s.Trace(trace)
	s.Publish(s.now, Publish{Ops: []Op{tower("a")}})
	s.Trace(trace)
	s.Trace(bytes.Repeat([]byte{8}, view.TraceSize))
	out := s.Advance(s.now)
	h, _, _ := view.Parse(out[0].Data)
	if !bytes.Equal(h.Trace, trace) {
		t.Fatalf("trace is %x", h.Trace)
	}
	part := s.Repair(s.now, (&RepairRequest{Kind: RepairRange, Space: "s", Epoch: 7, From: 1, To: 1}).append(nil))[0]
	h, rest, err := view.Parse(part)
	if err != nil || h.Flags != view.FlagReply|view.FlagLast || len(rest) == 0 {
		t.Fatalf("the repeated batch has %+v, %v", h, err)
	}
	s.Publish(s.now, Publish{Ops: []Op{tower("b")}})
	if h, _, _ := view.Parse(s.Advance(s.now.Add(time.Second))[0].Data); h.Flags != 0 {
		t.Fatalf("the next batch has the trace as well: %+v", h)
	}
}

// An emission of several batches has its trace in all of them, because the store does not know
// which of them contains the sampled update.
func TestStoreTraceOfManyBatches(t *testing.T) {
	s := newStoreTest(t, Limits{ValueBytes: 16_000})
	for i := range 20 {
		s.Publish(s.now, Publish{Ops: []Op{{Kind: OpPut, Key: fmt.Sprintf("k%d", i), Values: []PutValue{
			{ValueDef: ValueDef{Type: wire.TypeString}, Value: str(strings.Repeat("x", 16_000))},
		}}}})
	}
	s.Trace(bytes.Repeat([]byte{7}, view.TraceSize))
	batches := 0
	for _, o := range s.Advance(s.now) {
		if o.Kind != OutputBatch {
			continue
		}
		batches++
		if view.Trace(o.Data) == nil {
			t.Errorf("batch %d has no trace", batches)
		}
	}
	if batches < 2 {
		t.Fatalf("%d batches prove nothing", batches)
	}
}

// Restored states equal the stored ones and keep their numbers. New states never get a number
// that the former holder may have assigned.
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
	next := &storeTest{t, NewStore(StoreConfig{Space: "s", Epoch: 8, FirstNumber: 1 << 20}), s.now} // other limits than the former holder
	for _, d := range all {
		if _, err := next.Restore(d.Number, d.Data); err != nil {
			t.Fatal(err)
		}
		for n := range d.Data {
			if n == withoutPosition(d) {
				continue
			}
			if _, err := NewStore(StoreConfig{Epoch: 8}).Restore(d.Number, d.Data[:n]); err == nil && n > 0 {
				t.Fatalf("state %d was restored from %d of %d bytes", d.Number, n, len(d.Data))
			}
		}
	}
	if next.contents() != s.contents() {
		t.Fatalf("restored\n%swant\n%s", next.contents(), s.contents())
	}
	for _, d := range all { // a load that was repeated
		if replaced, err := next.Restore(d.Number, d.Data); err != nil || replaced != 0 {
			t.Fatalf("state %d comes twice, and %d is replaced: %v", d.Number, replaced, err)
		}
	}
	if next.contents() != s.contents() {
		t.Fatalf("restored twice\n%swant\n%s", next.contents(), s.contents())
	}
	if _, err := next.Restore(99, all[0].Data); err == nil {
		t.Fatal("a state was restored with another number")
	}
	next.ok(tower("new"))
	if l, _ := next.Get("new"); l.States[0].Number < 1<<20 {
		t.Fatalf("number %d could be that of another state", l.States[0].Number)
	}
	next.sends("restored states are not emitted; replicas ask", 0,
		fmt.Sprintf("batch 8 1<0 assign %d.0=3 3:describe 3:3:01000000", 1<<20), "answer 77 (8, 1) durable true")
}

// TestSetOrder sets states in the same order again and again, while a state that follows another one is removed, comes back, is rolled back,
// and changes places.
func TestSetOrder(t *testing.T) {
	s := newStoreTest(t, Limits{})
	value := func(v byte) Encoded { return Encoded{typ("uint8"), []byte{v}} }
	put := func(key string) Op {
		return Op{Kind: OpPut, Key: key, Values: []PutValue{{ValueDef: ValueDef{Name: "n", Type: typ("uint8")}, Value: value(0)}}}
	}
	set := func(key string, v byte) Op { return set(key, "n", value(v)) }
	want := func(why, want string) {
		t.Helper()
		got := ""
		for _, l := range s.List("", 10).States {
			got += fmt.Sprintf("%s%d ", l.Desc.Key, l.Values.Value(0)[0])
		}
		if got != want {
			t.Fatalf("%s: %s, want %s", why, got, want)
		}
	}
	for _, key := range []string{"a", "b", "c"} {
		s.ok(put(key))
	}
	for v := byte(1); v <= 2; v++ {
		s.ok(set("a", v))
		s.ok(set("b", v+10))
		s.ok(set("c", v+20))
	}
	want("set in one order", "a2 b12 c22 ")
	s.ok(set("a", 3))
	s.ok(Op{Kind: OpRemove, Key: "b"})
	s.refuse("the state that followed is gone", CodeUnknownState, `"b"`, set("b", 13))
	s.ok(set("a", 4))
	s.ok(put("b"))
	s.ok(set("b", 14))
	want("a state with the key of the one that followed", "a4 b14 c22 ")
	s.refuse("all is rolled back", CodeUnknownState, `"x"`, set("a", 5), put("d"), set("d", 31), set("d", 32), set("x", 1))
	s.ok(set("a", 6))
	s.refuse("a state that was rolled back is gone", CodeUnknownState, `"d"`, set("d", 33))
	s.ok(set("c", 24))
	s.ok(set("b", 15))
	want("another order", "a6 b15 c24 ")
	for _, st := range s.states.all {
		if st.dead && st.follower != nil {
			t.Errorf("%q is gone and keeps the memory of what followed it", st.Desc.Key)
		}
	}
}
