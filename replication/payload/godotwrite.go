package payload

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/godot/variant"
	"github.com/x448/float16"
)

// The second table of package variant says what each value type is delivered as; a
// test compares it with this file.

// writeValue writes an encoded value of type t, which must be one.
func writeValue(w *variant.Writer, t wire.ValueType, enc []byte) {
	switch {
	case t.Kind() == wire.KindString:
		w.String(godotText(string(enc[2:])))
	case t.Kind() == wire.KindData:
		w.Data(enc[2:])
	case t.Kind() == wire.KindFloat:
		writeReals(w, t, enc)
	default:
		writeIntegers(w, t, enc)
	}
}

// godotText returns s without what a String cannot hold: it is UTF-8, ends at a
// NUL, and loses a byte order mark.
func godotText(s string) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	s = strings.ReplaceAll(s, "\x00", "\ufffd")
	return strings.TrimLeft(s, "\ufeff")
}

// An integer is a component: of 64 bits, signed or not.
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

func writeUint(w *variant.Writer, u uint64) { integer{int64(u), true}.write(w) }

// writeFloat writes f, or its digits where Godot 2 has no such number.
func writeFloat(w *variant.Writer, f float64) {
	if w.Dialect() == variant.Godot2 && !fitsFloat32(f) {
		w.String(strconv.FormatFloat(f, 'g', -1, 64))
		return
	}
	w.Float(f)
}

func fitsFloat32(f float64) bool { return math.IsInf(f, 0) || !math.IsInf(float64(float32(f)), 0) }

// componentsMax is how many a value has at most.
const componentsMax = 4

func writeIntegers(w *variant.Writer, t wire.ValueType, enc []byte) {
	var all [componentsMax]integer
	n, width := t.Components(), t.Width()
	for i := range n {
		u := uintOf(enc[i*width : (i+1)*width])
		spare := 64 - 8*width
		if all[i] = (integer{int64(u), true}); t.Kind() == wire.KindSint {
			all[i] = integer{int64(u<<spare) >> spare, false}
		}
	}
	switch {
	case n == 1:
		all[0].write(w)
	case w.Dialect() == variant.Godot4 && within32(all[:n]):
		var c [componentsMax]int64
		for i := range n {
			c[i] = all[i].i
		}
		w.Ints([...]variant.Type{2: variant.Vector2i, 3: variant.Vector3i}[n], c[:n]...)
	case w.Dialect() != variant.Godot4 && exact32(all[:n]):
		var c [componentsMax]float64
		for i := range n {
			c[i] = float64(all[i].i)
		}
		w.Floats([...]variant.Type{2: variant.Vector2, 3: variant.Vector3}[n], c[:n]...)
	default:
		m := w.Begin(variant.Array)
		for _, one := range all[:n] {
			one.write(w)
		}
		w.End(m, n)
	}
}

func within32(all []integer) bool {
	for _, n := range all {
		if !n.fits64() || int64(int32(n.i)) != n.i {
			return false
		}
	}
	return true
}

// exact32 reports whether a float of 32 bits counts that far in steps of one.
func exact32(all []integer) bool {
	const most = 1 << 24
	for _, n := range all {
		if !n.fits64() || n.i > most || n.i < -most {
			return false
		}
	}
	return true
}

func writeReals(w *variant.Writer, t wire.ValueType, enc []byte) {
	var all [componentsMax]float64
	n, width := t.Components(), t.Width()
	fit := true
	for i := range n {
		all[i] = realOf(enc[i*width : (i+1)*width])
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

// uintOf returns the bits of a component.
func uintOf(enc []byte) (u uint64) {
	for i, c := range enc {
		u |= uint64(c) << (8 * i)
	}
	return u
}

func realOf(enc []byte) float64 {
	switch len(enc) {
	case 2:
		return float64(float16.Frombits(binary.LittleEndian.Uint16(enc)).Float32())
	case 4:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(enc)))
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(enc))
}
