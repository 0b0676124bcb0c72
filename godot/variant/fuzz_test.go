package variant

import (
	"bytes"
	"errors"
	"runtime"
	"testing"
)

func FuzzGodot2(f *testing.F) { fuzz(f, Godot2) }
func FuzzGodot3(f *testing.F) { fuzz(f, Godot3) }
func FuzzGodot4(f *testing.F) { fuzz(f, Godot4) }

// fuzz decodes any bytes without a panic or an allocation beyond the bound. An error names the
// place. An accepted value can be walked, is written in at most twice its size, and is stable
// when it is read and written again.
func fuzz(f *testing.F, d Dialect) {
	for _, c := range vectors(f, "godot3.jsonl") {
		f.Add(unhex(f, c.Hex))
		if v, err := Decode(Godot3, unhex(f, c.Hex)); err == nil {
			if p, ok := relabel(v); ok {
				f.Add(p)
			}
		}
	}
	for _, c := range vectors(f, "godot3_edge.jsonl") {
		f.Add(unhex(f, c.Hex))
	}
	for _, text := range []string{
		"1b000500 02000000 02000000 01000000 02000100 efcdab89674523f1 02000100 efcdab89674523f1",
		"1c000200 04000000 4e6f6465 02000000 00000000 18000100 0100000000000000",
		"1c000300 06000000 613a2f2f622e 0000 00000000", "1a000000 03000000 68697400 0500000000000000",
		"13000000 01000000 00000000 14000000 00000002 41000000", "0f000000 03000000 00000000 02000000 01000000 06000000 010203040506 0000",
		"10000000 0b000000 2f6c6576656c2f613a6262 00", "10000000 01000080 00000000 03000000 01000000 61000000 01000000 70000000",
		"24000100 01000000 000000000000f03f 000000000000f03f 000000000000f03f", "17000000 0500000000000000",
	} {
		f.Add(unhex(f, text))
	}
	for _, p := range [][]byte{nested(d, DepthMax+1), bomb(d, Dictionary, 2048), keys(d, 600, 3), longKeys(d)} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		v, err := Decode(d, p)
		runtime.ReadMemStats(&after)
		if after.TotalAlloc-before.TotalAlloc > bound(len(p)) {
			// another goroutine may have allocated, so measure again
			if n := allocated(func() { _, _ = Decode(d, p) }); n > bound(len(p)) {
				t.Fatalf("%d bytes allocated for %d", n, len(p))
			}
		}
		if err != nil {
			refused(t, d, p, err)
			return
		}
		walk(t, v)
		out := v.Append(nil)
		if len(out) > max(2*len(p), 16) && !bytes.Contains(p, header(Godot2, NodePath)) {
			t.Fatalf("%d bytes became %d", len(p), len(out))
		}
		again, err := Decode(d, out)
		if err != nil {
			t.Fatalf("%x was written, and refused: %v", out, err)
		}
		if twice := again.Append(nil); !bytes.Equal(twice, out) {
			t.Fatalf("%x\nbecame\n%x", out, twice)
		}
	})
}

func refused(t *testing.T, d Dialect, p []byte, err error) {
	var e *Error
	if !errors.As(err, &e) || e.Dialect != d || e.Reason == "" || e.Offset < 0 || e.Offset > len(p) || len(e.Path) > pathMax+48 {
		t.Fatalf("%#v", err)
	}
	if e.Fits != 0 {
		if _, err := Decode(e.Fits, p); err != nil && e.Fits != d {
			// a quiet scan does not look for duplicate keys
			if other, ok := err.(*Error); !ok || other.Reason != "Dictionary: a key is given twice" {
				t.Fatalf("the error says that %v fits: %v", e.Fits, err)
			}
		}
	}
}

// walk visits everything in v.
func walk(t *testing.T, v Value) {
	switch types[v.Type()].shape {
	case shapeText, shapePath:
		_ = v.Text()
	case shapeTexts:
		if len(v.Strings()) != v.Len() {
			t.Fatal("texts are missing")
		}
	}
	_ = v.IsNull()
	for i := range v.Components() {
		if v.Integral() {
			_ = v.Integer(i)
		} else {
			_ = v.Real(i)
		}
	}
	n := 0
	for c := v.Elements(); c.Next(); n++ {
		walk(t, c.Key())
		walk(t, c.Value())
	}
	if k := types[v.Type()].shape; (k == shapeArray || k == shapeDictionary) && n != v.Len() {
		t.Fatalf("%d elements of %d", n, v.Len())
	}
}
