package variant

import (
	"encoding/hex"
	"strings"
	"testing"
)

// stricter lists the inputs that the engine accepts and this package refuses, with the reason.
var stricter = map[string]struct{ reason, message string }{
	"trailing_bytes":    {"the sender of more than one value would be misread, or uses another dialect", "4 bytes behind the value, which ends at offset 8"},
	"dict_dup_key":      {"one of the two values would be lost silently", "a key is given twice"},
	"bytes_pad_missing": {"the length of a value is a multiple of four, and the engine itself wants it for texts", "needs 8 bytes, 5 are left"},
	"str_bom":           {"the engine drops the mark, so that a text with two changes at each reading", "byte order mark"},
	"str_surrogate":     {"half a surrogate pair is not UTF-8, and clients would get it", "not UTF-8"},
	"flag16_on_vector2": {"the engine ignores the flag, but it comes from Godot 4, where eight bytes follow for each component", "Vector2 has no 64 bit form in godot3"},
	"bool_64_flag":      {"the engine ignores the flag; no dialect has it", "bool has no 64 bit form in godot3"},
}

// rewritten lists the inputs that are accepted as in the engine, but written differently.
var rewritten = map[string]struct{ reason, hex string }{
	"object_as_id_5": {"the engine writes the number of the object that it made to hold the number", "110001000500000000000000"},
}

// TestEdges compares the verdict on malformed input with the engine's, except for the rules in
// stricter.
func TestEdges(t *testing.T) {
	cases := vectors(t, "godot3_edge.jsonl")
	for _, c := range cases {
		v, err := Decode(Godot3, unhex(t, c.Hex))
		_, re, accepted := strings.Cut(c.Engine, "re=")
		if rule, ok := stricter[c.Name]; ok {
			if !accepted || err == nil || !strings.Contains(err.Error(), rule.message) {
				t.Errorf("%s: the engine said %q, got %v, want …%s…, because %s", c.Name, c.Engine, err, rule.message, rule.reason)
			}
			continue
		}
		if accepted != (err == nil) {
			t.Errorf("%s: the engine said %q, got %v", c.Name, c.Engine, err)
			continue
		}
		if other, ok := rewritten[c.Name]; ok {
			re = other.hex
		}
		if got := hex.EncodeToString(v.Append(nil)); accepted && got != re {
			t.Errorf("%s: is written as\n%s, want\n%s", c.Name, got, re)
		}
	}
	if len(cases) != 40 {
		t.Errorf("%d cases, want 40", len(cases))
	}
}

// TestRefuses has input without an engine's verdict: the other dialects, and bombs. Each error
// names the place and the reason.
func TestRefuses(t *testing.T) {
	for _, c := range []struct {
		name    string
		d       Dialect
		hex     string
		message string
	}{
		{"64 bit int", Godot2, "02000100 0000000000000000", "godot2: offset 0: header 0x00010002: godot2 has no flags, godot3 and godot4 have"},
		{"unknown type", Godot2, "1d000000", "header 0x0000001d: godot2 has no type 29"},
		{"unknown type", Godot3, "1b000000", "godot3 has no type 27"},
		{"unknown type", Godot4, "27000000", "godot4 has no type 39"},
		{"unknown type", Godot4, "ff000000", "godot4 has no type 255"},
		{"one byte", Godot4, "00", "header: needs 4 bytes, 1 are left"},
		{"nothing", Godot2, "", "header: needs 4 bytes, 0 are left"},
		{"whole object", Godot3, "11000000 04000000 4e6f6465 00000000", "a whole Object: only the id"},
		{"whole object", Godot4, "18000000 04000000 4e6f6465 00000000", "a whole Object: only the id"},
		{"whole object inside", Godot4, "1c000000 01000000 18000000 00000000", "offset 8 at [0]: a whole Object"},
		{"64 bit color", Godot4, "14000100" + strings.Repeat("00", 32), "Color has no 64 bit form in godot4"},
		{"64 bit image", Godot2, "0f000100", "godot2 has no flags"},
		{"count", Godot4, "1f000000 ffffff7f 0000000000000000", "2147483647 elements of at least 8 bytes, but 8 bytes are left"},
		{"count", Godot4, "24000100 ffffffff 00000000", "4294967295 elements of at least 24 bytes"},
		{"array count", Godot2, "15000000 ffffffff 00000000", "2147483647 elements of at least 4 bytes, but 4 bytes are left"},
		{"pair count", Godot4, "1b000000 01000000 00000000", "Dictionary: 1 elements of at least 8 bytes, but 4 bytes are left"},
		{"text length", Godot4, "15000000 ffffffff", "StringName: needs 4294967296 bytes, 0 are left"},
		{"image length", Godot2, "0f000000 00000000 00000000 00000000 00000000 ffffffff", "Image: needs 4294967296 bytes"},
		{"names of a path", Godot4, "16000000 ffffffff ffffffff 02000000", "NodePath: 6442450943 names, but 0 bytes are left"},
		{"old path", Godot4, "16000000 04000000 61626364", "the form with one text is of godot2, godot4 does not have it"},
		{"event length", Godot2, "13000000 01000000 00000000 08000000", "InputEvent: a length of 8, want a multiple of 4 from 12 on"},
		{"event length", Godot2, "13000000 01000000 00000000 0e000000 0000", "InputEvent: a length of 14"},
		{"event length", Godot2, "13000000 01000000 00000000 ffffff7c", "InputEvent: a length of 2097151999"},
		{"event body", Godot2, "13000000 01000000 00000000 14000000 00000000", "InputEvent: needs 8 bytes, 4 are left"},
		{"text in an array of int", Godot4, "1c000100 02000000 01000000 04000000 00000000", "offset 12 at [0]: String in a container of int"},
		{"float for an int key", Godot4, "1b000100 02000000 01000000 03000000 00000000 00000000", "float in a container of int"},
		{"null in an array of int", Godot4, "1c000100 02000000 01000000 00000000", "Nil in a container of int"},
		{"int in an array of nodes", Godot4, "1c000200 04000000 4e6f6465 01000000 02000000 00000000", "int in a container of Object"},
		{"element type", Godot4, "1c000100 27000000 00000000", "element type: godot4 has no type 39"},
		{"same key", Godot4, "1b000000 02000000 02000000 01000000 00000000 02000100 0100000000000000 00000000", "offset 0: Dictionary: a key is given twice"},
		{
			"path of the error", Godot3,
			"12000000 01000000 04000000 06000000 76616c7565730000 13000000 02000000 00000000 12000000 01000000 02000000 07000000 04000000 01000000 ff000000",
			`godot3: offset 52 at ["values"][1][7]: String: not UTF-8`,
		},
	} {
		_, err := Decode(c.d, unhex(t, c.hex))
		if err == nil || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s as %v:\n got %v\nwant …%s…", c.name, c.d, err, c.message)
		}
	}
}

// TestDepth allows 64 nested containers, not 65.
func TestDepth(t *testing.T) {
	for d := Godot2; d <= Godot4; d++ {
		for _, depth := range []int{DepthMax, DepthMax + 1, 100_000} {
			p := nested(d, depth)
			v, err := Decode(d, p)
			if (err == nil) != (depth <= DepthMax) {
				t.Errorf("%v, depth %d: got %v", d, depth, err)
			}
			if err == nil && string(v.Append(nil)) != string(p) {
				t.Errorf("%v, depth %d: written differently", d, depth)
			}
			if err != nil && !strings.Contains(err.Error(), "[0][0][…][0][0]: more than 64 containers inside each other") {
				t.Errorf("%v, depth %d: got %.300v", d, depth, err)
			}
		}
	}
}

// nested returns nested arrays, the innermost empty.
func nested(d Dialect, depth int) []byte {
	w := NewWriter(d, nil)
	for i := range depth {
		m := w.Begin(Array)
		w.End(m, min(1, depth-1-i))
	}
	return w.Bytes()
}

// TestLeniency has input that is accepted and written differently.
func TestLeniency(t *testing.T) {
	for _, c := range []struct {
		name, in, out string
		d             Dialect
	}{
		{"old path", "10000000 0b000000 2f6c6576656c2f613a6262 00", "10000000 02000080 01000000 01000000 05000000 6c6576656c000000 01000000 61000000 02000000 62620000", Godot2},
		{"old path, empty names", "10000000 04000000 2f2f3a3a", "10000000 00000080 00000000 00000000", Godot2},
		{"object", "12000000", "00000000", Godot2},
		{"null object", "18000100 0000000000000000", "00000000", Godot4},
		{"shared array", "1c000000 00000080", "1c000000 00000000", Godot4},
		{"bits without a meaning", "05fefc3e 0000803f 0000803f", "05000000 0000803f 0000803f", Godot4},
		{"small int with 64 bits", "02000100 ffffffffffffffff", "02000000 ffffffff", Godot4},
		{"NaN", "03000000 0000c07f", "03000100 000000000000f87f", Godot4},
		{"NaN", "03000000 0000c07f", "03000000 0000c07f", Godot2},
		{"text with NUL", "15000000 04000000 61006200", "15000000 01000000 61000000", Godot4},
		{"padding", "1d000000 01000000 01ffffff", "1d000000 01000000 01000000", Godot4},
		{"property", "16000000 01000080 00000000 ffffffff 01000000 61000000 01000000 62000000", "16000000 01000080 01000000 01000000 01000000 61000000 01000000 62000000", Godot4},
	} {
		v, err := Decode(c.d, unhex(t, c.in))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := hex.EncodeToString(v.Append(nil)); got != strings.ReplaceAll(c.out, " ", "") {
			t.Errorf("%s: is written as\n%s, want\n%s", c.name, got, c.out)
		}
	}
}
