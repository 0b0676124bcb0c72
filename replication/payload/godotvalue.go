package payload

import (
	"math"
	"strconv"
	"strings"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/godot/variant"
	"github.com/dnprelay/dnprelay/replication"
)

// The first table in the documentation of package variant says which Variants are accepted for
// which value types; a test compares it with this file.

// godotKind returns the kind as which fields accept a Variant.
func godotKind(t variant.Type) kind {
	switch t {
	case variant.Dictionary:
		return kindObject
	case variant.Array:
		return kindArray
	case variant.String, variant.StringName:
		return kindString
	case variant.Int, variant.Float:
		return kindNumber
	case variant.Bool:
		return kindBoolean
	case variant.Nil:
		return kindNull
	}
	return kindOther
}

// godotKey returns the name of a member: a string, or the index of a value.
func godotKey(key variant.Value) (string, *replication.Error) {
	switch t := key.Type(); t {
	case variant.String, variant.StringName:
		return key.Text(), nil
	case variant.Int:
		return strconv.FormatInt(key.Integer(0), 10), nil
	default:
		return "", badRequest("a key of a Dictionary: want String, got %v", t)
	}
}

// A godotLiteral is a Variant that is the value of a state.
type godotLiteral struct{ v variant.Value }

// AppendValue implements replication.Literal.
func (l godotLiteral) AppendValue(b []byte, t wire.ValueType) (enc []byte, null bool, err *replication.Error) {
	if l.v.IsNull() {
		return b, true, nil
	}
	enc, err = l.appendValue(b, t)
	return enc, false, err
}

func (l godotLiteral) appendValue(b []byte, t wire.ValueType) ([]byte, *replication.Error) {
	switch {
	case t.Kind() == wire.KindString:
		return l.appendText(b, t)
	case t.Kind() == wire.KindData:
		return l.appendData(b, t)
	case t.Components() > 1:
		return l.appendComponents(b, t)
	}
	return l.appendNumber(b, t)
}

func (l godotLiteral) mismatch(t wire.ValueType) *replication.Error {
	return mismatch(t, l.v.Type().String())
}

func (l godotLiteral) appendText(b []byte, t wire.ValueType) ([]byte, *replication.Error) {
	switch l.v.Type() {
	case variant.String, variant.StringName:
		return appendLong(b, t, l.v.Bytes())
	case variant.NodePath:
		return appendLong(b, t, l.v.Text())
	}
	return b, l.mismatch(t)
}

// appendNumber appends one component: a number, or digits for 64 bits.
func (l godotLiteral) appendNumber(b []byte, t wire.ValueType) ([]byte, *replication.Error) {
	switch l.v.Type() {
	case variant.Bool:
		switch {
		case t != typeUint8:
		case l.v.Bool():
			return append(b, 1), nil
		default:
			return append(b, 0), nil
		}
	case variant.Int:
		return appendInt(b, t, l.v.Integer(0))
	case variant.Float:
		return appendReal(b, t, l.v.Real(0))
	case variant.String:
		if takesDigits(t) || t.Kind() == wire.KindUint && t.Width() == 4 { // Godot 2 has no int for a uint32
			return appendDigits(b, t, l.v.Text())
		}
	}
	return b, l.mismatch(t)
}

// appendInt appends one component of t. It refuses an integer that t cannot hold.
func appendInt(b []byte, t wire.ValueType, i int64) ([]byte, *replication.Error) {
	bits := t.Width() * 8
	fits := true
	switch t.Kind() {
	case wire.KindFloat:
		return appendReal(b, t, float64(i))
	case wire.KindSint:
		fits = i<<(64-bits)>>(64-bits) == i
	case wire.KindUint:
		fits = i >= 0 && (bits == 64 || i>>bits == 0)
	}
	if !fits {
		return b, outOfRange(t, strconv.FormatInt(i, 10))
	}
	return appendUint(b, uint64(i), t.Width()), nil
}

// appendReal appends one component of t. It refuses a fraction for an integer type.
func appendReal(b []byte, t wire.ValueType, f float64) ([]byte, *replication.Error) {
	text := func() string { return strconv.FormatFloat(f, 'g', -1, 64) }
	if t.Kind() != wire.KindFloat {
		switch {
		case math.IsNaN(f) || math.IsInf(f, 0):
			return b, outOfRange(t, text())
		case f != math.Trunc(f):
			return b, replication.Errorf(replication.CodeTypeMismatch, "want %v, got %s, which has a fraction", t, text())
		case f >= 1<<63 && f < 1<<64 && t.Kind() == wire.KindUint && t.Width() == 8:
			return appendUint(b, uint64(f), 8), nil
		case f >= 1<<63 || f < -1<<63:
			return b, outOfRange(t, text())
		}
		return appendInt(b, t, int64(f))
	}
	b, ok := appendRounded(b, t, f)
	if !ok {
		return b, outOfRange(t, text())
	}
	return b, nil
}

// appendComponents appends a point, vector or quaternion.
func (l godotLiteral) appendComponents(b []byte, t wire.ValueType) ([]byte, *replication.Error) {
	n := 0
	switch l.v.Type() {
	case variant.Array:
		return l.appendArray(b, t)
	case variant.Vector2, variant.Vector3, variant.Quaternion, variant.Vector4, variant.Color, variant.Plane, variant.Rect2:
		n = l.v.Components()
	case variant.Vector2i, variant.Vector3i:
		if t.Kind() != wire.KindFloat {
			n = l.v.Components()
		}
	}
	if n != t.Components() {
		return b, l.mismatch(t)
	}
	var err *replication.Error
	for i := range n {
		if l.v.Integral() {
			b, err = appendInt(b, t, l.v.Integer(i))
		} else {
			b, err = appendReal(b, t, l.v.Real(i))
		}
		if err != nil {
			return b, inComponent(i, err)
		}
	}
	return b, nil
}

func (l godotLiteral) appendArray(b []byte, t wire.ValueType) ([]byte, *replication.Error) {
	if err := components(t, l.v.Len()); err != nil {
		return b, err
	}
	i := 0
	for c := l.v.Elements(); c.Next(); i++ {
		var err *replication.Error
		if b, err = (godotLiteral{c.Value()}).appendComponent(b, t); err != nil {
			return b, inComponent(i, err)
		}
	}
	return b, nil
}

// appendComponent appends a number in an array, where a bool is not a number.
func (l godotLiteral) appendComponent(b []byte, t wire.ValueType) ([]byte, *replication.Error) {
	if l.v.Type() == variant.Bool {
		return b, l.mismatch(t)
	}
	return l.appendNumber(b, t)
}

// appendData appends bytes, or a Variant without a value type in its encoded form.
func (l godotLiteral) appendData(b []byte, t wire.ValueType) ([]byte, *replication.Error) {
	switch l.v.Type() {
	case variant.PackedByteArray:
		return appendLong(b, t, l.v.Bytes())
	case variant.Rect2i, variant.Vector4i:
		return appendLong(b, t, l.v.Append(nil)[4:])
	case variant.Array, variant.Dictionary:
		if bad, ok := unsendable(l.v); ok {
			return b, replication.Errorf(replication.CodeTypeMismatch, "want %v, got %v with %v inside", t, l.v.Type(), bad)
		}
	case variant.AABB, variant.Basis, variant.Transform2D, variant.Transform3D, variant.Projection,
		variant.Image, variant.InputEvent,
		variant.PackedInt32Array, variant.PackedInt64Array, variant.PackedFloat32Array, variant.PackedFloat64Array,
		variant.PackedStringArray, variant.PackedVector2Array, variant.PackedVector3Array,
		variant.PackedColorArray, variant.PackedVector4Array:
	default:
		return b, l.mismatch(t)
	}
	return appendLong(b, t, l.v.Append(nil))
}

// AppendVariant appends the wire bytes of the value of type t that v stands for. null reports that v is null, which has none.
func AppendVariant(b []byte, t wire.ValueType, v variant.Value) (enc []byte, null bool, err *replication.Error) {
	return godotLiteral{v}.AppendValue(b, t)
}

// unsendable finds a value that means nothing outside of the process that made it.
func unsendable(v variant.Value) (variant.Type, bool) {
	switch t := v.Type(); t {
	case variant.Object:
		return t, !v.IsNull()
	case variant.RID, variant.Callable, variant.Signal:
		return t, true
	}
	for c := v.Elements(); c.Next(); {
		for _, x := range [...]variant.Value{c.Key(), c.Value()} {
			if t, bad := unsendable(x); bad {
				return t, true
			}
		}
	}
	return 0, false
}

// The second table in the documentation of package variant says as which Variant each value type
// is delivered; a test compares it with this file.

// WriteVariant writes a valid encoded value of type t.
func WriteVariant(w *variant.Writer, t wire.ValueType, enc []byte) {
	switch {
	case t.Kind() == wire.KindString:
		w.String(VariantText(string(enc[2:])))
	case t.Kind() == wire.KindData:
		w.Data(enc[2:])
	case t.Kind() == wire.KindFloat:
		writeReals(w, t, enc)
	default:
		writeIntegers(w, t, enc)
	}
}

// VariantText returns s in a form that a String can hold: UTF-8 without NUL and without a leading
// byte order mark.
func VariantText(s string) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	s = strings.ReplaceAll(s, "\x00", "\ufffd")
	return strings.TrimLeft(s, "\ufeff")
}

// An integer is a component of at most 64 bits, signed or unsigned.
type integer struct {
	i        int64
	unsigned bool
}

func (n integer) fits64() bool { return !n.unsigned || n.i >= 0 }

// write writes n as an int, or as digits if the dialect has no such int.
func (n integer) write(w *variant.Writer) {
	switch {
	case !n.fits64():
		w.String(strconv.FormatUint(uint64(n.i), 10))
	case !w.FitsInt(n.i):
		w.String(strconv.FormatInt(n.i, 10))
	default:
		w.Int(n.i)
	}
}

// writeFloat writes f, or its digits where Godot 2 cannot hold the number.
func writeFloat(w *variant.Writer, f float64) {
	if w.Dialect() == variant.Godot2 && !fitsFloat32(f) {
		w.String(strconv.FormatFloat(f, 'g', -1, 64))
		return
	}
	w.Float(f)
}

func fitsFloat32(f float64) bool { return math.IsInf(f, 0) || !math.IsInf(float64(float32(f)), 0) }

// componentsMax is the most components of a value.
const componentsMax = 4

func writeIntegers(w *variant.Writer, t wire.ValueType, enc []byte) {
	low, high := int64(math.MinInt32), int64(math.MaxInt32)
	if w.Dialect() != variant.Godot4 {
		low, high = -1<<24, 1<<24 // a 32 bit float holds all of these exactly
	}
	var all [componentsMax]integer
	var ints [componentsMax]int64
	var floats [componentsMax]float64
	n, width := t.Components(), t.Width()
	fit := true
	for i := range n {
		c := enc[i*width : (i+1)*width]
		if all[i] = (integer{int64(replication.Uint(c)), true}); t.Kind() == wire.KindSint {
			all[i] = integer{replication.Int(c), false}
		}
		ints[i], floats[i] = all[i].i, float64(all[i].i)
		fit = fit && all[i].fits64() && ints[i] >= low && ints[i] <= high
	}
	switch {
	case n == 1:
		all[0].write(w)
	case fit && w.Dialect() == variant.Godot4:
		w.Ints([...]variant.Type{2: variant.Vector2i, 3: variant.Vector3i}[n], ints[:n]...)
	case fit:
		w.Floats([...]variant.Type{2: variant.Vector2, 3: variant.Vector3}[n], floats[:n]...)
	default:
		m := w.Begin(variant.Array)
		for _, one := range all[:n] {
			one.write(w)
		}
		w.End(m, n)
	}
}

func writeReals(w *variant.Writer, t wire.ValueType, enc []byte) {
	var all [componentsMax]float64
	n, width := t.Components(), t.Width()
	fit := true
	for i := range n {
		all[i] = replication.Float(enc[i*width : (i+1)*width])
		fit = fit && fitsFloat32(all[i])
	}
	switch {
	case n == 1:
		writeFloat(w, all[0])
	case fit || w.Dialect() == variant.Godot4:
		w.Floats([...]variant.Type{2: variant.Vector2, 3: variant.Vector3, 4: variant.Quaternion}[n], all[:n]...)
	default:
		m := w.Begin(variant.Array)
		for _, f := range all[:n] {
			writeFloat(w, f)
		}
		w.End(m, n)
	}
}
