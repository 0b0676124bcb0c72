package view

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func typ(name string) wire.ValueType {
	t, ok := wire.ParseValueType(name)
	if !ok {
		panic(name)
	}
	return t
}

// The fields of the test vectors.
var vectorFields = []Field{{Type: typ("sint32")}, {Type: typ("float32")}, {Type: typ("point2s32")}, {Type: typ("sint32"), Nullable: true}}

type vectors struct {
	Keyframes []struct {
		Name, Hex, CRC string
		Values         []any
	}
	Updates []struct {
		Hex  string
		Set  map[string]float64
		Null []int
	}
	Records []struct{ Desc, Hex string }
}

func loadVectors(t testing.TB) (v vectors) {
	t.Helper()
	p, err := os.ReadFile("testdata/views.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(p, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// vectorState returns a state with the values of a vector.
func vectorState(t testing.TB, values []any) (*netstate.State, netstate.Mask) {
	t.Helper()
	var layout []netstate.Value
	for _, f := range vectorFields {
		layout = append(layout, netstate.Value{Type: f.Type})
	}
	l, err := netstate.NewLayout(layout)
	if err != nil {
		t.Fatal(err)
	}
	s, nulls := netstate.NewState(l), netstate.NewMask(len(vectorFields))
	for i, v := range values {
		if v == nil {
			nulls.Set(i)
			continue
		}
		s.Set(i, vectorValue(vectorFields[i].Type, v))
	}
	return s, nulls
}

func vectorValue(t wire.ValueType, v any) []byte {
	if list, ok := v.([]any); ok {
		var b []byte
		for _, c := range list {
			b = binary.LittleEndian.AppendUint32(b, uint32(c.(float64)))
		}
		return b
	}
	if t.Kind() == wire.KindFloat {
		return binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(v.(float64))))
	}
	return binary.LittleEndian.AppendUint32(nil, uint32(v.(float64)))
}

func TestVectorKeyframes(t *testing.T) {
	for _, k := range loadVectors(t).Keyframes {
		s, nulls := vectorState(t, k.Values)
		got := AppendKeyframe([]byte("prefix"), s, nulls, vectorFields, Range{0, 4})[len("prefix"):]
		if hex.EncodeToString(got) != k.Hex {
			t.Errorf("%s: keyframe is %x, want %s", k.Name, got, k.Hex)
		}
		if crc := fmt.Sprintf("%08x", crc32.ChecksumIEEE(got)); crc != k.CRC {
			t.Errorf("%s: checksum with the null bits is %s, want %s", k.Name, crc, k.CRC)
		}
		r, whole := ReadKeyframe(unhex(t, k.Hex), vectorFields, Range{0, 4})
		for i, want := range k.Values {
			index, value, null, ok := r.Next()
			if !ok || index != i || null != (want == nil) || !null && !bytes.Equal(value, s.Value(i)) {
				t.Errorf("%s: value %d read as %d %x null %v ok %v", k.Name, i, index, value, null, ok)
			}
		}
		if _, _, _, ok := r.Next(); ok || !whole {
			t.Errorf("%s: after the last value: ok %v, whole %v", k.Name, ok, whole)
		}
	}
}

func TestVectorUpdates(t *testing.T) {
	for _, u := range loadVectors(t).Updates {
		p := unhex(t, u.Hex)
		r, whole := ReadUpdate(p, vectorFields, Range{0, 4})
		var again []byte
		n := 0
		for {
			i, value, null, ok := r.Next()
			if !ok {
				break
			}
			n++
			if null {
				again = AppendUpdateNull(again, i)
				continue
			}
			if want := vectorValue(vectorFields[i].Type, u.Set[fmt.Sprint(i)]); !bytes.Equal(value, want) {
				t.Errorf("%s: value %d is %x, want %x", u.Hex, i, value, want)
			}
			again = AppendUpdateValue(again, i, value)
		}
		if !whole || n != len(u.Set)+len(u.Null) || !bytes.Equal(again, p) {
			t.Errorf("%s: %d values, whole %v, written again %x", u.Hex, n, whole, again)
		}
	}
}

func TestVectorRecords(t *testing.T) {
	v := loadVectors(t).Records
	p := unhex(t, v[0].Hex)
	got := AppendChecksum(AppendAssign(nil, 0xff0000000008fb2c, 0x1d), 0x1d, 0x0310eddf)
	if !bytes.Equal(got, p) {
		t.Errorf("%s: got %x, want %x", v[0].Desc, got, p)
	}
	r := NewRecords(p)
	m, ok := r.Next()
	ref, err := m.Assigned()
	if !ok || err != nil || ref != 0x1d || m.Entity.View() != 0x2c || m.Entity.State() != 0xff0000000008fb {
		t.Errorf("assign read as %+v (%v, %v)", m, ref, err)
	}
	m, ok = r.Next()
	crc, err := m.CRC()
	if !ok || err != nil || m.Ref != 0x1d || crc != 0x0310eddf {
		t.Errorf("checksum read as %+v (%x, %v)", m, crc, err)
	}
	if _, ok = r.Next(); ok || r.Err() != nil {
		t.Errorf("after the last record: %v, %v", ok, r.Err())
	}
	long := append(unhex(t, v[1].Hex), make([]byte, 35)...)
	r = NewRecords(long)
	if m, ok := r.Next(); !ok || len(m.Data) != 32 {
		t.Errorf("%s: %+v, %v", v[1].Desc, m, ok)
	}
}

func TestSizesAreMinimal(t *testing.T) {
	for _, n := range []int{0, 1, 123, 124, 125, 126, 300, 32_000} {
		b, start := Begin([]byte("x"), 7, 0, Update)
		b = End(append(b, make([]byte, n)...), start)
		want := Record{Ref: 7, Message: Update, Data: make([]byte, n)}.Append([]byte("x"))
		if !bytes.Equal(b, want) {
			t.Errorf("%d bytes: Begin and End make %x…, Append %x…", n, b[:8], want[:8])
		}
		r := NewRecords(b[1:])
		if m, ok := r.Next(); !ok || m.Ref != 7 || m.Message != Update || len(m.Data) != n {
			t.Errorf("%d bytes: read %+v, %v", n, m, ok)
		}
		short := len(b)-1-3-n == 1
		if short != (n+3 < 0x80) {
			t.Errorf("%d bytes: size is not minimal", n)
		}
	}
}

// Every truncation of a list of records is malformed, unless it ends between two records.
func TestTruncatedRecords(t *testing.T) {
	p := AppendChecksum(AppendAssign(nil, Entity(5, 1), 3), 3, 9)
	first := 1 + 13
	for n := range len(p) {
		r := NewRecords(p[:n])
		for {
			if _, ok := r.Next(); !ok {
				break
			}
		}
		if (r.Err() == nil) != (n == 0 || n == first) {
			t.Errorf("%d of %d bytes: %v", n, len(p), r.Err())
		}
	}
}

func TestTruncatedHeader(t *testing.T) {
	h := Header{Flags: FlagTrace | FlagReply | FlagLast, Epoch: 1, Seq: 2, Prev: 3, Trace: make([]byte, TraceSize), Part: 4}
	p := h.Append(nil)
	for n := range len(p) {
		if _, _, err := Parse(p[:n]); err == nil {
			t.Errorf("%d of %d bytes parsed", n, len(p))
		}
	}
	got, rest, err := Parse(append(p, 9))
	if err != nil || got.Part != 4 || got.Seq != 2 || len(rest) != 1 {
		t.Errorf("got %+v, %x, %v", got, rest, err)
	}
	for unknown := byte(0x40); unknown != 0; unknown <<= 1 {
		q := append([]byte(nil), p...)
		q[1] |= unknown
		if _, _, err := Parse(q); err == nil {
			t.Errorf("Parse accepted the unknown flag %#x, which could move the records", unknown)
		}
	}
	if _, _, err := Parse(make([]byte, BatchMax+1)); err == nil {
		t.Error("a batch above the limit was accepted")
	}
}

func TestMalformed(t *testing.T) {
	for _, c := range []struct {
		why, hex string
		keyframe bool
	}{
		{"index beyond the view", "04 00", false},
		{"null for a value that is not nullable", "80", false},
		{"null beyond the view", "ff", false},
		{"truncated value", "00 010000", false},
		{"index without value", "00", false},
		{"no null bits", "", true},
		{"trailing byte", "01 01000000 00000040 00000000 01000000 00", true},
		{"value missing", "00 01000000 00000040 00000000 01000000", true},
	} {
		p := unhex(t, c.hex)
		read := ReadUpdate
		if c.keyframe {
			read = ReadKeyframe
		}
		if _, ok := read(p, vectorFields, Range{0, 4}); ok {
			t.Errorf("%s: %s was accepted", c.why, c.hex)
		}
	}
	set := unhex(t, "ff 01000000 00000040 00000000 01000000")
	if _, ok := ReadKeyframe(set, vectorFields, Range{0, 4}); !ok {
		t.Error("unused null bits of 1 were not accepted; another implementation writes them")
	}
	for _, m := range []Record{
		{Ref: NoRef, Data: []byte{0, 0}}, {Ref: NoRef, Data: []byte{0xff, 0xff}},
		{Ref: NoRef, Data: []byte{1}}, {Ref: 1, Data: []byte{1, 0}},
	} {
		if _, err := m.Assigned(); err == nil {
			t.Errorf("assign %+v was accepted", m)
		}
	}
	if _, err := (Record{Data: []byte{1, 2, 3}}).CRC(); err == nil {
		t.Error("a checksum of 3 bytes was accepted")
	}
}

func TestSplit(t *testing.T) {
	fields := func(n int, name string) []Field {
		f := make([]Field, n)
		for i := range f {
			f[i].Type = typ(name)
		}
		return f
	}
	for _, c := range []struct {
		why    string
		fields []Field
		max    int
		want   string
	}{
		{"one value", fields(1, "uint8"), 1024, "[{0 1}]"},
		{"128 values are one view", fields(128, "uint8"), 1024, "[{0 128}]"},
		{"the 129th begins another", fields(129, "uint8"), 1024, "[{0 128} {128 129}]"},
		{"31 strings of 1,026 bytes fit into 32,000", fields(32, "string"), 1024, "[{0 31} {31 32}]"},
		{"a view has one value of the largest size", fields(2, "data"), 16_000, "[{0 1} {1 2}]"},
		{"a null bitfield does not count", fields(128, "quaternionf64"), 0, "[{0 128}]"},
	} {
		if got := fmt.Sprint(Split(c.fields, c.max)); got != c.want {
			t.Errorf("%s: %s, want %s", c.why, got, c.want)
		}
	}
}

// Nine nullable values need two bytes of null bits.
func TestNullBits(t *testing.T) {
	fields := make([]Field, 10)
	values := make([]netstate.Value, 10)
	for i := range fields {
		fields[i] = Field{Type: typ("uint8"), Nullable: i != 4}
		values[i].Type = fields[i].Type
	}
	l, _ := netstate.NewLayout(values)
	s, nulls := netstate.NewState(l), netstate.NewMask(10)
	for _, i := range []int{0, 5, 9} {
		nulls.Set(i)
	}
	got := AppendKeyframe(nil, s, nulls, fields, Range{0, 10})
	if want := unhex(t, "11 01 00000000000000"); !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x: bits of values 0, 5 (the fifth nullable) and 9, lowest first", got, want)
	}
	if _, ok := ReadKeyframe(got, fields, Range{0, 10}); !ok {
		t.Error("own keyframe was not accepted")
	}
}

func FuzzRecords(f *testing.F) {
	for _, r := range loadVectors(f).Records {
		f.Add(unhex(f, r.Hex))
	}
	for _, r := range loadVectors(f).Keyframes {
		f.Add(Record{Ref: 1, Message: Keyframe, Data: unhex(f, r.Hex)}.Append(nil))
	}
	for _, r := range loadVectors(f).Updates {
		f.Add(Record{Ref: 1, Message: Update, Data: unhex(f, r.Hex)}.Append(nil))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		r := NewRecords(p)
		var again []byte
		for {
			m, ok := r.Next()
			if !ok {
				break
			}
			again = m.Append(again)
			fuzzValues(t, m.Data)
		}
		if len(again) > len(p) {
			t.Fatalf("%x was written longer: %x", p, again)
		}
	})
}

// fuzzValues requires that accepted input is written back unchanged.
func fuzzValues(t *testing.T, p []byte) {
	rg := Range{0, len(vectorFields)}
	u, whole := ReadUpdate(p, vectorFields, rg)
	var again []byte
	for {
		i, value, null, ok := u.Next()
		if !ok {
			break
		}
		if null {
			again = AppendUpdateNull(again, i)
		} else {
			again = AppendUpdateValue(again, i, value)
		}
	}
	if whole && !bytes.Equal(again, p) {
		t.Fatalf("update %x was written as %x", p, again)
	}
	ReadKeyframe(p, vectorFields, rg)
}
