package message

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
)

type vectors struct {
	Values []struct {
		Type  string
		Value json.RawMessage
		Hex   string
	}
	Message struct {
		Types  []string
		Values []json.RawMessage
		Hex    string
	}
}

func load(t testing.TB) (v vectors) {
	t.Helper()
	p, err := os.ReadFile("testdata/message.json")
	if err == nil {
		err = json.Unmarshal(p, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	p, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func typeNamed(t testing.TB, name string) Type {
	t.Helper()
	typ, ok := ParseType(name)
	if !ok {
		t.Fatalf("no type %q", name)
	}
	return typ
}

// goTypes has a Go value of each type of numbers; encoding/binary writes it as the engine does.
var goTypes = [Types]any{
	Char: int8(0), Byte: uint8(0), Short: int16(0), UShort: uint16(0), Int: int32(0), UInt: uint32(0), Long: int64(0), ULong: uint64(0),
	Float: float32(0), Double: float64(0), Vector: [3]float32{}, Vector2: [2]float32{}, Quaternion: [4]float32{},
	Point: [2]int32{}, Point3: [3]int32{}, DVector: [3]float64{}, Color: [4]float32{}, Color3: [3]float32{},
}

// encoded returns the value of a vector as Data of a Value.
func encoded(t *testing.T, typ Type, value json.RawMessage) []byte {
	t.Helper()
	var text string
	if typ == String8 || typ == String16 {
		if err := json.Unmarshal(value, &text); err != nil {
			t.Fatalf("%v %s: %v", typ, value, err)
		}
		return append(binary.LittleEndian.AppendUint16(nil, uint16(len(text))), text...)
	}
	v := reflect.New(reflect.TypeOf(goTypes[typ]))
	if err := json.Unmarshal([]byte(strings.Trim(string(value), `"`)), v.Interface()); err != nil {
		t.Fatalf("%v %s: %v", typ, value, err)
	}
	p, err := binary.Append(nil, binary.LittleEndian, v.Elem().Interface())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestVectors(t *testing.T) {
	seen := map[Type]bool{}
	for _, v := range load(t).Values {
		typ, want := typeNamed(t, v.Type), unhex(t, v.Hex)
		seen[typ] = true
		data := encoded(t, typ, v.Value)
		if got, err := Append([]byte{0xee}, Value{typ, data}); err != nil || !bytes.Equal(got[1:], want) {
			t.Errorf("%v %s: written as %x (%v), want %x", typ, v.Value, got, err, want)
		}
		values, err := Parse(want, typ)
		if err != nil || len(values) != 1 || values[0].Type != typ || !bytes.Equal(values[0].Data, data) {
			t.Errorf("%v %x: Parse returned %v (%v), want %x", typ, want, values, err, data)
		}
	}
	if len(seen) != Types {
		t.Errorf("vectors of %d types, want all %d", len(seen), Types)
	}
}

// Every truncation of a message fails, and so does a byte too many.
func TestTruncated(t *testing.T) {
	m := load(t).Message
	var types []Type
	var got []byte
	for i, name := range m.Types {
		types = append(types, typeNamed(t, name))
		var err error
		if got, err = Append(got, Value{types[i], encoded(t, types[i], m.Values[i])}); err != nil {
			t.Fatal(err)
		}
	}
	p := unhex(t, m.Hex)
	if !bytes.Equal(got, p) {
		t.Fatalf("the message is written as %x, want %x", got, p)
	}
	for n := range len(p) + 2 {
		q, want := append(bytes.Clone(p), 0)[:n], ErrTruncated
		switch n {
		case len(p):
			want = nil
		case len(p) + 1:
			want = ErrTrailing
		}
		if _, err := Parse(q, types...); !errors.Is(err, want) {
			t.Errorf("%d of %d bytes: Parse returned %v, want %v", n, len(p), err, want)
		}
	}
}

func TestBounds(t *testing.T) {
	long := append([]byte{0, 1}, make([]byte, 256)...)
	for _, c := range []struct {
		why  string
		to   []byte
		v    Value
		want error
	}{
		{"a String8 of 255 bytes", nil, Value{String8, append([]byte{255, 0}, long[:255]...)}, nil},
		{"a String8 of 256 bytes", nil, Value{String8, long}, ErrTooLong},
		{"a String16 of 256 bytes", nil, Value{String16, long}, nil},
		{"a type that does not exist", nil, Value{Type(Types), []byte{1}}, ErrType},
		{"bytes of another type", nil, Value{Int, []byte{1}}, ErrType},
		{"a message of 1 MiB", make([]byte, SizeMax-1), Value{Byte, []byte{1}}, nil},
		{"beyond 1 MiB", make([]byte, SizeMax), Value{Byte, []byte{1}}, ErrTooLarge},
	} {
		if _, err := Append(c.to, c.v); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.why, err, c.want)
		}
	}
	if _, err := Parse([]byte{1}, Type(Types)); !errors.Is(err, ErrType) {
		t.Errorf("a type that does not exist was read: %v", err)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = Parse(nil, String16) }); n > 0 {
		t.Errorf("a malformed message costs %v allocations", n)
	}
}

func TestNames(t *testing.T) {
	for i := range Types {
		typ := Type(i)
		if got, ok := ParseType(typ.String()); !ok || got != typ || !typ.ValueType().Valid() {
			t.Errorf("type %d: the name %q means %v (%v)", i, typ, got, ok)
		}
	}
	if _, ok := ParseType("float16"); ok || Type(Types).Valid() || Type(Types).String() != "type?" {
		t.Error("a type was found that does not exist")
	}
}

// FuzzParse: what Parse accepts, Append writes back unchanged.
func FuzzParse(f *testing.F) {
	m := load(f)
	for _, v := range m.Values {
		f.Add([]byte{byte(typeNamed(f, v.Type))}, unhex(f, v.Hex))
	}
	f.Fuzz(func(t *testing.T, kinds, p []byte) {
		types := make([]Type, len(kinds))
		for i, k := range kinds {
			types[i] = Type(k % byte(Types+1))
		}
		values, err := Parse(p, types...)
		if err != nil {
			return
		}
		var again []byte
		for _, v := range values {
			if again, err = Append(again, v); err != nil && len(p) <= SizeMax {
				t.Fatalf("%v: %v", v, err)
			}
		}
		if !bytes.Equal(again, p) && len(p) <= SizeMax {
			t.Fatalf("%x is written as %x", p, again)
		}
	})
}
