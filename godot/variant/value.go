package variant

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A Value is one Variant. It is a view of encoded bytes, which must not change while it is in
// use; making one costs nothing, whatever its size. The zero Value is Nil.
type Value struct {
	d Dialect
	p []byte // exactly the bytes of the value
}

// Decode checks that p is one Variant of dialect d and returns it without a copy. An error is
// always an *Error.
//
// It needs at most as much memory as p has bytes, and 1 KiB.
func Decode(d Dialect, p []byte) (Value, error) { return decodeAs(d, p, missing) }

// DecodeDictionary is Decode for a Variant that has to be a Dictionary. The bytes of a
// Dictionary are not valid in another dialect.
func DecodeDictionary(d Dialect, p []byte) (Value, error) { return decodeAs(d, p, Dictionary) }

// decodeAs decodes a value of type want; missing stands for every type.
func decodeAs(d Dialect, p []byte, want Type) (Value, error) {
	v, err := decode(d, p)
	if err == nil && want != missing && v.Type() != want {
		err = &Error{Dialect: d, Reason: fmt.Sprintf("want %v, got %v", want, v.Type())}
	}
	if err != nil {
		err.Fits = fitting(d, p, want)
		return Value{}, err
	}
	return v, nil
}

func decode(d Dialect, p []byte) (Value, *Error) {
	s := scanner{d: d, p: p}
	if len(p) > SizeMax {
		s.fail(0, "%d bytes, at most %d are read", len(p), SizeMax)
		return Value{}, s.err
	}
	s.value(0)
	if s.err == nil && s.left() > 0 {
		s.fail(0, "%d bytes behind the value, which ends at offset %d", s.left(), s.off)
	}
	if s.err != nil {
		s.err.resolve(d, p)
		return Value{}, s.err
	}
	return Value{d, p}, nil
}

// fitting returns the dialect other than d in which p is a value of type want; missing stands
// for every type.
func fitting(d Dialect, p []byte, want Type) Dialect {
	if len(p) > SizeMax {
		return 0
	}
	for other := Godot4; other >= Godot2; other-- {
		s := scanner{d: other, p: p, quiet: true}
		if other == d {
			continue
		}
		if t := s.value(0); s.err == nil && s.left() == 0 && (want == missing || t == want) {
			return other
		}
	}
	return 0
}

func (v Value) header() uint32 {
	if len(v.p) == 0 {
		return 0
	}
	return word(v.p, 0)
}

// Type returns the type of v.
func (v Value) Type() Type {
	if len(v.p) == 0 {
		return Nil
	}
	t, _ := typeOf(v.d, v.header()&idMask)
	return t
}

// IsNull reports whether v is Nil or an object that is null.
func (v Value) IsNull() bool {
	switch v.Type() {
	case Nil:
		return true
	case Object:
		return v.d == Godot2 || v.ID() == 0
	}
	return false
}

// Bool reports whether v is true. v must be a bool.
func (v Value) Bool() bool { return v.Integer(0) != 0 }

// ID returns the number of an object with an id, or of a RID of Godot 4.
func (v Value) ID() uint64 { return binary.LittleEndian.Uint64(v.p[4:]) }

// Len returns the number of elements of an array or a packed array, or of pairs of a
// dictionary. It is 0 for every other type.
func (v Value) Len() int {
	switch types[v.Type()].shape {
	case shapePacked, shapeTexts:
		return int(word(v.p, 4))
	case shapeArray, shapeDictionary:
		return int(word(v.p, v.countAt()) & maskShared)
	}
	return 0
}

// Components returns how many numbers v consists of: 3 for a Vector3, 6 for a packed array of
// two of them, 0 for a type without numbers.
func (v Value) Components() int {
	row := &types[v.Type()]
	switch row.shape {
	case shapeFixed:
		return row.n
	case shapePacked:
		return row.n * v.Len()
	}
	return 0
}

// Integral reports whether the components of v are integers.
func (v Value) Integral() bool { return types[v.Type()].integral }

// component returns the bytes of component i, which must exist.
func (v Value) component(i int) []byte {
	t := v.Type()
	at, n := 4, width(t, v.header())
	if types[t].shape == shapePacked {
		at = 8
	}
	return v.p[at+i*n : at+(i+1)*n]
}

// Integer returns component i of a value with integer components.
func (v Value) Integer(i int) int64 {
	switch c := v.component(i); len(c) {
	case 1:
		return int64(c[0])
	case 4:
		return int64(int32(binary.LittleEndian.Uint32(c)))
	default:
		return int64(binary.LittleEndian.Uint64(c))
	}
}

// Real returns component i of a value with floating point components.
func (v Value) Real(i int) float64 {
	c := v.component(i)
	if len(c) == 8 {
		return math.Float64frombits(binary.LittleEndian.Uint64(c))
	}
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(c)))
}

// Bytes returns the content of a String, StringName or PackedByteArray, without a copy. A text
// ends at its first NUL.
func (v Value) Bytes() []byte {
	n := int(word(v.p, 4))
	if types[v.Type()].shape == shapeText {
		return upToNUL(v.p[8 : 8+n])
	}
	return v.p[8 : 8+n : 8+n]
}

// Text returns the text of a String, StringName or NodePath.
func (v Value) Text() string {
	if v.Type() == NodePath {
		return string(v.appendPath(nil))
	}
	return string(v.Bytes())
}

// A Cursor iterates over the elements of a container:
//
//	for c := v.Elements(); c.Next(); {
//		use(c.Key(), c.Value())
//	}
type Cursor struct {
	d          Dialect
	rest       []byte
	left       int
	keyed      bool
	key, value Value
}

// Elements returns a cursor over an Array or a Dictionary, in the encoded order. For any other
// value it is empty.
func (v Value) Elements() Cursor {
	t := v.Type()
	if t != Array && t != Dictionary {
		return Cursor{}
	}
	return Cursor{d: v.d, rest: v.p[v.countAt()+4:], left: v.Len(), keyed: t == Dictionary}
}

// Next moves to the next element and reports whether there is one.
func (c *Cursor) Next() bool {
	if c.left == 0 {
		return false
	}
	c.left--
	if c.keyed {
		c.key = c.take()
	}
	c.value = c.take()
	return true
}

func (c *Cursor) take() Value {
	v := valueAt(c.d, c.rest)
	c.rest = c.rest[len(v.p):]
	return v
}

// Len returns how many elements are left.
func (c *Cursor) Len() int { return c.left }

// Key returns the key of the pair, or Nil in an array.
func (c *Cursor) Key() Value { return c.key }

// Value returns the element, or the value of the pair.
func (c *Cursor) Value() Value { return c.value }

// countAt returns the offset of the count of a container, behind its element types.
func (v Value) countAt() int {
	s := scanner{d: v.d, p: v.p, off: 4, quiet: true}
	s.elements(0, kind(v.d, v.header(), kindShift))
	if v.Type() == Dictionary {
		s.elements(0, kind(v.d, v.header(), kindValueShift))
	}
	return s.off
}

// Strings returns copies of the texts of a PackedStringArray.
func (v Value) Strings() []string {
	if v.Type() != PackedStringArray {
		return nil
	}
	all := make([]string, 0, v.Len())
	t := texts{p: v.p, off: 8}
	for range v.Len() {
		all = append(all, string(t.next()))
	}
	return all
}

// texts iterates over consecutive texts in checked bytes.
type texts struct {
	p   []byte
	off int
}

func (t *texts) next() []byte {
	n := int(word(t.p, t.off))
	at := t.off + 4
	t.off = at + (n+3)&^3
	return upToNUL(t.p[at : at+n])
}
