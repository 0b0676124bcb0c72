package variant

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A Writer appends Variants of one dialect. It never truncates: the first value that does not
// fit becomes the Writer's error, and nothing is written from then on.
type Writer struct {
	d   Dialect
	b   []byte
	err error
}

// NewWriter returns a Writer that appends to b.
func NewWriter(d Dialect, b []byte) Writer { return Writer{d: d, b: b} }

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
	if w.err != nil {
		return false
	}
	return t.In(w.d) || w.fail("there is no %v", t)
}

func (w *Writer) sink() sink { return sink{b: w.b} }

func (w *Writer) header(s *sink, t Type, flags uint32) { s.word(uint32(t.id(w.d)) | flags) }

// Nil writes null.
func (w *Writer) Nil() {
	if w.err == nil {
		w.b = append(w.b, 0, 0, 0, 0)
	}
}

// Bool writes a bool.
func (w *Writer) Bool(b bool) { w.Ints(Bool, int64(boolWord(b))) }

// Int writes an int, with 64 bits if it needs them. Godot 2 has no int of 64 bits.
func (w *Writer) Int(i int64) {
	if !w.FitsInt(i) {
		w.fail("%d does not fit an int of 32 bits", i)
	}
	if w.err != nil {
		return
	}
	s := w.sink()
	s.integer(w.d, i)
	w.b = s.b
}

// FitsInt reports whether the dialect has an int with this value.
func (w *Writer) FitsInt(i int64) bool { return w.d > Godot2 || int64(int32(i)) == i }

// Float writes a float, with 64 bits if it needs them. For Godot 2 it rounds to 32 bits.
func (w *Writer) Float(f float64) {
	if w.d == Godot2 {
		w.Floats(Float, f)
		return
	}
	if w.err != nil {
		return
	}
	s := w.sink()
	s.float(w.d, f)
	w.b = s.b
}

// String writes a String.
func (w *Writer) String(text string) {
	if !w.has(String) {
		return
	}
	s := w.sink()
	w.header(&s, String, 0)
	s.word(uint32(len(text)))
	s.b = append(s.b, text...)
	s.zeros(-len(text) & 3)
	w.b = s.b
}

// Data writes a PackedByteArray.
func (w *Writer) Data(p []byte) {
	if !w.has(PackedByteArray) {
		return
	}
	s := w.sink()
	w.header(&s, PackedByteArray, 0)
	s.text(p, 0)
	w.b = s.b
}

// Strings writes a PackedStringArray.
func (w *Writer) Strings(all ...string) {
	if !w.has(PackedStringArray) {
		return
	}
	s := w.sink()
	w.header(&s, PackedStringArray, 0)
	s.word(uint32(len(all)))
	for _, text := range all {
		s.text([]byte(text), 1)
	}
	w.b = s.b
}

// NodePath writes the path in text, such as "/home/Level:position:x".
func (w *Writer) NodePath(text string) {
	if !w.has(NodePath) {
		return
	}
	s := w.sink()
	w.header(&s, NodePath, 0)
	s.pathOf([]byte(text))
	w.b = s.b
}

// Value writes v in its canonical form. v must have the same dialect.
func (w *Writer) Value(v Value) {
	if v.d != w.d && len(v.p) > 0 {
		w.fail("a value of %v", v.d)
	}
	if w.err == nil {
		w.b = v.Append(w.b)
	}
}

// Ints writes a type with integer components. A packed array may have any number of them.
func (w *Writer) Ints(t Type, c ...int64) {
	if !w.has(t) || !w.shaped(t, len(c), true) {
		return
	}
	row := &types[t]
	s := w.sink()
	w.begin(&s, t, len(c), 0)
	for _, i := range c {
		bits := row.width * 8
		if fits := i<<(64-bits)>>(64-bits) == i && bits > 8 || bits == 8 && i == i&0xff; !fits {
			w.fail("%d does not fit %v", i, t)
			return
		}
		s.raw(binary.LittleEndian.AppendUint64(nil, uint64(i))[:row.width])
	}
	s.zeros((len(w.b) - len(s.b)) & 3)
	w.b = s.b
}

// Floats writes a type with floating point components. For Godot 4 it uses 64 bits if a
// component needs them and the type has them; otherwise it rounds to 32 bits.
func (w *Writer) Floats(t Type, c ...float64) {
	if !w.has(t) || !w.shaped(t, len(c), false) {
		return
	}
	row := &types[t]
	wide := row.width == 8
	var flags uint32
	if row.wide != never && w.d >= row.wide && !exact(c) {
		wide, flags = true, flagWide
	}
	s := w.sink()
	w.begin(&s, t, len(c), flags)
	for _, f := range c {
		if wide {
			s.long(math.Float64bits(f))
			continue
		}
		if !math.IsInf(f, 0) && math.IsInf(float64(float32(f)), 0) {
			w.fail("%v does not fit a component of %v", f, t)
			return
		}
		s.word(math.Float32bits(float32(f)))
	}
	w.b = s.b
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

func (w *Writer) shaped(t Type, n int, integral bool) bool {
	row := &types[t]
	switch {
	case row.integral == integral && row.shape == shapeFixed && n == row.n:
		return true
	case row.integral == integral && row.shape == shapePacked && n%row.n == 0:
		return true
	}
	return w.fail("%d components are not a %v", n, t)
}

func (w *Writer) begin(s *sink, t Type, components int, flags uint32) {
	w.header(s, t, flags)
	if types[t].shape == shapePacked {
		s.word(uint32(components / types[t].n))
	}
}

// A Mark is the offset of the count of an open container.
type Mark int

// Begin begins an Array or a Dictionary. The caller writes its elements, in a Dictionary key
// and value in turn, and then calls End.
func (w *Writer) Begin(t Type) Mark {
	if t != Array && t != Dictionary {
		panic("variant: Begin of a type without elements")
	}
	if w.err != nil {
		return 0
	}
	s := w.sink()
	w.header(&s, t, 0)
	s.word(0)
	w.b = s.b
	return Mark(len(w.b) - 4)
}

// End ends a container with the number of its elements or pairs.
func (w *Writer) End(m Mark, n int) {
	if w.err == nil {
		binary.LittleEndian.PutUint32(w.b[m:], uint32(n))
	}
}
