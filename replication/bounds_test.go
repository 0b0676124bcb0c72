package replication

import (
	"encoding/hex"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

// Every component is checked, and compared by the kind of its type.
func TestBounds(t *testing.T) {
	for _, c := range []struct {
		why      string
		typ      string
		min, max string // hex of one component
		infinite bool
		value    string
		want     Refusal
	}{
		{"inside", "uint8", "05", "0a", false, "05", refusedNot},
		{"inside", "uint8", "05", "0a", false, "0a", refusedNot},
		{"below", "uint8", "05", "0a", false, "04", RefusedMin},
		{"above", "uint8", "05", "0a", false, "0b", RefusedMax},
		{"0xff is 255", "uint8", "", "7f", false, "ff", RefusedMax},
		{"0xff is -1", "sint8", "", "7f", false, "ff", refusedNot},
		{"0xff is -1", "sint8", "00", "", false, "ff", RefusedMin},
		{"the high byte is the last", "uint16", "", "0002", false, "ff01", refusedNot},
		{"-1 in 32 bits", "sint32", "feffffff", "00000000", false, "ffffffff", refusedNot},
		{"2^53 + 1 is above 2^53, which a float64 cannot distinguish", "uint64", "", "0000000000002000", false, "0100000000002000", RefusedMax},
		{"-2^53 - 1 is below -2^53", "sint64", "000000000000e0ff", "", false, "ffffffffffffdfff", RefusedMin},
		{"the third component", "point3s16", "0000", "", false, "0100 0100 ffff", RefusedMin},
		{"the second component", "vector2f32", "", "0000803f", false, "0000803f 0000813f", RefusedMax},
		{"half floats: 1 is above 0.5", "float16", "", "0038", false, "003c", RefusedMax},
		{"half floats: -1 is below 0.5, although its bits are more", "float16", "0038", "", false, "00bc", RefusedMin},
		{"-0 is 0", "float32", "00000000", "", false, "00000080", refusedNot},
		{"NaN", "float32", "", "", false, "0000c07f", RefusedFinite},
		{"infinity", "float64", "", "", false, "000000000000f07f", RefusedFinite},
		{"-infinity in a half float", "vector3f16", "", "", false, "0000 0000 00fc", RefusedFinite},
		{"the last of a quaternion", "quaternionf32", "", "", false, "00000000 00000000 00000000 000080ff", RefusedFinite},
		{"the largest number is finite", "float32", "", "", false, "ffff7f7f", refusedNot},
		{"let through", "float32", "", "", true, "0000c07f", refusedNot},
		{"not finite is allowed, but NaN is not 0 or more", "float32", "00000000", "", true, "0000c07f", RefusedMin},
		{"not finite is allowed, but infinity is above 1", "float32", "", "0000803f", true, "0000807f", RefusedMax},
		{"the bytes of a NaN are valid in an integer", "uint32", "", "", false, "0000c07f", refusedNot},
		{"a string has no components", "string", "", "", false, "0100 78", refusedNot},
	} {
		b := &Bounds{Infinite: c.infinite}
		if c.min != "" {
			b.Min = unhex(c.min[:2*typ(c.typ).Width()])
		}
		if c.max != "" {
			b.Max = unhex(c.max)
		}
		if b.none() {
			b = nil
		}
		if got := b.refuses(typ(c.typ), unhex(c.value)); got != c.want {
			t.Errorf("%s: %s %s with min %q and max %q: refused by %q, want %q", c.why, c.typ, c.value, c.min, c.max, got, c.want)
		}
	}
}

func TestBoundsThatMakeNoSense(t *testing.T) {
	f32 := func(x float32) []byte { return le32(math.Float32bits(x)) }
	for _, c := range []struct {
		typ  string
		b    Bounds
		want Code
	}{
		{"string", Bounds{Min: []byte{1}}, CodeTypeMismatch},
		{"data", Bounds{Max: []byte{1}}, CodeTypeMismatch},
		{"string", Bounds{Rate: 1}, ""},
		{"uint16", Bounds{Min: []byte{1}}, CodeTypeMismatch},
		{"uint16", Bounds{Infinite: true}, CodeTypeMismatch},
		{"vector3f32", Bounds{Min: f32(1), Max: f32(0.5)}, CodeOutOfRange},
		{"vector3f32", Bounds{Min: f32(1), Max: f32(1)}, ""},
		{"float32", Bounds{Min: f32(float32(math.NaN()))}, CodeTypeMismatch},
		{"float32", Bounds{Max: f32(float32(math.Inf(1)))}, CodeTypeMismatch},
		{"sint8", Bounds{Min: []byte{0xff}, Max: []byte{1}}, ""},
		{"uint8", Bounds{Min: []byte{0xff}, Max: []byte{1}}, CodeOutOfRange},
		{"uint8", Bounds{Rate: 0.001}, CodeOutOfRange},
		{"uint8", Bounds{Rate: 1001}, CodeOutOfRange},
		{"uint8", Bounds{Rate: math.NaN()}, CodeOutOfRange},
		{"uint8", Bounds{Rate: -1}, CodeOutOfRange},
	} {
		s := newStoreTest(t, Limits{})
		op := Op{Kind: OpPut, Key: "a", Values: []PutValue{{ValueDef: ValueDef{Name: "v", Type: typ(c.typ), Bounds: &c.b}}}}
		err := publish(s.Store, s.now, op)
		if err == nil && c.want != "" || err != nil && err.Code != c.want {
			t.Errorf("%s %+v: got %v, want %q", c.typ, c.b, err, c.want)
		}
	}
}

func le32(u uint32) []byte { return []byte{byte(u), byte(u >> 8), byte(u >> 16), byte(u >> 24)} }

// boundedPut puts a state that every client may write, with bounds of each kind.
func boundedPut() Op {
	return Op{
		Kind: OpPut, Key: "a", HasAccess: true, Access: Access{Kind: AccessReadWrite},
		Values: []PutValue{
			{ValueDef: ValueDef{Name: "hp", Type: typ("uint8"), Bounds: &Bounds{Min: []byte{5}, Max: []byte{10}}}, Value: u8(5)},
			{ValueDef: ValueDef{Name: "speed", Type: typ("float32")}},
			{ValueDef: ValueDef{Name: "shout", Type: wire.TypeString, Bounds: &Bounds{Rate: 2}}},
			{ValueDef: ValueDef{Name: "free", Type: typ("float32"), Bounds: &Bounds{Infinite: true}}},
		},
	}
}

// A description without bounds is stored in version 2, a description with bounds in version 3.
// Replicas get version 2 in both cases.
func TestBoundsCodec(t *testing.T) {
	d := Description{Key: "k", ValueMax: 16, Values: []ValueDef{{Type: typ("uint8")}, {Type: typ("vector2f32")}, {Type: wire.TypeData}}}
	old := appendDescribe(nil, &d)
	if got := appendStoredDescribe(nil, &d); string(got) != string(old) || got[0] != 2 {
		t.Errorf("without bounds %x is stored, want %x", got, old)
	}
	d.Values[1].Bounds = &Bounds{Min: unhex("000080bf"), Max: unhex("0000803f"), Infinite: true, Rate: 2}
	d.Values[2].Bounds = &Bounds{Rate: 0.5}
	if got := appendDescribe(nil, &d); string(got) != string(old) {
		t.Errorf("replicas get %x, want %x, which an edge without bounds reads", got, old)
	}
	p := appendStoredDescribe(nil, &d)
	want := "03" + hex.EncodeToString(old[1:]) + "0200" + "0100 0f 000080bf 0000803f 0000000000000040" + "0200 08 000000000000e03f"
	if hex.EncodeToString(p) != strings.ReplaceAll(want, " ", "") {
		t.Errorf("stored %x, want %s", p, want)
	}
	got, err := parseDescribe(p)
	if err != nil || !reflect.DeepEqual(got.Values, d.Values) {
		t.Errorf("read as %+v, %v", got, err)
	}
	for n := range len(p) {
		if _, err := parseDescribe(p[:n]); err == nil {
			t.Errorf("%d of %d bytes were parsed", n, len(p))
		}
	}
	for why, tail := range map[string]string{
		"no bounds at all is version 2": "0000",
		"no flag":                       "0100 0100 00",
		"unknown flag":                  "0100 0100 10",
		"no such value":                 "0100 0300 08 000000000000e03f",
		"not ascending":                 "0200 0200 08 000000000000e03f 0100 04",
		"twice":                         "0200 0100 04 0100 04",
		"min of data":                   "0100 0200 01 00",
		"max below min":                 "0100 0100 03 0000803f 000080bf",
		"NaN as min":                    "0100 0100 01 0000c07f",
		"rate 0":                        "0100 0100 08 0000000000000000",
		"a byte too many":               "0100 0100 04 00",
		"a count without entries":       "ffff",
	} {
		if _, err := parseDescribe(append([]byte{3}, append(append([]byte(nil), old[1:]...), unhex(tail)...)...)); err == nil {
			t.Errorf("%s: was accepted", why)
		}
	}
}

// Bounds are stored and therefore outlive their holder; a put changes them without a new link;
// and states with equal bounds share a schema.
func TestBoundsAreStored(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.ok(boundedPut())
	s.Advance(s.now)
	number := s.states.byKey["a"].Number
	next := NewStore(StoreConfig{Space: "s", Epoch: 8})
	for _, d := range s.TakeDirty(nil, 9) {
		if _, err := next.Restore(d.Number, d.Data); err != nil {
			t.Fatal(err)
		}
	}
	got, want := next.states.byKey["a"], s.states.byKey["a"]
	if !reflect.DeepEqual(got.Desc, want.Desc) || got.sum != want.sum {
		t.Fatalf("restored %+v sum %08x, want %+v sum %08x", got.Desc, got.sum, want.Desc, want.sum)
	}
	op := boundedPut()
	op.Values[0].Bounds = nil
	s.ok(op)
	s.Advance(s.now.Add(20 * time.Millisecond))
	if st := s.states.byKey["a"]; st.Number != number || st.schema.defs[0].Bounds != nil {
		t.Fatalf("other bounds replaced state %d by %d, with %+v", st.Number, number, st.schema.defs[0].Bounds)
	}
	if s.Dirty() != 1 {
		t.Fatal("changed bounds are not queued to be stored")
	}
	if err := publish(s.Store, s.now, boundedPut(), Op{Kind: OpRemove, Key: "not.there"}); err == nil || s.states.byKey["a"].schema.defs[0].Bounds != nil {
		t.Fatal("a failed publish changed the bounds")
	}
	if n := len(s.schemas.byID); n != 1 {
		t.Fatalf("%d schemas for one state", n)
	}
}

// The store keeps fewer bytes of such bounds than of any others.
func TestInfiniteAloneIsStored(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.ok(Op{Kind: OpPut, Key: "a", Values: []PutValue{{ValueDef: ValueDef{Type: typ("float32"), Bounds: &Bounds{Infinite: true}}}}})
	s.Advance(s.now)
	next := NewStore(StoreConfig{Space: "s", Epoch: 8})
	for _, d := range s.TakeDirty(nil, 9) {
		if _, err := next.Restore(d.Number, d.Data); err != nil {
			t.Fatal(err)
		}
	}
	if st := next.states.byKey["a"]; st == nil || !st.Desc.Values[0].Bounds.Infinite {
		t.Fatal("a state whose only bound is that numbers need not be finite does not come back")
	}
}

func TestWritesBeyondBounds(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.ok(boundedPut())
	s.Advance(s.now)
	write := func(number uint32, values ...WriteValue) {
		s.Write(s.now, Write{Kind: WriteValues, Session: "s1", Client: "c1", State: 1, Epoch: 7, Number: number, Token: 4, Values: values})
	}
	hp := func(x byte) WriteValue { return WriteValue{Index: 0, Type: typ("uint8"), Value: []byte{x}} }
	speed := func(x string) WriteValue { return WriteValue{Index: 1, Type: typ("float32"), Value: unhex(x)} }
	shout := func(x string) WriteValue {
		return WriteValue{Index: 2, Type: wire.TypeString, Value: appendLong(nil, []byte(x))}
	}

	write(1, hp(11))
	s.sends("the only value is above its max", 20*time.Millisecond, "event refused c1 a (7, 1) hp=0b out_of_range max", "write 4 code 1 state 1 epoch 7")
	write(1, hp(11))
	s.sends("a repetition is refused again, without another event", 20*time.Millisecond, "write 4 code 1 state 1 epoch 7")
	write(2, hp(4), speed("0000c07f"), shout("a"))
	s.sends("each value by itself: one is applied, two are refused for reasons of their own", 20*time.Millisecond,
		"event refused c1 a (7, 1) hp=04 out_of_range min", "event refused c1 a (7, 1) speed=0000c07f out_of_range finite", "batch 7 2<1 1:1:02010061",
		"event changed c1 a (7, 2) shout=010061", "write 4 code 5 state 1 epoch 7 refused [0 1]")
	write(2, hp(4), speed("0000c07f"), shout("a"))
	s.sends("a repetition after a partial refusal is refused as a whole", 20*time.Millisecond, "write 4 code 1 state 1 epoch 7")
	write(3, shout("b"), shout("b"))
	s.sends("a write with a repeated value is refused", 20*time.Millisecond, "event refused c1 a (7, 2) shout=010062 shout=010062 bad_request", "write 4 code 1 state 1 epoch 7")
	write(3, shout("b"))
	s.sends("two a second may come at once", 20*time.Millisecond, "batch 7 3<2 1:1:02010062", "event changed c1 a (7, 3) shout=010062", "write 4 code 0 state 1 epoch 7")
	write(4, shout("c"), hp(6))
	s.sends("but not three", 20*time.Millisecond, "event refused c1 a (7, 3) shout=010063 too_often rate", "batch 7 4<3 1:1:0006",
		"event changed c1 a (7, 4) hp=06", "write 4 code 5 state 1 epoch 7 refused [2]")
	write(5, shout("b"), hp(6))
	s.sends("writing the current value is not a write", 20*time.Millisecond, "write 4 code 0 state 1 epoch 7")
	write(6, shout("c"))
	s.sends("half a second after the first", 320*time.Millisecond, "event refused c1 a (7, 4) shout=010063 too_often rate", "write 4 code 1 state 1 epoch 7")
	s.now = s.now.Add(100 * time.Millisecond)
	write(7, shout("c"))
	s.sends("there is room again", 20*time.Millisecond, "batch 7 5<4 1:1:02010063", "event changed c1 a (7, 5) shout=010063", "write 4 code 0 state 1 epoch 7")
	if st := s.Stats(); st.ValuesOutOfRange != 2 || st.ValuesNotFinite != 1 || st.ValuesTooOften != 2 || st.WritesRefused != 7 || st.RefusedUntold != 0 {
		t.Errorf("counted %+v", *st)
	}
	s.ok(set("a", "hp", u8(200)))
	s.now = s.now.Add(10 * time.Millisecond)
	s.Advance(s.now)
	write(8, hp(200))
	s.sends("game servers are not bound, and the value of a game server is never refused", 20*time.Millisecond, "write 4 code 0 state 1 epoch 7")
}

// A client that floods its edge with bad writes does not flood the game servers.
func TestRefusedEventsArePaced(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.ok(boundedPut())
	s.Join("c1", "s1")
	s.Join("c2", "s2")
	s.Advance(s.now)
	number := uint32(0)
	refused := func(client string, missed uint64) (events int) {
		number++
		s.Write(s.now, Write{Kind: WriteValues, Session: client, Client: client, State: 1, Epoch: 7, Number: number,
			Values: []WriteValue{{Index: 0, Type: typ("uint8"), Value: []byte{99}}}})
		for _, o := range s.Advance(s.now) {
			if o.Kind == OutputEvent {
				events++
				if o.Event.Missed != missed {
					t.Errorf("the event reports %d missed events, want %d", o.Event.Missed, missed)
				}
			}
		}
		return events
	}
	n := 0
	for range 1000 {
		n += refused("c1", 0)
	}
	if n != refusedAtOnce {
		t.Errorf("1,000 bad writes at once were %d events, want %d", n, refusedAtOnce)
	}
	if n := refused("c2", 0); n != 1 {
		t.Error("the events of one client suppress those of another")
	}
	s.now = s.now.Add(refusedPause)
	if n := refused("c1", 990); n != 1 {
		t.Error("no event after a pause")
	}
	s.now = s.now.Add(refusedPause)
	if n := refused("c1", 0); n != 1 {
		t.Error("no event after another pause, in which no event was left out")
	}
	n = 0
	if untold := s.Stats().RefusedUntold; untold != 990 {
		t.Errorf("%d events were left out, want 990", untold)
	}
	for range 20 {
		n += refused("stranger", 0) + refused("stranger2", 0)
	}
	if n != refusedAtOnce {
		t.Errorf("clients without a session caused %d events, want %d in all", n, refusedAtOnce)
	}
}

// A client cannot make a state with numbers that are not finite either.
func TestInfiniteClientStates(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.Join("c1", "s1")
	assert := Write{Kind: WriteAssert, Session: "s1", Client: "c1", Link: 3, Epoch: 7, Token: 4,
		Values: []WriteValue{{Index: 0, Type: typ("float32"), Value: unhex("0000c07f")}, {Index: 1, Type: typ("float32"), Value: unhex("0000803f")}}}
	s.Write(s.now, assert)
	s.sends("the other values are applied, and the client gets 0 back", 0, "batch 7 1<0 assign 1.0=1 1:describe 1:3:000000000000803f",
		"event refused c1 client.c1.3 (7, 1) 0=0000c07f out_of_range finite", "write 4 code 0 state 1 epoch 7")
	s.Write(s.now, Write{Kind: WriteValues, Session: "s1", Client: "c1", State: 1, Epoch: 7, Number: 1, Token: 4,
		Values: []WriteValue{{Index: 0, Type: typ("float32"), Value: unhex("00004040")}}})
	s.sends("a finite number is applied", 20*time.Millisecond, "batch 7 2<1 1:1:0000004040",
		"event changed c1 client.c1.3 (7, 2) 0=00004040", "write 4 code 0 state 1 epoch 7")
	assert.Values[0].Value = unhex("000080ff")
	s.Write(s.now, assert)
	s.sends("asserted again with infinity: the value stays", 20*time.Millisecond,
		"event refused c1 client.c1.3 (7, 2) 0=000080ff out_of_range finite", "write 4 code 0 state 1 epoch 7")
}

func TestPace(t *testing.T) {
	for _, c := range []struct {
		rate   float64
		step   time.Duration
		atOnce int
	}{{0.01, 100 * time.Second, 1}, {0.5, 2 * time.Second, 1}, {1, time.Second, 1}, {2.5, 400 * time.Millisecond, 2}, {1000, time.Millisecond, 1000}} {
		if step, n := paceOf(c.rate); step != c.step || n != c.atOnce {
			t.Errorf("rate %v is %v and %d at once, want %v and %d", c.rate, step, n, c.step, c.atOnce)
		}
	}
}
