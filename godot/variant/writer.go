package variant

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A Writer appends Variants of one dialect. It never truncates: the first value that does not
// fit becomes the Writer's error, and nothing is written from then on.
type Writer struct {
	sink
	d   Dialect
	err error
}

// NewWriter returns a Writer that appends to b.
func NewWriter(d Dialect, b []byte) Writer { return Writer{sink: sink{b: b}, d: d} }

// Dialect returns the dialect of w.
func (w *Writer) Dialect() Dialect { return w.d }

// Bytes returns the bytes given to NewWriter and everything written behind them.
func (w *Writer) Bytes() []byte { return w.b }

// Err returns the first error: a type that the dialect does not have, or a number that does not
// fit.
func (w *Writer) Err() error { return w.err }

func (w *Writer) fail(format string, args ...any) bool {
	if w.err == nil {
		w.err = fmt.Errorf("%v: "+format, append([]any{w.d}, args...)...)
	}
	return false
}

// has reports whether w can write a value of type t.
func (w *Writer) has(t Type) bool {
	return w.err == nil && (t.In(w.d) || w.fail("there is no %v", t))
}

// begin writes the header of a value of type t, and reports whether that is possible.
func (w *Writer) begin(t Type, flags uint32) bool {
	if !w.has(t) {
		return false
	}
	w.word(uint32(t.id(w.d)) | flags)
	return true
}

// Nil writes null.
func (w *Writer) Nil() {
	if w.err == nil {
		w.word(0)
	}
}

// Bool writes a bool.
func (w *Writer) Bool(b bool) { w.Ints(Bool, int64(boolWord(b))) }

// Int writes an int, with 64 bits if it needs them. Godot 2 has no int of 64 bits.
func (w *Writer) Int(i int64) {
	if !w.FitsInt(i) {
		w.fail("%d does not fit an int of 32 bits", i)
	}
	if w.err == nil {
		w.integer(w.d, i)
	}
}

// FitsInt reports whether the dialect has an int with this value.
func (w *Writer) FitsInt(i int64) bool { return w.d > Godot2 || int64(int32(i)) == i }

// Float writes a float, with 64 bits if it needs them. For Godot 2 it rounds to 32 bits.
func (w *Writer) Float(f float64) {
	if w.d == Godot2 {
		w.Floats(Float, f)
		return
	}
	if w.err == nil {
		w.float(w.d, f)
	}
}

// String writes a String.
func (w *Writer) String(text string) {
	if w.begin(String, 0) {
		w.word(uint32(len(text)))
		w.b = append(w.b, text...)
		w.zeros(-len(text) & 3)
	}
}

// Data writes a PackedByteArray.
func (w *Writer) Data(p []byte) {
	if w.begin(PackedByteArray, 0) {
		w.text(p, 0)
	}
}

// Strings writes a PackedStringArray.
func (w *Writer) Strings(all ...string) {
	if w.begin(PackedStringArray, 0) {
		w.word(uint32(len(all)))
		for _, text := range all {
			w.text([]byte(text), 1)
		}
	}
}

// NodePath writes the path in text, such as "/home/Level:position:x".
func (w *Writer) NodePath(text string) {
	if w.begin(NodePath, 0) {
		w.pathOf([]byte(text))
	}
}

// Value writes v in its canonical form. v must have the same dialect.
func (w *Writer) Value(v Value) {
	if v.d != w.d && len(v.p) > 0 {
		w.fail("a value of %v", v.d)
	}
	if w.err == nil {
		w.value(v)
	}
}

// Ints writes a type with integer components. A packed array may have any number of them.
func (w *Writer) Ints(t Type, c ...int64) {
	start := len(w.b)
	if !w.beginNumbers(t, len(c), true, 0) {
		return
	}
	size := types[t].width
	bits := size * 8
	for _, i := range c {
		if fits := i<<(64-bits)>>(64-bits) == i && bits > 8 || bits == 8 && i == i&0xff; !fits {
			w.b = w.b[:start]
			w.fail("%d does not fit %v", i, t)
			return
		}
		w.raw(binary.LittleEndian.AppendUint64(nil, uint64(i))[:size])
	}
	w.zeros((start - len(w.b)) & 3)
}

// Floats writes a type with floating point components. For Godot 4 it uses 64 bits if a
// component needs them and the type has them; otherwise it rounds to 32 bits.
func (w *Writer) Floats(t Type, c ...float64) {
	row := &types[t]
	wide := row.width == 8
	var flags uint32
	if row.wide != never && w.d >= row.wide && !exact(c) {
		wide, flags = true, flagWide
	}
	start := len(w.b)
	if !w.beginNumbers(t, len(c), false, flags) {
		return
	}
	for _, f := range c {
		if wide {
			w.long(math.Float64bits(f))
			continue
		}
		if !math.IsInf(f, 0) && math.IsInf(float64(float32(f)), 0) {
			w.b = w.b[:start]
			w.fail("%v does not fit a component of %v", f, t)
			return
		}
		w.word(math.Float32bits(float32(f)))
	}
}

// exact reports whether 32 bit floats hold each of c.
func exact(c []float64) bool {
	for _, f := range c {
		if float64(float32(f)) != f && !math.IsNaN(f) {
			return false
		}
	}
	return true
}

// beginNumbers writes the header and the count of a value with so many components.
func (w *Writer) beginNumbers(t Type, components int, integral bool, flags uint32) bool {
	if !w.has(t) {
		return false
	}
	row := &types[t]
	packed := row.shape == shapePacked && components%row.n == 0
	if row.integral != integral || !packed && (row.shape != shapeFixed || components != row.n) {
		return w.fail("%d components are not a %v", components, t)
	}
	w.begin(t, flags)
	if packed {
		w.word(uint32(components / row.n))
	}
	return true
}

// A Mark is the offset of the count of an open container.
type Mark int

// Begin begins an Array or a Dictionary. The caller writes its elements, in a Dictionary key
// and value in turn, and then calls End.
func (w *Writer) Begin(t Type) Mark {
	if t != Array && t != Dictionary {
		panic("variant: Begin of a type without elements")
	}
	if !w.begin(t, 0) {
		return 0
	}
	w.word(0)
	return Mark(len(w.b) - 4)
}

// End ends a container with the number of its elements or pairs.
func (w *Writer) End(m Mark, n int) {
	if w.err == nil {
		binary.LittleEndian.PutUint32(w.b[m:], uint32(n))
	}
}
