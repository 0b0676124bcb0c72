package variant

import (
	"encoding/hex"
	"math"
	"strings"
	"testing"
)

// TestWriter writes the forms that the other tests do not.
func TestWriter(t *testing.T) {
	for _, c := range []struct {
		name  string
		d     Dialect
		write func(w *Writer)
		hex   string
	}{
		{"bool", Godot2, func(w *Writer) { w.Bool(true) }, "01000000 01000000"},
		{"largest int", Godot2, func(w *Writer) { w.Int(math.MaxInt32) }, "02000000 ffffff7f"},
		{"smallest int", Godot3, func(w *Writer) { w.Int(math.MinInt64) }, "02000100 0000000000000080"},
		{"float that 32 bits lose", Godot2, func(w *Writer) { w.Float(0.1) }, "03000000 cdcccc3d"},
		{"float that 32 bits lose", Godot3, func(w *Writer) { w.Float(0.1) }, "03000100 9a9999999999b93f"},
		{"infinite vector", Godot3, func(w *Writer) { w.Floats(Vector2, math.Inf(1), 0.1) }, "05000000 0000807f cdcccc3d"},
		{"double vector", Godot4, func(w *Writer) { w.Floats(Vector2, 1, 0.1) }, "05000100 000000000000f03f 9a9999999999b93f"},
		{"colours have no doubles", Godot4, func(w *Writer) { w.Floats(Color, 0.1, 0, 0, 1) }, "14000000 cdcccc3d 00000000 00000000 0000803f"},
		{"bytes", Godot4, func(w *Writer) { w.Ints(PackedByteArray, 1, 255) }, "1d000000 02000000 01ff0000"},
		{"data", Godot4, func(w *Writer) { w.Data([]byte{1, 255}) }, "1d000000 02000000 01ff0000"},
		{"path", Godot3, func(w *Writer) { w.NodePath("/a/b:c") }, "0f000000 02000080 01000000 01000000 01000000 61000000 01000000 62000000 01000000 63000000"},
	} {
		w := NewWriter(c.d, []byte("pre"))
		c.write(&w)
		if got := hex.EncodeToString(w.Bytes()[3:]); w.Err() != nil || got != strings.ReplaceAll(c.hex, " ", "") {
			t.Errorf("%s in %v: got %s, %v, want %s", c.name, c.d, got, w.Err(), c.hex)
		}
	}
}

// TestWriterRefuses wants an error for a value that does not fit, never another number, and no
// output behind it.
func TestWriterRefuses(t *testing.T) {
	other, err := Decode(Godot3, []byte{1, 0, 0, 0, 1, 0, 0, 0})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		d       Dialect
		write   func(w *Writer)
		message string
	}{
		{Godot2, func(w *Writer) { w.Int(math.MaxInt32 + 1) }, "godot2: 2147483648 does not fit an int of 32 bits"},
		{Godot2, func(w *Writer) { w.Int(math.MinInt32 - 1) }, "godot2: -2147483649 does not fit"},
		{Godot2, func(w *Writer) { w.Float(1e39) }, "godot2: 1e+39 does not fit a component of float"},
		{Godot3, func(w *Writer) { w.Floats(Vector2, 0, -1e39) }, "-1e+39 does not fit a component of Vector2"},
		{Godot4, func(w *Writer) { w.Floats(Color, 1e39, 0, 0, 0) }, "does not fit a component of Color"},
		{Godot4, func(w *Writer) { w.Ints(Vector2i, 0, math.MaxInt32+1) }, "2147483648 does not fit Vector2i"},
		{Godot4, func(w *Writer) { w.Ints(PackedByteArray, 256) }, "256 does not fit PackedByteArray"},
		{Godot4, func(w *Writer) { w.Ints(PackedByteArray, -1) }, "-1 does not fit PackedByteArray"},
		{Godot4, func(w *Writer) { w.Floats(Vector3, 1, 2) }, "2 components are not a Vector3"},
		{Godot4, func(w *Writer) { w.Floats(PackedVector3Array, 1, 2) }, "2 components are not a PackedVector3Array"},
		{Godot4, func(w *Writer) { w.Floats(Vector2i, 1, 2) }, "2 components are not a Vector2i"},
		{Godot3, func(w *Writer) { w.Ints(Vector2i, 1, 2) }, "godot3: there is no Vector2i"},
		{Godot4, func(w *Writer) { w.Value(other) }, "godot4: a value of godot3"},
	} {
		w := NewWriter(c.d, nil)
		c.write(&w)
		w.Nil()
		w.Int(1)
		w.Value(Value{})
		if w.Err() == nil || !strings.Contains(w.Err().Error(), c.message) || len(w.Bytes()) > 0 {
			t.Errorf("got %v and %x, want …%s…", w.Err(), w.Bytes(), c.message)
		}
	}
}
