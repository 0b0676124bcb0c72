package replication

import (
	"encoding/hex"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/linkmsg"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// gun is a value of 8 bytes: an aim of three half floats, and the number of shots.
var gun = []StructField{{"aim", typ("vector3f16")}, {"shots", typ("uint16")}}

func bin(hex string) Literal { return Encoded{wire.TypeData, appendLong(nil, unhex(hex))} }

// tank is a put of a state with a uint8 and a value with components.
func tank(content Literal, fields ...StructField) Op {
	return Op{Kind: OpPut, Key: "tank", HasAccess: true, Access: Access{Kind: AccessReadWrite}, Values: []PutValue{
		{ValueDef: ValueDef{Name: "hp", Type: typ("uint8")}},
		{ValueDef: ValueDef{Name: "gun", Type: wire.TypeData, Struct: fields}, Value: content},
	}}
}

// A description is stored in version 4 if a value has components. Replicas get version 2.
func TestStructCodec(t *testing.T) {
	d := Description{Key: "k", ValueMax: 16, Values: []ValueDef{{Type: typ("uint8")}, {Type: wire.TypeData}, {Type: wire.TypeData}}}
	old := appendDescribe(nil, &d)
	d.Values[1].Struct = gun
	if got := appendDescribe(nil, &d); string(got) != string(old) {
		t.Errorf("replicas get %x, want %x", got, old)
	}
	structs := "0100" + "0100 02 20 03" + hex.EncodeToString([]byte("aim")) + "03 05" + hex.EncodeToString([]byte("shots"))
	p := appendStoredDescribe(nil, &d)
	if want := "04" + hex.EncodeToString(old[1:]) + strings.ReplaceAll("0000"+structs, " ", ""); hex.EncodeToString(p) != want {
		t.Errorf("stored %x, want %s", p, want)
	}
	d.Values[0].Bounds = &Bounds{Rate: 2}
	p = appendStoredDescribe(nil, &d)
	got, err := parseDescribe(p)
	if err != nil || !reflect.DeepEqual(got.Values, d.Values) {
		t.Errorf("with bounds: read as %+v, %v", got, err)
	}
	for n := range len(p) {
		if _, err := parseDescribe(p[:n]); err == nil {
			t.Errorf("%d of %d bytes were parsed", n, len(p))
		}
	}
	for why, tail := range map[string]string{
		"no components at all is another version": "0000 0000",
		"no field":                         "0000 0100 0100 00",
		"65 fields":                        "0000 0100 0100 41" + strings.Repeat("01 01 61", 65),
		"no such value":                    "0000 0100 0300 01 01 01 61",
		"components of a uint8":            "0000 0100 0000 01 01 01 61",
		"a string as a component":          "0000 0100 0100 01 0b 01 61",
		"an unknown type":                  "0000 0100 0100 01 26 01 61",
		"no name":                          "0000 0100 0100 01 01 00",
		"a bad name":                       "0000 0100 0100 01 01 01 2d",
		"a name twice":                     "0000 0100 0100 02 01 01 61 01 01 61",
		"more bytes than a value may have": "0000 0100 0100 01 25 01 61",
		"not ascending":                    "0000 0200 0200 01 01 01 61 0100 01 01 01 61",
		"twice":                            "0000 0200 0100 01 01 01 61 0100 01 01 01 61",
		"a byte too many":                  "0000 0100 0100 01 01 01 61 00",
		"a count without entries":          "0000 ffff",
		"malformed bounds":                 "ffff 0100 0100 01 01 01 61",
	} {
		if _, err := parseDescribe(append([]byte{4}, append(append([]byte(nil), old[1:]...), unhex(tail)...)...)); err == nil {
			t.Errorf("%s: was accepted", why)
		}
	}
	if _, err := parseDescribe(append([]byte{5}, old[1:]...)); err == nil {
		t.Error("a version that does not exist was accepted")
	}
}

func TestStructsOfAPut(t *testing.T) {
	s := newStoreTest(t, Limits{ValueBytes: 16})
	for _, c := range []struct {
		why   string
		code  Code
		about string
		op    Op
	}{
		{"no field", CodeBadRequest, "0 fields", tank(nil, []StructField{}...)},
		{"a variable component", CodeTypeMismatch, "fixed size", tank(nil, StructField{"a", wire.TypeString})},
		{"no such type", CodeTypeMismatch, "fixed size", tank(nil, StructField{"a", 99})},
		{"a bad name", CodeBadRequest, "not a name", tank(nil, StructField{"a.b", 0})},
		{"a name twice", CodeBadRequest, "not the only one", tank(nil, StructField{"a", 0}, StructField{"a", 1})},
		{"too large", CodeTooLarge, "24 bytes, at most 16", tank(nil, StructField{"a", typ("vector3f64")})},
		{"content of another size", CodeTypeMismatch, `value "gun": 3 bytes of data, its fields have 8`, tank(bin("010203"), gun...)},
	} {
		if c.op.Values[1].Struct == nil {
			c.op.Values[1].Struct = []StructField{}
		}
		s.refuse(c.why, c.code, c.about, c.op)
	}
	many := make([]StructField, StructFieldsMax+1)
	for i := range many {
		many[i] = StructField{"f" + strconv.Itoa(i), typ("uint8")}
	}
	s.refuse("too many", CodeBadRequest, "65 fields, want 1 to 64", tank(nil, many...))
	number := tank(nil, gun...)
	number.Values[1].Type = typ("uint64")
	s.refuse("components of a number", CodeTypeMismatch, "fields are for data, not for uint64", number)
	null := tank(nil, gun...)
	null.Values[1].Nullable, null.Values[1].Null = true, appendLong(nil, []byte{1})
	s.refuse("another size for null", CodeTypeMismatch, "substitute for null", null)
}

// TestStructContents follows a value with components: its size is always theirs, whoever writes it.
func TestStructContents(t *testing.T) {
	s := newStoreTest(t, Limits{})
	content := func(why, want string) {
		t.Helper()
		if got := hex.EncodeToString(s.states.byKey["tank"].Values.Value(1)); got != strings.ReplaceAll(want, " ", "") {
			t.Fatalf("%s: the value is %s, want %s", why, got, want)
		}
	}
	s.ok(tank(nil, gun...))
	content("without content it is zero", "0800 0000000000000000")
	s.ok(set("tank", "gun", bin("0102030405060708")))
	s.refuse("another size", CodeTypeMismatch, "its fields have 8", set("tank", "gun", bin("01")))
	s.Join("c1", "s1")
	s.Advance(s.now)
	write := func(number uint32, data string) (code WriteCode, event *Event) {
		s.now = s.now.Add(time.Second)
		s.Write(s.now, Write{Kind: WriteValues, Session: "s1", Client: "c1", State: 1, Epoch: 7, Number: number, Token: 4, Values: []WriteValue{{Index: 1, Type: wire.TypeData, Value: appendLong(nil, unhex(data))}}})
		for _, o := range s.Advance(s.now.Add(100 * time.Millisecond)) {
			switch o.Kind {
			case OutputWrite:
				code = o.Write.Code
			case OutputEvent:
				event = o.Event
			}
		}
		return code, event
	}
	if code, e := write(1, "ff"); code != WriteRefused || e == nil || e.Type != EventRefused || e.Code != CodeTypeMismatch {
		t.Fatalf("a client's write of one byte: code %d, event %+v, want it refused", code, e)
	}
	content("a refused write changes nothing", "0800 0102030405060708")
	if code, e := write(2, "1111111111111111"); code != WriteOK || e == nil || e.Type != EventChanged || len(e.Values[0].Struct) != 2 {
		t.Fatalf("a client's write of eight bytes: code %d, event %+v", code, e)
	}
	before := s.states.byKey["tank"].Number
	s.ok(tank(nil, gun...))
	content("the same fields keep the content", "0800 1111111111111111")
	s.ok(tank(nil, gun[1], gun[0]))
	if st := s.states.byKey["tank"]; st.Number == before {
		t.Fatal("other fields read other numbers from the same bytes, so the state has to be replaced")
	}
	content("and begins anew", "0800 0000000000000000")
	null := tank(Null{}, gun...)
	null.Values[1].Nullable = true
	s.ok(null)
	content("what clients see for null is zero", "0800 0000000000000000")
	s.ok(tank(bin("01")))
	content("without fields any size will do", "0100 01")
}

// TestStructsAreStored: components outlive their holder, and a replica has the same bytes.
func TestStructsAreStored(t *testing.T) {
	s := newStoreTest(t, Limits{})
	op := tank(bin("0102030405060708"), gun...)
	op.HasDescribe, op.Describe = true, true
	s.ok(op)
	s.Advance(s.now)
	next := NewStore(StoreConfig{Space: "s", Epoch: 8})
	for _, d := range s.TakeDirty(nil, 9) {
		if _, err := next.Restore(d.Number, d.Data); err != nil {
			t.Fatal(err)
		}
	}
	got, want := next.states.byKey["tank"], s.states.byKey["tank"]
	if !reflect.DeepEqual(got.Desc, want.Desc) || got.sum != want.sum || string(got.Values.Value(1)) != string(want.Values.Value(1)) {
		t.Fatalf("restored %+v sum %08x, want %+v sum %08x", got.Desc, got.sum, want.Desc, want.sum)
	}
	r := &replicaTest{TB: t, store: s, now: s.now}
	r.Replica = NewReplica("s", r)
	r.repair()
	copied := r.ByKey("tank")
	if copied == nil || string(copied.Values.Value(1)) != string(want.Values.Value(1)) || copied.sum != want.sum || copied.Desc.Values[1].Struct != nil {
		t.Fatalf("the replica has %+v", copied)
	}
	const told = `{"v":1,"key":"tank","names":["hp","gun"],"fields":{"1":[["aim","vector3f16"],["shots","uint16"]]}}`
	if string(copied.Desc.Message) != told {
		t.Fatalf("the link message is %s, want %s", copied.Desc.Message, told)
	}
	if fields := DescribedFields(linkmsg.Parse(copied.Desc.Message), 1); !reflect.DeepEqual(fields, gun) {
		t.Fatalf("a reader of the message learns %v", fields)
	}
}

// TestDescribedFields: a message that anybody may have written tells nothing that data cannot have.
func TestDescribedFields(t *testing.T) {
	for _, fields := range []string{
		`{"0":[["a","string"]]}`, `{"0":[["a","wide"]]}`, `{"0":[["","uint8"]]}`, `{"0":[["a","uint8"],["a","uint8"]]}`,
		`{"0":[]}`, `{"0":[["a"]]}`, `{"0":["a"]}`, `{"0":7}`, `7`, `{"-1":[["a","uint8"]]}`, `{"x":[["a","uint8"]]}`,
		`{"0":[` + strings.Repeat(`["a","uint8"],`, StructFieldsMax) + `["b","uint8"]]}`,
	} {
		d := linkmsg.Parse([]byte(`{"v":1,"key":"k","names":["x"],"fields":` + fields + `}`))
		if got := DescribedFields(d, 0); got != nil || d.Key != "k" || len(d.Names) != 1 {
			t.Errorf("%.60s tells %v of %+v, want nothing of a state whose names are known", fields, got, d)
		}
	}
}
