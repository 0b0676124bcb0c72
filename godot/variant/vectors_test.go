package variant

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// A vector is a line of testdata; ORIGIN.md there names the origin.
type vector struct {
	Name   string
	Type   int
	Hex    string
	Engine string
}

func vectors(t testing.TB, file string) (all []vector) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var v vector
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, v)
	}
	return all
}

// unhex reads hex with spaces.
func unhex(t testing.TB, text string) []byte {
	t.Helper()
	p, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// garbagePads are the vectors in which the engine left memory as padding, with the canonical bytes.
var garbagePads = map[string]string{
	"nodepath_abs": "0f000000 03000080 00000000 01000000 04000000 726f6f74 05000000 4c6576656c000000 06000000 506c617965720000",
}

// TestGodot3 decodes the output of the engine and writes the same bytes.
func TestGodot3(t *testing.T) {
	for _, c := range vectors(t, "godot3.jsonl") {
		p := unhex(t, c.Hex)
		v, err := Decode(Godot3, p)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		if id := v.Type().id(Godot3); id != c.Type {
			t.Errorf("%s: is %v, which is type %d, want %d", c.Name, v.Type(), id, c.Type)
		}
		want := c.Hex
		if clean, ok := garbagePads[c.Name]; ok {
			want = strings.ReplaceAll(clean, " ", "")
		}
		if got := hex.EncodeToString(v.Append([]byte("pre"))); got != hex.EncodeToString([]byte("pre"))+want {
			t.Errorf("%s: is written as\n%s, want the engine's\n%s", c.Name, got[6:], want)
		}
		truncations(t, c.Name, Godot3, p)
	}
}

// truncations fails unless every truncation of a value is refused.
func truncations(t *testing.T, name string, d Dialect, p []byte) {
	t.Helper()
	for n := range p {
		if _, err := Decode(d, p[:n]); err == nil {
			t.Errorf("%s as %v: the first %d of %d bytes are accepted", name, d, n, len(p))
		}
	}
	if _, err := Decode(d, append(p[:len(p):len(p)], 0, 0, 0, 0)); err == nil {
		t.Errorf("%s as %v: four bytes behind are accepted", name, d)
	}
}

// TestGodot2 reads the same vectors with the headers of the document. The layout behind the
// header is the same; 64 bit numbers do not exist.
func TestGodot2(t *testing.T) {
	seen := map[Type]bool{}
	for _, c := range vectors(t, "godot3.jsonl") {
		p := unhex(t, c.Hex)
		clean, err := Decode(Godot3, p)
		if err != nil {
			t.Fatal(err)
		}
		old, ok := relabel(clean)
		if !ok {
			continue // has a flag
		}
		v, err := Decode(Godot2, old)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		seen[v.Type()] = true
		if got := v.Append(nil); string(got) != string(old) || v.Type() != clean.Type() {
			t.Errorf("%s: %v is written as\n%x, want\n%x", c.Name, v.Type(), got, old)
		}
		truncations(t, c.Name, Godot2, old)
	}
	for _, c := range []struct {
		name, hex string
		t         Type
	}{
		{"image", "0f000000 03000000 00000000 02000000 01000000 06000000 010203040506 0000", Image},
		{"image without pixels", "0f000000 00000000 00000000 00000000 00000000 00000000", Image},
		{"rid", "11000000", RID},
		{"input event: key A with shift", "13000000 01000000 00000000 14000000 00000002 41000000", InputEvent},
		{"input event: axis of 2.0", "13000000 04000000 00000000 10000000 01000000", InputEvent},
		{"input event: axis of 2.1", "13000000 04000000 00000000 14000000 01000000 0000003f", InputEvent},
		{"input event: action", "13000000 08000000 00000000 0c000000", InputEvent},
		{"node path with property", "10000000 01000080 00000000 03000000 01000000 61000000 01000000 70000000", NodePath},
		{"shared array", "15000000 01000080 02000000 2a000000", Array},
		{"shared dictionary", "14000000 01000080 02000000 01000000 00000000", Dictionary},
	} {
		p := unhex(t, c.hex)
		v, err := Decode(Godot2, p)
		if err != nil || v.Type() != c.t {
			t.Errorf("%s: got %v, %v", c.name, v.Type(), err)
			continue
		}
		if got := v.Append(nil); string(got) != string(p) {
			t.Errorf("%s: is written as\n%x, want\n%x", c.name, got, p)
		}
		seen[c.t] = true
		truncations(t, c.name, Godot2, p)
	}
	for typ := range Type(Types) {
		if typ.In(Godot2) && !seen[typ] && typ != Object {
			t.Errorf("no vector of %v", typ)
		}
	}
}

// relabel returns a value of Godot 3 with the headers of Godot 2.
func relabel(v Value) (p []byte, ok bool) {
	t := v.Type()
	if v.header()&flagWide != 0 {
		return nil, false
	}
	p = binary.LittleEndian.AppendUint32(nil, uint32(t.id(Godot2)))
	if t != Array && t != Dictionary {
		return append(p, v.Append(nil)[4:]...), true
	}
	p = append(p, v.p[4:8]...)
	for c := v.Elements(); c.Next(); {
		for _, x := range []Value{c.Key(), c.Value()} {
			if x.p == nil {
				continue
			}
			element, ok := relabel(x)
			if !ok {
				return nil, false
			}
			p = append(p, element...)
		}
	}
	return p, true
}

// TestGodot4 has the values in the tests of Godot 4 (tests/core/io/test_marshalls.h) and of
// gdtype-python, and one of each other type by the same rules.
func TestGodot4(t *testing.T) {
	const x64 = "02000100 efcdab8967452301"
	seen := map[Type]bool{}
	for _, c := range []struct {
		hex string
		t   Type
	}{
		{"00000000", Nil},
		{"01000000 01000000", Bool},
		{"02000000 78563412", Int},
		{"02000100 efcdab89674523f1", Int},
		{"03000000 0000203e", Float},
		{"03000100 555555555555d53f", Float},
		{"1c000100 02000000 01000000 02000100 efcdab89674523f1", Array},
		{"1b000500 02000000 02000000 01000000 02000100 efcdab89674523f1 02000100 efcdab89674523f1", Dictionary},
		{"09000000 9a993141 9a99b141 33330542", Vector3},
		{"1b000000 01000000 02000000 05000000 04000000 03000000 62626300", Dictionary},
		{"1e000000 03000000 1f000000 e0ffffff 21000000", PackedInt32Array},
		{"1f000000 03000000 1f00000000000000 e0ffffffffffffff 2100000000000000", PackedInt64Array},
		// by the rules
		{"04000000 02000000 68690000", String},
		{"05000000 0000803f 00000040", Vector2},
		{"05000100 9a9999999999b93f 0000000000000040", Vector2},
		{"06000000 01000000 ffffffff", Vector2i},
		{"07000000 00000000 00000000 00000000 00000000", Rect2},
		{"08000000 01000000 02000000 03000000 04000000", Rect2i},
		{"0a000000 01000000 02000000 03000000", Vector3i},
		{"0b000000" + strings.Repeat(" 0000803f", 6), Transform2D},
		{"0c000000" + strings.Repeat(" 0000803f", 4), Vector4},
		{"0d000000" + strings.Repeat(" 01000000", 4), Vector4i},
		{"0e000000" + strings.Repeat(" 0000803f", 4), Plane},
		{"0f000100" + strings.Repeat(" 000000000000f03f", 4), Quaternion},
		{"10000000" + strings.Repeat(" 0000803f", 6), AABB},
		{"11000000" + strings.Repeat(" 0000803f", 9), Basis},
		{"12000100" + strings.Repeat(" 000000000000f03f", 12), Transform3D},
		{"13000000" + strings.Repeat(" 0000803f", 16), Projection},
		{"14000000" + strings.Repeat(" 0000803f", 4), Color},
		{"15000000 01000000 61000000", StringName},
		{"16000000 01000080 01000000 01000000 01000000 61000000 01000000 62000000", NodePath},
		{"17000000 0500000000000000", RID},
		{"18000100 0500000000000000", Object},
		{"19000000", Callable},
		{"1a000000 03000000 68697400 0500000000000000", Signal},
		{"1c000200 04000000 4e6f6465 02000000 00000000 18000100 0100000000000000", Array},              // of nodes
		{"1c000300 06000000 613a2f2f622e 0000 00000000", Array},                                        // of a script
		{"1b000800 03000000 4e6f6400 01000000 02000000 01000000 00000000", Dictionary},                 // values of a class
		{"1b000100 04000000 01000000 04000000 01000000 61000000 1c000000 01000000 " + x64, Dictionary}, // keys only
		{"1d000000 05000000 0102030405 000000", PackedByteArray},
		{"20000000 01000000 0000803f", PackedFloat32Array},
		{"21000000 01000000 000000000000f03f", PackedFloat64Array},
		{"22000000 02000000 02000000 61000000 01000000 00000000", PackedStringArray},
		{"23000000 01000000 0000803f 0000803f", PackedVector2Array},
		{"24000100 01000000" + strings.Repeat(" 000000000000f03f", 3), PackedVector3Array},
		{"25000000 01000000" + strings.Repeat(" 0000803f", 4), PackedColorArray},
		{"26000000 01000000" + strings.Repeat(" 0000803f", 4), PackedVector4Array},
	} {
		p := unhex(t, c.hex)
		v, err := Decode(Godot4, p)
		if err != nil || v.Type() != c.t {
			t.Errorf("%s: got %v, %v, want %v", c.hex, v.Type(), err, c.t)
			continue
		}
		if got := v.Append(nil); string(got) != string(p) {
			t.Errorf("%s: is written as %x", c.hex, got)
		}
		seen[c.t] = true
		truncations(t, c.hex, Godot4, p)
	}
	for typ := range Type(Types) {
		if typ.In(Godot4) && !seen[typ] {
			t.Errorf("no vector of %v", typ)
		}
	}
}
