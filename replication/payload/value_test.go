package payload

import (
	"bytes"
	"encoding/hex"
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/x448/float16"
)

var seed = flag.Uint64("seed", 0, "seed of the random tests; 0 takes one from the clock")

func newRand(t *testing.T) *rand.Rand {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed=%d", s)
	return rand.New(rand.NewPCG(s, 0))
}

func typeNamed(t *testing.T, name string) wire.ValueType {
	t.Helper()
	vt, ok := wire.ParseValueType(name)
	if !ok {
		t.Fatalf("no type %q", name)
	}
	return vt
}

// All 38 types, both ways.
func TestValues(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range []struct{ typ, json, hex string }{
		{"sint8", `-128`, "80"}, {"sint8", `127`, "7f"}, {"uint8", `255`, "ff"},
		{"sint16", `-2`, "feff"}, {"uint16", `65535`, "ffff"},
		{"sint32", `-2147483648`, "00000080"}, {"uint32", `4294967295`, "ffffffff"},
		{"sint64", `-9007199254740992`, "000000000000e0ff"}, {"sint64", `"-9007199254740993"`, "ffffffffffffdfff"},
		{"sint64", `"-9223372036854775808"`, "0000000000000080"},
		{"uint64", `9007199254740992`, "0000000000002000"}, {"uint64", `"9007199254740993"`, "0100000000002000"},
		{"uint64", `"18446744073709551615"`, "ffffffffffffffff"},
		{"float16", `1.5`, "003e"}, {"float16", `65504`, "ff7b"}, {"float16", `0.1`, "662e"}, {"float16", `-0`, "0080"},
		{"float16", `6e-08`, "0100"},
		{"float32", `93.5`, "0000bb42"}, {"float32", `0.1`, "cdcccc3d"}, {"float32", `1e+21`, "27d75862"},
		{"float64", `0.1`, "9a9999999999b93f"}, {"float64", `5e-324`, "0100000000000000"},
		{"string", `""`, "0000"}, {"string", `"aé\"\\\u000a"`, "0600 61c3a9225c0a"},
		{"data", `""`, "0000"}, {"data", `"AP8="`, "020000ff"},
		{"point2s8", `[-1,2]`, "ff02"}, {"point2u8", `[1,255]`, "01ff"},
		{"point2s16", `[-1,2]`, "ffff0200"}, {"point2u16", `[1,2]`, "01000200"},
		{"point2s32", `[-1,2]`, "ffffffff02000000"}, {"point2u32", `[1,2]`, "0100000002000000"},
		{"point2s64", `[-1,2]`, "ffffffffffffffff0200000000000000"},
		{"point2u64", `["18446744073709551615",2]`, "ffffffffffffffff0200000000000000"},
		{"point3s8", `[-1,2,3]`, "ff0203"}, {"point3u8", `[1,2,3]`, "010203"},
		{"point3s16", `[-1,2,3]`, "ffff02000300"}, {"point3u16", `[1,2,3]`, "010002000300"},
		{"point3s32", `[-1,2,3]`, "ffffffff0200000003000000"}, {"point3u32", `[1,2,3]`, "010000000200000003000000"},
		{"point3s64", `[-1,2,3]`, "ffffffffffffffff02000000000000000300000000000000"},
		{"point3u64", `[1,2,3]`, "010000000000000002000000000000000300000000000000"},
		{"vector2f16", `[1,-2]`, "003c00c0"}, {"vector2f32", `[1,-2]`, "0000803f000000c0"},
		{"vector2f64", `[1,-2]`, "000000000000f03f00000000000000c0"},
		{"vector3f16", `[1,-2,0]`, "003c00c00000"}, {"vector3f32", `[1,-2,0]`, "0000803f000000c000000000"},
		{"vector3f64", `[1,-2,0]`, "000000000000f03f00000000000000c00000000000000000"},
		{"quaternionf16", `[0,0,0,1]`, "000000000000003c"},
		{"quaternionf32", `[0,0,0,1]`, "0000000000000000000000000000803f"},
		{"quaternionf64", `[0,0,0,1]`, "000000000000000000000000000000000000000000000000000000000000f03f"},
	} {
		seen[c.typ] = true
		vt := typeNamed(t, c.typ)
		want, _ := hex.DecodeString(strings.ReplaceAll(c.hex, " ", ""))
		got, null, err := literal(c.json).AppendValue([]byte("pre"), vt)
		if err != nil || null || string(got) != "pre"+string(want) {
			t.Errorf("%s %s: got % x, %v, %v, want % x", c.typ, c.json, got, null, err, want)
			continue
		}
		if back := AppendValue([]byte("pre"), vt, want); string(back) != "pre"+c.json {
			t.Errorf("%s % x: got %s, want %s", c.typ, want, back[3:], c.json)
		}
	}
	if len(seen) != wire.ValueTypes {
		t.Errorf("the table has %d of %d types", len(seen), wire.ValueTypes)
	}
}

// Accepted forms of a value that AppendValue does not write.
func TestValueSpellings(t *testing.T) {
	for _, c := range []struct{ typ, json, canonical string }{
		{"uint8", `5.0`, `5`}, {"uint8", `2.5e1`, `25`}, {"uint8", `2500e-2`, `25`}, {"uint8", `0e99999999999`, `0`},
		{"uint8", `-0`, `0`}, {"uint8", `0.000`, `0`}, {"sint8", `-1.2E2`, `-120`},
		{"uint64", `18446744073709551615`, `"18446744073709551615"`}, {"uint64", `"7"`, `7`}, {"uint64", `1.8446744073709551615e19`, `"18446744073709551615"`},
		{"sint64", `9007199254740993`, `"9007199254740993"`},
		{"point3s64", `[ "1" , -2, 3.0 ]`, `[1,-2,3]`},
		{"float32", `1E2`, `100`}, {"float32", `16777217`, `16777216`}, {"float32", `1e-99`, `0`},
		{"float16", `2049`, `2048`}, {"float16", `2051`, `2052`}, // ties are rounded to even
		{"float16", `2049.000001`, `2050`}, {"float16", `2049.00000001`, `2050`}, // and there is no double rounding
		{"float16", `2050.99999999999`, `2050`}, {"float16", `65519.99`, `65504`}, {"float16", `1e-30`, `0`},
		{"string", `"\u0061\ud83d\ude00\/"`, `"a😀/"`},
		{"data", `"AP8\u003d"`, `"AP8="`},
	} {
		vt := typeNamed(t, c.typ)
		enc, _, err := literal(c.json).AppendValue(nil, vt)
		if err != nil {
			t.Errorf("%s %s: %v", c.typ, c.json, err)
			continue
		}
		if got := AppendValue(nil, vt, enc); string(got) != c.canonical {
			t.Errorf("%s %s: became %s, want %s", c.typ, c.json, got, c.canonical)
		}
	}
}

func TestValueRefuses(t *testing.T) {
	const mismatch, rangeCode, large = "type_mismatch", "out_of_range", "too_large"
	for _, c := range []struct{ typ, json, code, message string }{
		{"float32", `"93.5"`, mismatch, "want float32, got string"},
		{"float32", `true`, mismatch, "want float32, got boolean"},
		{"float32", `[1]`, mismatch, "want float32, got array"},
		{"float32", `{}`, mismatch, "want float32, got object"},
		{"float32", `3.5e38`, rangeCode, "3.5e38 does not fit float32"},
		{"float64", `1e309`, rangeCode, "does not fit float64"},
		{"float16", `65520`, rangeCode, "65520 does not fit float16"},
		{"float16", `-1e300`, rangeCode, "does not fit float16"},
		{"uint8", `256`, rangeCode, "256 does not fit uint8"},
		{"uint8", `-1`, rangeCode, "-1 does not fit uint8"},
		{"uint8", `1e2147483647`, rangeCode, "does not fit"},
		{"uint8", `1e99999999999999999999`, rangeCode, "does not fit"},
		{"uint8", `1e9223372036854775807`, rangeCode, "does not fit"},
		{"uint8", `1e-9223372036854775808`, mismatch, "fraction"},
		{"uint8", `1e-99999999999999999999`, mismatch, "fraction"},
		{"uint8", `1.5`, mismatch, "want uint8, got 1.5, which has a fraction"},
		{"sint32", `15e-1`, mismatch, "fraction"},
		{"uint8", `"5"`, mismatch, "want uint8, got string"},
		{"sint8", `128`, rangeCode, "128 does not fit sint8"},
		{"sint64", `9223372036854775808`, rangeCode, "does not fit sint64"},
		{"uint64", `"18446744073709551616"`, rangeCode, "does not fit uint64"},
		{"uint64", `"1.0"`, mismatch, "not a decimal integer"},
		{"uint64", `"1e3"`, mismatch, "not a decimal integer"},
		{"uint64", `""`, mismatch, "not a decimal integer"},
		{"uint64", `"007"`, mismatch, "not a decimal integer"},
		{"uint64", `"+7"`, mismatch, "not a decimal integer"},
		{"uint64", `"\u0037"`, mismatch, "not a decimal integer"},
		{"float64", `"7"`, mismatch, "want float64, got string"},
		{"vector3f32", `7`, mismatch, "want vector3f32, got number"},
		{"vector3f32", `[1,2]`, mismatch, "want vector3f32 with 3 components, got 2"},
		{"vector3f32", `[1,2,3,4,5]`, mismatch, "want vector3f32 with 3 components, got 5"},
		{"vector3f32", `[]`, mismatch, "got 0"},
		{"vector3f32", `[1,"2",3]`, mismatch, "component 1: want vector3f32, got string"},
		{"vector3f32", `[1,null,3]`, mismatch, "component 1: want vector3f32, got null"},
		{"point2u8", `[1,-1]`, rangeCode, "component 1: -1 does not fit point2u8"},
		{"string", `7`, mismatch, "want string, got number"},
		{"string", `"\ud800x"`, "bad_request", "half a surrogate pair"},
		{"string", `"` + strings.Repeat("x", 65536) + `"`, large, "65536 bytes of string"},
		{"data", `7`, mismatch, "want data, got number"},
		{"data", `"AP8"`, mismatch, `want data as base64, got "AP8"`},
		{"data", `"A\nA=="`, mismatch, "base64"},
		{"data", `"AP9="`, mismatch, "base64"}, // unused bits are not 0
		{"data", `"_-=="`, mismatch, "base64"},
		{"data", `"` + strings.Repeat("AAAA", 21846) + `"`, large, "65538 bytes of data"},
	} {
		_, _, err := literal(c.json).AppendValue(nil, typeNamed(t, c.typ))
		if err == nil || string(err.Code) != c.code || !strings.Contains(err.Message, c.message) {
			t.Errorf("%s %.60s\n got %v\nwant %s: …%s…", c.typ, c.json, err, c.code, c.message)
		}
	}
	if _, null, err := literal("null").AppendValue(nil, 9); !null || err != nil {
		t.Errorf("null: got %v, %v", null, err)
	}
}

// The JSON of any valid value is read as the same bytes.
func TestValuesRoundTrip(t *testing.T) {
	rnd := newRand(t)
	for vt := range wire.ValueType(wire.ValueTypes) {
		for range 2000 {
			enc := randomValue(rnd, vt)
			text := AppendValue(nil, vt, enc)
			if strings.Contains(string(text), "null") {
				continue // not a number, or infinite
			}
			back, _, err := literal(text).AppendValue(nil, vt)
			if err != nil || !bytes.Equal(back, enc) {
				t.Fatalf("%v % x became %s and then % x, %v", vt, enc, text, back, err)
			}
			if again := AppendValue(nil, vt, back); !bytes.Equal(again, text) {
				t.Fatalf("%v: %s became %s", vt, text, again)
			}
		}
	}
}

func randomValue(rnd *rand.Rand, vt wire.ValueType) []byte {
	if vt.Variable() {
		p := make([]byte, rnd.IntN(40))
		for i := range p {
			p[i] = byte(rnd.IntN(128)) // UTF-8
			if vt == wire.TypeData {
				p[i] = byte(rnd.Uint32())
			}
		}
		return append([]byte{byte(len(p)), 0}, p...)
	}
	p := make([]byte, vt.Size())
	for i := range p {
		p[i] = byte(rnd.Uint32())
	}
	if rnd.IntN(4) == 0 { // small numbers too
		clear(p[1:])
	}
	return p
}

// Every half float is read back unchanged, and rounding agrees with a search for the nearest.
func TestHalfFloats(t *testing.T) {
	const float16Type = 8
	for bits := range 1 << 16 {
		h := float16.Frombits(uint16(bits))
		text := appendHalf(nil, h)
		if !h.IsFinite() {
			if string(text) != "null" {
				t.Fatalf("%04x: got %s, want null", bits, text)
			}
			continue
		}
		enc, err := appendFloat(nil, float16Type, string(text))
		if err != nil || enc[0] != byte(bits) || enc[1] != byte(bits>>8) {
			t.Fatalf("%04x became %s and then % x, %v", bits, text, enc, err)
		}
	}
	rnd := newRand(t)
	for range 100_000 {
		low := uint16(rnd.IntN(0x7bff))
		a, b := float64(float16.Frombits(low).Float32()), float64(float16.Frombits(low+1).Float32())
		middle := (a + b) / 2
		even := low + low&1
		for f, want := range map[float64]uint16{math.Nextafter(middle, 0): low, middle: even, math.Nextafter(middle, 1e9): low + 1} {
			if got := float16.Fromfloat32(roundToOdd(f)).Bits(); got != want {
				t.Fatalf("%v between %v and %v: got %04x, want %04x", f, a, b, got, want)
			}
		}
	}
}

func TestNotANumberIsNull(t *testing.T) {
	for vt, enc := range map[wire.ValueType][]byte{
		8: {0, 0x7c}, 9: {0, 0, 0xc0, 0x7f}, 10: {0, 0, 0, 0, 0, 0, 0xf0, 0xff},
	} {
		if got := AppendValue(nil, vt, enc); string(got) != "null" {
			t.Errorf("%v % x: got %s, want null, because JSON cannot express it", vt, enc, got)
		}
	}
	if got := AppendValue(nil, wire.TypeString, []byte{2, 0, 'a', 0xff}); string(got) != `"a�"` {
		t.Errorf("a string that is not UTF-8: got %s", got)
	}
}

// Values that JSON cannot express have their bytes in raw, so that what a get answers makes the same state.
func TestRawComesBack(t *testing.T) {
	rnd := newRand(t)
	for range 300 {
		op := randomPut(rnd)
		for i := range op.Values {
			v := &op.Values[i]
			enc := randomValue(rnd, v.Type)
			if v.Type == wire.TypeString {
				enc = append([]byte{3, 0}, 'a', byte(rnd.Uint32()), byte(rnd.Uint32()))
			}
			if f := v.Type; f.Kind() == wire.KindFloat && rnd.IntN(2) == 0 {
				for c := range slices.Chunk(enc, f.Width()) {
					copy(c[f.Width()-2:], "\xff\xff") // NaN
				}
			}
			v.Value = replication.Encoded{Type: v.Type, Value: enc}
		}
		before := listed(t, &op)
		text := putText(t, &op)
		back := mustParse(t, text, "").Ops[0]
		after := listed(t, &back)
		for i := range op.Values {
			if a, b := before.Values.Value(i), after.Values.Value(i); string(a) != string(b) {
				t.Fatalf("value %d: % x became % x in %s", i, a, b, text)
			}
		}
	}
	for _, body := range []string{
		`{"op":"put","key":"k","values":[{"type":"uint8","raw":"?"}]}`, `{"op":"put","key":"k","values":[{"type":"uint8","raw":1}]}`,
	} {
		if _, err := JSON.Parse([]byte(body), "k"); err == nil || err.Code != replication.CodeBadRequest {
			t.Errorf("%s: %v", body, err)
		}
	}
	p := newPublisher(t)
	p.want(`{"op":"put","key":"k","values":[{"type":"uint8","raw":"AAA="}]}`, `"code":"type_mismatch","message":"value \"0\": want uint8"`)
	p.want(`{"op":"put","key":"k","values":[{"type":"string","raw":"BQBh"}]}`, `"code":"type_mismatch"`)
	p.want(`{"op":"put","key":"k","values":[{"type":"uint8","value":1,"raw":"BQ=="}]}`, `"seq":`)
	if got := p.get(); !strings.Contains(got, `{"type":"uint8","value":5}`) {
		t.Errorf("raw does not take the place of value: %s", got)
	}
}
