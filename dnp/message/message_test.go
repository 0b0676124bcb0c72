package message

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
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

// method returns the name of the method of Reader and Writer for a type, which is the name of its constant.
var method = [Types]string{"Char", "Byte", "Short", "UShort", "Int", "UInt", "Long", "ULong", "Float", "Double",
	"String8", "String16", "Vector", "Vector2", "Quaternion", "Point", "Point3", "DVector", "Color", "Color3"}

// write writes the value of a vector with the method of its type.
func write(t *testing.T, w *Writer, typ Type, value json.RawMessage) {
	t.Helper()
	m := reflect.ValueOf(w).MethodByName(method[typ])
	arg := reflect.New(m.Type().In(0))
	text := strings.Trim(string(value), `"`)
	if typ == String8 || typ == String16 {
		text = string(value)
	}
	if err := json.Unmarshal([]byte(text), arg.Interface()); err != nil {
		t.Fatalf("%v %s: %v", typ, value, err)
	}
	m.Call([]reflect.Value{arg.Elem()})
}

func TestVectors(t *testing.T) {
	seen := map[Type]bool{}
	for _, v := range load(t).Values {
		typ, want := typeNamed(t, v.Type), unhex(t, v.Hex)
		seen[typ] = true
		var w Writer
		w.Byte(0xee)
		write(t, &w, typ, v.Value)
		if got, err := w.Bytes(); err != nil || !bytes.Equal(got[1:], want) {
			t.Errorf("%v %s: written as %x (%v), want %x", typ, v.Value, got, err, want)
		}
		r := NewReader(want)
		read := reflect.ValueOf(&r).MethodByName(method[typ]).Call(nil)[0]
		again := Writer{}
		reflect.ValueOf(&again).MethodByName(method[typ]).Call([]reflect.Value{read})
		if !bytes.Equal(again.b, want) || r.Done() != nil {
			t.Errorf("%x read as %v (%v), which is written as %x", want, read, r.Done(), again.b)
		}
		values, err := Parse(want, typ)
		if err != nil || len(values) != 1 {
			t.Fatalf("%v %s: Parse returned %v, %v", typ, v.Value, values, err)
		}
		if got, err := Append([]byte{0xee}, values[0]); err != nil || !bytes.Equal(got[1:], want) {
			t.Errorf("%v: Append wrote %x (%v), want %x", typ, got, err, want)
		}
	}
	if len(seen) != Types {
		t.Errorf("vectors of %d types, want all %d", len(seen), Types)
	}
}

// Every truncation of a message fails, in both kinds of reading, and so does a byte too many.
func TestTruncated(t *testing.T) {
	m := load(t).Message
	var types []Type
	var w Writer
	for i, name := range m.Types {
		types = append(types, typeNamed(t, name))
		write(t, &w, types[i], m.Values[i])
	}
	p := unhex(t, m.Hex)
	if got, err := w.Bytes(); err != nil || !bytes.Equal(got, p) {
		t.Fatalf("the message is written as %x (%v), want %x", got, err, p)
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
		r := NewReader(q)
		r.Byte()
		text := r.String8()
		r.UShort()
		r.Vector()
		r.String16()
		if color := r.Color(); !errors.Is(r.Done(), want) || want == nil && fmt.Sprint(text, color) != "tower[1 0.5 0.25 1]" {
			t.Errorf("%d of %d bytes: read %q %v, %v, want %v", n, len(p), text, color, r.Done(), want)
		}
	}
}

func TestBounds(t *testing.T) {
	for _, c := range []struct {
		why  string
		with func(w *Writer)
		want error
	}{
		{"255 bytes", func(w *Writer) { w.String8(strings.Repeat("x", 255)) }, nil},
		{"256 bytes have no length of one byte", func(w *Writer) { w.String8(strings.Repeat("x", 256)); w.Byte(1) }, ErrTooLong},
		{"65,535 bytes", func(w *Writer) { w.String16(strings.Repeat("x", 65_535)) }, nil},
		{"65,536 bytes have no length of two bytes", func(w *Writer) { w.String16(strings.Repeat("x", 65_536)) }, ErrTooLong},
		{"a message of 1 MiB", func(w *Writer) { w.b = make([]byte, SizeMax) }, nil},
		{"one byte more", func(w *Writer) { w.b = make([]byte, SizeMax); w.Byte(0) }, ErrTooLarge},
		{"a text behind that", func(w *Writer) { w.b = make([]byte, SizeMax+1); w.String8("x") }, ErrTooLarge},
	} {
		var w Writer
		c.with(&w)
		if _, err := w.Bytes(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.why, err, c.want)
		}
	}
	long := append([]byte{0, 1}, make([]byte, 256)...)
	for _, c := range []struct {
		why  string
		to   []byte
		v    Value
		want error
	}{
		{"a String8 of 256 bytes", nil, Value{String8, long}, ErrTooLong},
		{"a String16 of 256 bytes", nil, Value{String16, long}, nil},
		{"a type that does not exist", nil, Value{Type(Types), []byte{1}}, ErrType},
		{"bytes of another type", nil, Value{Int, []byte{1}}, ErrType},
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
		if !strings.EqualFold(method[i], typ.String()) {
			t.Errorf("type %d is %v, its methods are %s", i, typ, method[i])
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
