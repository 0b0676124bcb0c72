package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/x448/float16"
)

// A vector is a datagram, or several, that a denetwork library sent.
type vector struct {
	Lib, Group, Name, Kind, Value, Broken string
	TypeCode                              ValueType `json:"type_code"`
	HalfBits                              uint16    `json:"half_bits"`
	Packets                               []string
}

func vectors(t testing.TB) []vector {
	b, err := os.ReadFile("testdata/denetwork.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Vectors []vector }
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	return file.Vectors
}

func counted(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// TestVectorCommands builds what the libraries sent, per command.
func TestVectorCommands(t *testing.T) {
	long := func(first Seq) []string {
		return hexes(ReliableMessageLong{first, PartFirst, counted(1358)[:1357]}.Append(nil),
			ReliableMessageLong{first + 1, PartLast, counted(1358)[1357:]}.Append(nil))
	}
	update := Denetwork.AppendUpdateHead(nil, 2)
	update = Denetwork.AppendUpdateLink(update, 0, 2)
	update = Denetwork.AppendUpdateValue(update, 0, 3, []byte{7, 0})
	update = Denetwork.AppendUpdateValue(update, 2, TypeString, []byte("\x02\x00zz"))
	update = Denetwork.AppendUpdateLink(update, 1, 1)
	update = Denetwork.AppendUpdateValue(update, 0, 0, []byte{0xff})
	want := map[string][]string{
		"cpp connection_request":             hexes(AppendConnectionRequest(nil)),
		"java connection_request":            hexes(AppendConnectionRequest(nil)),
		"cpp message":                        hexes(AppendMessage(nil, []byte("hello"))),
		"python message":                     hexes(AppendMessage(nil, []byte("hello"))),
		"cpp reliable_message_1":             hexes(ReliableMessage{1, []byte("x")}.Append(nil)),
		"cpp reliable_1357":                  hexes(ReliableMessage{2, counted(1357)}.Append(nil)),
		"python reliable_1357":               hexes(ReliableMessage{1, counted(1357)}.Append(nil)),
		"java reliable_1357":                 hexes(ReliableMessage{1, counted(1357)}.Append(nil)),
		"cpp reliable_long_1358":             long(3),
		"python reliable_long_1358":          long(2),
		"java reliable_long_1358":            long(2),
		"cpp connection_ack_no_common_empty": hexes(ConnectionAck{Result: NoCommonProtocol}.Append(nil)),
		"python connection_close":            hexes(AppendConnectionClose(nil)),
		"java connection_close":              hexes(AppendConnectionClose(nil)),
		"cpp reliable_ack":                   hexes(ReliableAck{0, AckSuccess}.Append(nil)),
		"cpp link_up":                        hexes(ReliableAck{1, AckSuccess}.Append(nil), LinkUp{0x34}.Append(nil)),
		"cpp link_down":                      hexes(ReliableAck{2, AckSuccess}.Append(nil), LinkDown{0x35}.Append(nil)),
		"cpp link_update_two":                hexes(update),
		"cpp link_state_two": hexes(
			LinkState{0, 0, false, []byte("AA"), typed(3, "03 0102 09 00000000 0b 0000")}.Append(nil),
			LinkState{1, 1, true, []byte("BB"), typed(1, "00 00")}.Append(nil)),
	}
	for _, v := range vectors(t) {
		if v.Group != "command" {
			continue
		}
		key := v.Lib + " " + v.Name
		if got := strings.Join(want[key], " "); got != strings.Join(v.Packets, " ") {
			t.Errorf("%s:\n got %.80s\nwant %.80s", key, got, strings.Join(v.Packets, " "))
		}
		delete(want, key)
	}
	for key := range want {
		t.Errorf("%s is not among the vectors", key)
	}
}

func hexes(packets ...[]byte) (out []string) {
	const digits = "0123456789abcdef"
	for _, p := range packets {
		var b strings.Builder
		for _, c := range p {
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
		out = append(out, b.String())
	}
	return out
}

// TestVectorValues encodes the value that each vector describes, with only the type
// table, and reads the library's datagram with the same type.
func TestVectorValues(t *testing.T) {
	seen := map[ValueType]bool{}
	for _, v := range vectors(t) {
		if v.Group != "value" || v.Broken != "" {
			continue
		}
		seen[v.TypeCode] = true
		name, datagram := v.Lib+" "+v.Name, unhex(v.Packets[0])
		value := encodeText(t, v.TypeCode, v.Value)
		if !CheckValue(v.TypeCode, value) {
			t.Errorf("%s: CheckValue refuses % x", name, value)
		}
		switch v.Kind {
		case "link_state":
			b := AppendLinkStateHead(nil, LinkState{ReadOnly: true, Message: []byte("M")}, 1)
			if b = AppendTypedValue(b, v.TypeCode, value); !bytes.Equal(b, datagram) {
				t.Errorf("%s: encoded % x, want % x", name, b, datagram)
			}
			m, err := ParseLinkState(datagram[1:])
			if err != nil || m.Values.Len() != 1 {
				t.Fatalf("%s: ParseLinkState = %+v, %v", name, m, err)
			}
			if typ, got, rest := m.Values.Next(); typ != v.TypeCode || !bytes.Equal(got, value) || rest.Len() != 0 {
				t.Errorf("%s: value %v % x, want %v % x", name, typ, got, v.TypeCode, value)
			}
		case "link_update":
			b := Denetwork.AppendUpdateLink(Denetwork.AppendUpdateHead(nil, 1), 0, 1)
			if b = Denetwork.AppendUpdateValue(b, 0, v.TypeCode, value); !bytes.Equal(b, datagram) {
				t.Errorf("%s: encoded % x, want % x", name, b, datagram)
			}
			u := Denetwork.UpdateReader(datagram[1:])
			u.NextLink()
			if _, got, ok := u.NextValue([]ValueType{v.TypeCode}); !ok || !bytes.Equal(got, value) {
				t.Errorf("%s: value % x, %v, want % x", name, got, u.Err(), value)
			}
		default:
			t.Errorf("%s: kind %q", name, v.Kind)
		}
	}
	const vector2f32 = 30 // the vectors have no library that encodes this type correctly
	for typ := range ValueType(ValueTypes) {
		if !seen[typ] && typ != vector2f32 {
			t.Errorf("no vector of %v", typ)
		}
	}
}

// TestVectorBroken: vectors and quaternions of the Python library carry the type of a
// component and more bytes than that has. The reader takes the first component as the
// value, and does nothing worse.
func TestVectorBroken(t *testing.T) {
	broken := 0
	for _, v := range vectors(t) {
		if v.Broken == "" {
			continue
		}
		broken++
		m, err := ParseLinkState(unhex(v.Packets[0])[1:])
		if v.Lib != "python" || err != nil || m.Values.Len() != 1 {
			t.Errorf("%s %s: %+v, %v", v.Lib, v.Name, m, err)
			continue
		}
		if typ, _, _ := m.Values.Next(); typ == v.TypeCode || typ.Kind() != KindFloat || typ.Components() != 1 {
			t.Errorf("%s: type %v instead of %v is not the known mistake", v.Name, typ, v.TypeCode)
		}
	}
	if broken == 0 {
		t.Error("no broken vectors")
	}
}

// TestVectorHalf: the bits of half floats pass through unchanged, although the
// libraries round differently.
func TestVectorHalf(t *testing.T) {
	n := 0
	for _, v := range vectors(t) {
		if v.Group != "half" {
			continue
		}
		n++
		in := unhex(v.Packets[0])
		b := AppendTypedValue(AppendLinkStateHead(nil, LinkState{}, 1), 8, in)
		m, err := ParseLinkState(b[1:])
		if err != nil {
			t.Fatal(err)
		}
		if _, got, _ := m.Values.Next(); !bytes.Equal(got, in) || binary.LittleEndian.Uint16(got) != v.HalfBits {
			t.Errorf("%s %s: % x came out, % x went in", v.Lib, v.Name, got, in)
		}
	}
	if n == 0 {
		t.Error("no half float vectors")
	}
}

// encodeText encodes a value as the vectors write it: "-1,2,-3", "hello", and
// data as hex. It is a second encoder on purpose.
func encodeText(t *testing.T, typ ValueType, text string) (b []byte) {
	t.Helper()
	switch typ {
	case TypeString:
		return append(binary.LittleEndian.AppendUint16(nil, uint16(len(text))), text...)
	case TypeData:
		data := unhex(text)
		return append(binary.LittleEndian.AppendUint16(nil, uint16(len(data))), data...)
	}
	parts := strings.Split(text, ",")
	if len(parts) != typ.Components() {
		t.Fatalf("%v from %q: %d components, want %d", typ, text, len(parts), typ.Components())
	}
	for _, part := range parts {
		var bits uint64
		var err error
		switch typ.Kind() {
		case KindSint:
			var i int64
			i, err = strconv.ParseInt(part, 10, 64)
			bits = uint64(i)
		case KindUint:
			bits, err = strconv.ParseUint(part, 10, 64)
		case KindFloat:
			var f float64
			f, err = strconv.ParseFloat(part, 64)
			bits = floatBits(typ.Width(), f)
		}
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, binary.LittleEndian.AppendUint64(nil, bits)[:typ.Width()]...)
	}
	return b
}

func floatBits(width int, f float64) uint64 {
	switch width {
	case 2:
		return uint64(float16.Fromfloat32(float32(f)).Bits())
	case 4:
		return uint64(math.Float32bits(float32(f)))
	}
	return math.Float64bits(f)
}
