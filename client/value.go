package client

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/x448/float16"
)

// A Value is a copy of one value of a state. The zero Value is not Valid: the state has no such value.
// Methods for which a Value has no answer return zero, so that a program survives a game that changed
// its states.
type Value struct {
	valid bool
	typ   wire.ValueType
	fixed [32]byte // of a type of fixed size
	text  string   // of a string or data
}

func newValue(t wire.ValueType, encoded []byte) Value {
	v := Value{valid: true, typ: t}
	if t.Variable() {
		v.text = string(encoded[2:])
	} else {
		copy(v.fixed[:], encoded)
	}
	return v
}

// NewValue returns the value with these wire bytes. It reports false if they are no value of the type.
func NewValue(t wire.ValueType, encoded []byte) (Value, bool) {
	if !t.Valid() || !wire.CheckValue(t, encoded) {
		return Value{}, false
	}
	return newValue(t, encoded), true
}

// Valid reports whether the state has the value.
func (v Value) Valid() bool { return v.valid }

// Type returns the type of the value.
func (v Value) Type() wire.ValueType { return v.typ }

// Len returns the number of components: 1 of a scalar, 2 to 4 of points, vectors and quaternions, 0 of
// a string and data.
func (v Value) Len() int {
	if !v.valid || v.typ.Variable() {
		return 0
	}
	return v.typ.Components()
}

// Float returns the number, or the first component.
func (v Value) Float() float64 { return v.Component(0) }

// Component returns a component of a number, point, vector or quaternion: x, y, z and w.
func (v Value) Component(i int) float64 {
	if i < 0 || i >= v.Len() {
		return 0
	}
	switch v.typ.Kind() {
	case wire.KindSint:
		return float64(v.sint(i))
	case wire.KindUint:
		return float64(v.bits(i))
	}
	return v.float(i)
}

// Floats returns all components.
func (v Value) Floats() []float64 {
	list := make([]float64, v.Len())
	for i := range list {
		list[i] = v.Component(i)
	}
	return list
}

// Int returns the number, or the first component, without its fraction. Integers of 64 bits keep all
// their digits.
func (v Value) Int() int64 {
	switch {
	case v.Len() == 0:
		return 0
	case v.typ.Kind() == wire.KindSint:
		return v.sint(0)
	case v.typ.Kind() == wire.KindUint:
		return int64(v.bits(0))
	}
	return int64(v.float(0))
}

// Uint is Int for numbers that are not negative.
func (v Value) Uint() uint64 {
	if v.Len() > 0 && v.typ.Kind() == wire.KindUint {
		return v.bits(0)
	}
	return uint64(v.Int())
}

// Bytes returns a copy of data, or of the bytes of a string.
func (v Value) Bytes() []byte { return []byte(v.text) }

// String returns a string as it is, and any other value as text: "93.5", "[1 2 3]", data in hex.
func (v Value) String() string {
	switch {
	case !v.valid:
		return "<no value>"
	case v.typ == wire.TypeString:
		return v.text
	case v.typ == wire.TypeData:
		return fmt.Sprintf("%x", v.text)
	}
	parts := make([]string, v.Len())
	for i := range parts {
		parts[i] = v.component(i)
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return "[" + strings.Join(parts, " ") + "]"
}

// appendFloats appends the components of an encoded value of a type of fixed size. It is the fast form of Value.Component.
func appendFloats(list []float64, t wire.ValueType, p []byte) []float64 {
	if t.Kind() == wire.KindFloat && t.Width() == 4 { // what games move things with
		for ; len(p) >= 4; p = p[4:] {
			list = append(list, float64(math.Float32frombits(binary.LittleEndian.Uint32(p))))
		}
		return list
	}
	v := newValue(t, p)
	for i := range t.Components() {
		list = append(list, v.Component(i))
	}
	return list
}

func (v Value) component(i int) string {
	switch v.typ.Kind() {
	case wire.KindSint:
		return strconv.FormatInt(v.sint(i), 10)
	case wire.KindUint:
		return strconv.FormatUint(v.bits(i), 10)
	}
	return strconv.FormatFloat(v.float(i), 'g', -1, min(8*max(v.typ.Width(), 4), 64))
}

// bits returns the bytes of a component.
func (v Value) bits(i int) uint64 {
	var p [8]byte
	copy(p[:v.typ.Width()], v.fixed[i*v.typ.Width():])
	return binary.LittleEndian.Uint64(p[:])
}

func (v Value) sint(i int) int64 {
	unused := 64 - 8*v.typ.Width()
	return int64(v.bits(i)<<unused) >> unused
}

func (v Value) float(i int) float64 {
	switch bits := v.bits(i); v.typ.Width() {
	case 2:
		return float64(float16.Frombits(uint16(bits)).Float32())
	case 4:
		return float64(math.Float32frombits(uint32(bits)))
	default:
		return math.Float64frombits(bits)
	}
}

// Append appends the wire bytes, or nothing if the value is not Valid.
func (v Value) Append(b []byte) []byte {
	if !v.valid {
		return b
	}
	if v.typ.Variable() {
		return append(binary.LittleEndian.AppendUint16(b, uint16(len(v.text))), v.text...)
	}
	return append(b, v.fixed[:v.typ.Size()]...)
}

// variableMax is the most bytes of a string or data value (INTERFACES.md, Limits).
const variableMax = 16_000

var errRange = errors.New("out of range")

// encode returns what a program set as wire bytes of a type.
func encode(t wire.ValueType, v any) ([]byte, error) {
	b := make([]byte, 0, 32)
	switch x := v.(type) {
	case Value:
		if !x.valid || x.typ != t {
			return nil, fmt.Errorf("want %v, got a Value of another type", t)
		}
		return x.Append(b), nil
	case string:
		if t != wire.TypeString {
			return nil, fmt.Errorf("want %v, got a string", t)
		}
		return encodeText(b, x)
	case []byte:
		if t == wire.TypeData {
			return encodeText(b, string(x))
		}
	}
	if t.Variable() {
		return nil, fmt.Errorf("want %v, got %T", t, v)
	}
	return encodeNumbers(b, t, reflect.ValueOf(v))
}

func encodeText(b []byte, text string) ([]byte, error) {
	if len(text) > variableMax {
		return nil, fmt.Errorf("%d bytes, at most %d", len(text), variableMax)
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(text)))
	return append(b, text...), nil
}

// encodeNumbers encodes a number, or a slice or array of numbers.
func encodeNumbers(b []byte, t wire.ValueType, v reflect.Value) ([]byte, error) {
	if v.Kind() != reflect.Slice && v.Kind() != reflect.Array {
		if t.Components() != 1 {
			return nil, fmt.Errorf("want %d numbers for %v", t.Components(), t)
		}
		return encodeNumber(b, t, v)
	}
	if v.Len() != t.Components() {
		return nil, fmt.Errorf("want %d numbers for %v, got %d", t.Components(), t, v.Len())
	}
	var err error
	for i := 0; i < v.Len() && err == nil; i++ {
		b, err = encodeNumber(b, t, v.Index(i))
	}
	return b, err
}

func encodeNumber(b []byte, t wire.ValueType, v reflect.Value) ([]byte, error) {
	bits, ok := uint64(0), false
	switch {
	case v.IsValid() && v.CanInt():
		bits, ok = fromInt(t, v.Int())
	case v.IsValid() && v.CanUint():
		bits, ok = fromUint(t, v.Uint())
	case v.IsValid() && v.CanFloat():
		bits, ok = fromFloat(t, v.Float())
	default:
		return nil, fmt.Errorf("want a number for %v", t)
	}
	if !ok {
		return nil, fmt.Errorf("%v for %v: %w", v, t, errRange)
	}
	return binary.LittleEndian.AppendUint64(b, bits)[:len(b)+t.Width()], nil
}

func fromInt(t wire.ValueType, n int64) (bits uint64, ok bool) {
	size := 8 * t.Width()
	switch t.Kind() {
	case wire.KindSint:
		return uint64(n), n>>(size-1) == 0 || n>>(size-1) == -1
	case wire.KindUint:
		return uint64(n), n >= 0 && (size == 64 || n>>size == 0)
	}
	return fromFloat(t, float64(n))
}

func fromUint(t wire.ValueType, n uint64) (bits uint64, ok bool) {
	size := 8 * t.Width()
	switch t.Kind() {
	case wire.KindSint:
		return n, n>>(size-1) == 0
	case wire.KindUint:
		return n, size == 64 || n>>size == 0
	}
	return fromFloat(t, float64(n))
}

// fromFloat converts a float. An integer has no fraction, and no float becomes infinite.
func fromFloat(t wire.ValueType, f float64) (bits uint64, ok bool) {
	switch {
	case t.Kind() == wire.KindUint && f == math.Trunc(f) && f >= 0 && f < 1<<64:
		return fromUint(t, uint64(f))
	case t.Kind() == wire.KindSint && f == math.Trunc(f) && f >= -1<<63 && f < 1<<63:
		return fromInt(t, int64(f))
	case t.Kind() != wire.KindFloat:
		return 0, false
	}
	infinite := math.IsInf(f, 0)
	switch t.Width() {
	case 2:
		half := float16.Fromfloat32(float32(f))
		return uint64(half.Bits()), half.IsInf(0) == infinite
	case 4:
		return uint64(math.Float32bits(float32(f))), math.IsInf(float64(float32(f)), 0) == infinite
	}
	return math.Float64bits(f), true
}
