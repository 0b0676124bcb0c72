package payload

import (
	"encoding/hex"
	"math"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/godot/variant"
	"github.com/dnprelay/dnprelay/replication"
)

// write returns one Variant.
func write(t testing.TB, d variant.Dialect, f func(w *variant.Writer)) variant.Value {
	t.Helper()
	w := variant.NewWriter(d, nil)
	if f(&w); w.Err() != nil {
		t.Fatal(w.Err())
	}
	v, err := variant.Decode(d, w.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func raw(t testing.TB, d variant.Dialect, text string) variant.Value {
	t.Helper()
	p, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	v, err := variant.Decode(d, p)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// samples returns a Variant of every type, some of Array, whose numbers fit every
// value type.
func samples(t *testing.T) (all []variant.Value) {
	numbers := func(n int) func(w *variant.Writer) {
		return func(w *variant.Writer) {
			m := w.Begin(variant.Array)
			for i := range n {
				w.Int(int64(i))
			}
			w.End(m, n)
		}
	}
	ones := []float64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}
	for typ := range variant.Type(variant.Types) {
		d := variant.Godot4
		if !typ.In(d) {
			d = variant.Godot2
		}
		add := func(f func(w *variant.Writer)) { all = append(all, write(t, d, f)) }
		switch typ {
		case variant.Nil:
			add(func(w *variant.Writer) { w.Nil() })
		case variant.String:
			add(func(w *variant.Writer) { w.String("7") })
		case variant.StringName:
			all = append(all, raw(t, d, "15000000 01000000 37000000"))
		case variant.NodePath:
			add(func(w *variant.Writer) { w.NodePath("/a/b:c") })
		case variant.Array:
			for n := range 5 {
				add(numbers(n))
			}
		case variant.Dictionary:
			add(func(w *variant.Writer) { w.End(w.Begin(variant.Dictionary), 0) })
		case variant.PackedStringArray:
			add(func(w *variant.Writer) { w.Strings("a") })
		case variant.Image:
			all = append(all, raw(t, d, "0f000000 00000000 00000000 00000000 00000000 00000000"))
		case variant.InputEvent:
			all = append(all, raw(t, d, "13000000 08000000 00000000 0c000000"))
		case variant.RID:
			all = append(all, raw(t, d, "17000000 0500000000000000"))
		case variant.Object:
			all = append(all, raw(t, d, "18000100 0500000000000000"))
		case variant.Callable:
			all = append(all, raw(t, d, "19000000"))
		case variant.Signal:
			all = append(all, raw(t, d, "1a000000 01000000 61000000 0500000000000000"))
		default:
			add(func(w *variant.Writer) {
				for n := 1; n <= len(ones); n++ { // for each number of components
					ints := make([]int64, n)
					try := variant.NewWriter(d, nil)
					if try.Ints(typ, ints...); try.Err() == nil {
						w.Ints(typ, ints...)
						return
					}
					try = variant.NewWriter(d, nil)
					if try.Floats(typ, ones[:n]...); try.Err() == nil {
						w.Floats(typ, ones[:n]...)
						return
					}
				}
				t.Fatalf("no sample of %v", typ)
			})
		}
	}
	return all
}

// A row is one line of a table in the documentation of package variant.
type row struct{ left, right []string }

// tables reads the two tables.
func tables(t *testing.T) (accepted, delivered []row) {
	text, err := os.ReadFile("../../godot/variant/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	before, after, ok := strings.Cut(string(text), "is delivered as")
	if !ok {
		t.Fatal("no second table")
	}
	line := regexp.MustCompile(`(?m)^//\t(.+?) +\| (.+)$`)
	read := func(text string) (rows []row) {
		for _, m := range line.FindAllStringSubmatch(text, -1) {
			rows = append(rows, row{strings.Fields(m[1]), strings.Fields(m[2])})
		}
		return rows
	}
	return read(before), read(after)
}

func matches(globs []string, name string) bool {
	return slices.ContainsFunc(globs, func(glob string) bool {
		ok, err := path.Match(glob, name)
		return ok && err == nil
	})
}

// TestGodotTable tries every Variant for every value type and compares the accepted ones with
// the table of package variant.
func TestGodotTable(t *testing.T) {
	accepted, _ := tables(t)
	type pair struct {
		from variant.Type
		to   wire.ValueType
	}
	got, want := map[pair]bool{}, map[pair]bool{}
	for _, v := range samples(t) {
		for to := range wire.ValueType(wire.ValueTypes) {
			enc, null, err := (godotLiteral{v}).AppendValue(nil, to)
			if null != (v.Type() == variant.Nil) {
				t.Errorf("%v: null is %v", v.Type(), null)
			}
			if err == nil && !null && !wire.CheckValue(to, enc) {
				t.Errorf("%v as %v: % x", v.Type(), to, enc)
			}
			got[pair{v.Type(), to}] = got[pair{v.Type(), to}] || err == nil
			if err != nil && err.Code != replication.CodeTypeMismatch {
				t.Errorf("%v as %v: got %v, want type_mismatch", v.Type(), to, err)
			}
		}
	}
	seen := map[string]bool{}
	for _, r := range accepted {
		for _, name := range r.left {
			seen[name] = true
			from := -1
			for typ := range variant.Type(variant.Types) {
				if typ.String() == name {
					from = int(typ)
				}
			}
			if from < 0 {
				t.Errorf("the table has %q, which is not a type", name)
				continue
			}
			for to := range wire.ValueType(wire.ValueTypes) {
				want[pair{variant.Type(from), to}] = matches(r.right, to.String()) || r.right[0] == "any"
			}
		}
	}
	for p, ok := range got {
		if !seen[p.from.String()] {
			t.Fatalf("the table lacks %v", p.from)
		}
		if ok != want[p] {
			t.Errorf("%v for %v: accepted %v, the table says %v", p.from, p.to, ok, want[p])
		}
	}
}

// TestGodotDelivery writes every value type with small and extreme components in every dialect.
// The Variants must be those of the table, and each of them must occur.
func TestGodotDelivery(t *testing.T) {
	_, delivered := tables(t)
	for vt := range wire.ValueType(wire.ValueTypes) {
		i := slices.IndexFunc(delivered, func(r row) bool { return matches(r.left, vt.String()) })
		if i < 0 {
			t.Errorf("the table lacks %v", vt)
			continue
		}
		for d := variant.Godot2; d <= variant.Godot4; d++ {
			for _, enc := range extremes(vt) {
				v := write(t, d, func(w *variant.Writer) { WriteVariant(w, vt, enc) })
				name := v.Type().String()
				old := strings.TrimSuffix(name, "2") + "2i" // without vectors of integers, points are vectors of floats
				if strings.HasSuffix(name, "3") {
					old = strings.TrimSuffix(name, "3") + "3i"
				}
				ok := slices.Contains(delivered[i].right, name) || d < variant.Godot4 && slices.Contains(delivered[i].right, old)
				if !ok {
					t.Errorf("%v in %v: % x becomes %v, the table says %v", vt, d, enc, name, delivered[i].right)
				}
				if vt.Kind() == wire.KindFloat && (d < variant.Godot4 || v.Type() == variant.String) {
					continue // rounded
				}
				back, _, err := (godotLiteral{v}).AppendValue(nil, vt)
				if err != nil || string(back) != string(enc) {
					t.Errorf("%v in %v: % x came back as % x, %v", vt, d, enc, back, err)
				}
			}
		}
	}
}

// extremes returns the value of zeros, the largest, and the smallest finite one.
func extremes(vt wire.ValueType) (all [][]byte) {
	if vt.Variable() {
		return [][]byte{{0, 0}, {1, 0, 'a'}}
	}
	all = append(all, vt.Zero())
	for _, c := range map[wire.Kind][][]byte{
		wire.KindUint: {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}},
		wire.KindSint: {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, {0, 0, 0, 0, 0, 0, 0, 0x80}},
	}[vt.Kind()] {
		one := c[8-vt.Width():]
		all = append(all, []byte(strings.Repeat(string(one), vt.Components())))
	}
	if vt.Kind() == wire.KindFloat {
		one := map[int][]byte{2: {0xff, 0x7b}, 4: {0xff, 0xff, 0x7f, 0x7f}, 8: {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xef, 0x7f}}[vt.Width()]
		all = append(all, []byte(strings.Repeat(string(one), vt.Components())))
	}
	return all
}

// TestGodotValues has the wire bytes of Variants, for each line of the table.
func TestGodotValues(t *testing.T) {
	const g2, g3, g4 = variant.Godot2, variant.Godot3, variant.Godot4
	floats := func(typ variant.Type, c ...float64) func(w *variant.Writer) {
		return func(w *variant.Writer) { w.Floats(typ, c...) }
	}
	integer := func(i int64) func(w *variant.Writer) { return func(w *variant.Writer) { w.Int(i) } }
	float := func(f float64) func(w *variant.Writer) { return func(w *variant.Writer) { w.Float(f) } }
	text := func(s string) func(w *variant.Writer) { return func(w *variant.Writer) { w.String(s) } }
	basis := "0000803f 00008040 0000e040 00000040 0000a040 00000041 00004040 0000c040 00001041"
	for _, c := range []struct {
		d    variant.Dialect
		f    func(w *variant.Writer)
		typ  string
		want string
	}{
		{g3, func(w *variant.Writer) { w.Bool(true) }, "uint8", "01"},
		{g3, integer(-128), "sint8", "80"},
		{g3, integer(255), "uint8", "ff"},
		{g3, integer(math.MinInt64), "sint64", "0000000000000080"},
		{g3, integer(math.MaxInt64), "uint64", "ffffffffffffff7f"},
		{g3, integer(92), "float32", "0000b842"},
		{g3, integer(2049), "float16", "0068"}, // half to even
		{g3, float(93.5), "float32", "0000bb42"},
		{g3, float(0.1), "float64", "9a9999999999b93f"},
		{g2, float(0.5), "float64", "000000000000e03f"},
		{g3, float(5), "uint8", "05"},
		{g3, float(-5), "sint64", "fbffffffffffffff"},
		{g3, float(1 << 63), "uint64", "0000000000000080"},
		{g3, text("aé"), "string", "0300 61c3a9"},
		{g3, text("18446744073709551615"), "uint64", "ffffffffffffffff"},
		{g2, text("-9223372036854775808"), "sint64", "0000000000000080"},
		{g3, func(w *variant.Writer) { w.NodePath("/a/b:c") }, "string", "0600 2f612f623a63"},
		{g3, floats(variant.Vector2, 1, -2), "vector2f16", "003c00c0"},
		{g3, floats(variant.Vector2, 1, -2), "vector2f32", "0000803f000000c0"},
		{g3, floats(variant.Vector2, 1, -2), "point2s8", "01fe"},
		{g4, func(w *variant.Writer) { w.Ints(variant.Vector2i, 1, -2) }, "point2s64", "0100000000000000 feffffffffffffff"},
		{g3, floats(variant.Vector3, 1, -2, 0), "vector3f64", "000000000000f03f 00000000000000c0 0000000000000000"},
		{g3, floats(variant.Vector3, 1, 2, 3), "point3u16", "010002000300"},
		{g4, func(w *variant.Writer) { w.Ints(variant.Vector3i, 1, 2, 3) }, "point3u8", "010203"},
		{g2, floats(variant.Quaternion, 0, 0, 0, 1), "quaternionf16", "000000000000003c"},
		{g4, floats(variant.Vector4, 0, 0, 0, 1), "quaternionf32", "000000000000000000000000 0000803f"},
		{g3, floats(variant.Color, 1, 0, 0, 1), "quaternionf32", "0000803f 00000000 00000000 0000803f"},
		{g3, floats(variant.Plane, 0, 1, 0, 2), "quaternionf32", "00000000 0000803f 00000000 00000040"},
		{g3, floats(variant.Rect2, 0, 1, 0, 2), "quaternionf32", "00000000 0000803f 00000000 00000040"},
		{g4, func(w *variant.Writer) { w.Ints(variant.Rect2i, 1, 2, 3, -4) }, "data", "1000 01000000 02000000 03000000 fcffffff"},
		{g4, func(w *variant.Writer) { w.Ints(variant.Vector4i, 1, 2, 3, -4) }, "data", "1000 01000000 02000000 03000000 fcffffff"},
		{g3, func(w *variant.Writer) { w.Data([]byte{0, 255}) }, "data", "0200 00ff"},
		{g3, floats(variant.Transform2D, 1, 0, 0, 1, 0, 0), "data", "1c00 08000000 0000803f 00000000 00000000 0000803f 00000000 00000000"},
		{g3, floats(variant.AABB, 1, 0, 0, 1, 0, 0), "data", "1c00 0b000000 0000803f 00000000 00000000 0000803f 00000000 00000000"},
		{g3, floats(variant.Basis, 1, 4, 7, 2, 5, 8, 3, 6, 9), "data", "2800 0c000000" + basis},
		{g2, floats(variant.Transform3D, 1, 4, 7, 2, 5, 8, 3, 6, 9, 0, 0, 0), "data", "3400 0d000000" + basis + "00000000 00000000 00000000"},
		{g3, func(w *variant.Writer) { w.End(w.Begin(variant.Dictionary), 0) }, "data", "0800 12000000 00000000"},
		{g3, func(w *variant.Writer) { w.Strings("a") }, "data", "1000 17000000 01000000 02000000 61000000"},
		{g3, func(w *variant.Writer) { w.Ints(variant.PackedInt32Array, -1) }, "data", "0c00 15000000 01000000 ffffffff"},
		{g3, func(w *variant.Writer) { m := w.Begin(variant.Array); w.Int(1); w.Float(0.5); w.End(m, 2) }, "vector2f16", "003c0038"},
		{g3, func(w *variant.Writer) {
			m := w.Begin(variant.Array)
			w.String("18446744073709551615")
			w.Int(2)
			w.End(m, 2)
		}, "point2u64", "ffffffffffffffff 0200000000000000"},
		{g3, func(w *variant.Writer) { m := w.Begin(variant.Array); w.Nil(); w.End(m, 1) }, "data", "0c00 13000000 01000000 00000000"},
	} {
		v := write(t, c.d, c.f)
		got, null, err := (godotLiteral{v}).AppendValue([]byte("pre"), typeNamed(t, c.typ))
		if want := strings.ReplaceAll(c.want, " ", ""); err != nil || null || hex.EncodeToString(got) != hex.EncodeToString([]byte("pre"))+want {
			t.Errorf("%v of %v as %s: got % x, %v, want %s", v.Type(), c.d, c.typ, got, err, c.want)
		}
	}
	garbage := raw(t, g2, "0f000000 00000000 00000000 01000000 01000000 01000000 01ffffff") // an image with memory of the engine
	if got, _, err := (godotLiteral{garbage}).AppendValue(nil, wire.TypeData); err != nil || !strings.HasSuffix(string(got), "\x01\x00\x00\x00") {
		t.Errorf("the value contains the padding: % x, %v", got, err)
	}
}

func TestGodotValuesRefused(t *testing.T) {
	const mismatch, rangeCode, large = "type_mismatch", "out_of_range", "too_large"
	array := func(f ...func(w *variant.Writer)) func(w *variant.Writer) {
		return func(w *variant.Writer) {
			m := w.Begin(variant.Array)
			for _, one := range f {
				one(w)
			}
			w.End(m, len(f))
		}
	}
	integer := func(i int64) func(w *variant.Writer) { return func(w *variant.Writer) { w.Int(i) } }
	float := func(f float64) func(w *variant.Writer) { return func(w *variant.Writer) { w.Float(f) } }
	text := func(s string) func(w *variant.Writer) { return func(w *variant.Writer) { w.String(s) } }
	vector := func(c ...float64) func(w *variant.Writer) {
		return func(w *variant.Writer) {
			w.Floats([...]variant.Type{2: variant.Vector2, 3: variant.Vector3}[len(c)], c...)
		}
	}
	object := func(w *variant.Writer) { w.Value(raw(t, variant.Godot4, "18000100 0500000000000000")) }
	for _, c := range []struct {
		f             func(w *variant.Writer)
		typ           string
		code, message string
	}{
		{text("low"), "float32", mismatch, "want float32, got String"},
		{func(w *variant.Writer) { w.Bool(true) }, "sint8", mismatch, "want sint8, got bool"},
		{integer(256), "uint8", rangeCode, "256 does not fit uint8"},
		{integer(-1), "uint64", rangeCode, "-1 does not fit uint64"},
		{integer(128), "sint8", rangeCode, "128 does not fit sint8"},
		{integer(math.MaxInt64), "sint32", rangeCode, "does not fit sint32"},
		{integer(65520), "float16", rangeCode, "65520 does not fit float16"},
		{float(0.5), "uint8", mismatch, "want uint8, got 0.5, which has a fraction"},
		{float(math.NaN()), "float32", rangeCode, "NaN does not fit float32"},
		{float(math.Inf(-1)), "float64", rangeCode, "-Inf does not fit float64"},
		{float(math.NaN()), "uint8", rangeCode, "NaN does not fit uint8"},
		{float(1e39), "float32", rangeCode, "1e+39 does not fit float32"},
		{float(1 << 63), "sint64", rangeCode, "does not fit sint64"},
		{float(1 << 64), "uint64", rangeCode, "does not fit uint64"},
		{float(-1), "uint64", rangeCode, "-1 does not fit uint64"},
		{text("18446744073709551616"), "uint64", rangeCode, "does not fit uint64"},
		{text("1e3"), "uint64", mismatch, "not a decimal integer"},
		{text("7"), "sint32", mismatch, "want sint32, got String"},
		{vector(1, 2), "vector3f32", mismatch, "want vector3f32, got Vector2"},
		{vector(1, 0.5), "point2s8", mismatch, "component 1: want point2s8, got 0.5, which has a fraction"},
		{vector(1, 200), "point2s8", rangeCode, "component 1: 200 does not fit point2s8"},
		{vector(1, 2, 1e10), "vector3f16", rangeCode, "component 2: 1e+10 does not fit vector3f16"},
		{array(integer(1)), "vector2f32", mismatch, "want vector2f32 with 2 components, got 1"},
		{array(integer(1), text("2")), "vector2f32", mismatch, "component 1: want vector2f32, got String"},
		{array(integer(1), func(w *variant.Writer) { w.Nil() }), "vector2f32", mismatch, "component 1: want vector2f32, got Nil"},
		{array(integer(1), func(w *variant.Writer) { w.Bool(true) }), "point2u8", mismatch, "component 1: want point2u8, got bool"},
		{text("x"), "data", mismatch, "want data, got String"},
		{object, "data", mismatch, "want data, got Object"},
		{array(array(object)), "data", mismatch, "want data, got Array with Object inside"},
		{func(w *variant.Writer) { w.Data([]byte("x")) }, "string", mismatch, "want string, got PackedByteArray"},
		{text(strings.Repeat("x", 65536)), "string", large, "65536 bytes of string"},
		{func(w *variant.Writer) { w.Data(make([]byte, 65536)) }, "data", large, "65536 bytes of data"},
		{func(w *variant.Writer) { w.Strings(make([]string, 9000)...) }, "data", large, "72008 bytes of data"},
	} {
		v := write(t, variant.Godot4, c.f)
		_, _, err := (godotLiteral{v}).AppendValue(nil, typeNamed(t, c.typ))
		if err == nil || string(err.Code) != c.code || !strings.Contains(err.Message, c.message) {
			t.Errorf("%v as %s\n got %v\nwant %s: …%s…", v.Type(), c.typ, err, c.code, c.message)
		}
	}
}
