package variant

import (
	"encoding/binary"
	"math"
)

// Append appends v in the canonical form that its dialect's Godot writes: the shortest form of
// numbers, zeros as padding, unused bits cleared, NIL for a null object. Decoding and appending
// the result changes nothing.
//
// The result is at most twice as long as the encoded bytes of v, because an empty text of a
// PackedStringArray may lack its NUL; a node path of the old form may become six times as long.
func (v Value) Append(b []byte) []byte {
	s := sink{b: b}
	s.value(v)
	return s.b
}

// sum returns a hash that is equal for values with equal canonical bytes.
func (v Value) sum() uint64 {
	s := sink{summing: true, sum: fnvOffset}
	s.value(v)
	return s.sum
}

// FNV-1a with 64 bits.
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// A sink receives canonical bytes, and either appends or hashes them.
type sink struct {
	b       []byte
	sum     uint64
	summing bool
}

func (s *sink) raw(p []byte) {
	if !s.summing {
		s.b = append(s.b, p...)
		return
	}
	for _, c := range p {
		s.sum = (s.sum ^ uint64(c)) * fnvPrime
	}
}

func (s *sink) word(u uint32) {
	var p [4]byte
	binary.LittleEndian.PutUint32(p[:], u)
	s.raw(p[:])
}

func (s *sink) long(u uint64) {
	s.word(uint32(u))
	s.word(uint32(u >> 32))
}

func (s *sink) zeros(n int) {
	var p [4]byte
	s.raw(p[:n])
}

// text writes the length, the text, the given number of NULs, which count, and padding.
func (s *sink) text(p []byte, nuls int) {
	n := len(p) + nuls
	s.word(uint32(n))
	s.raw(p)
	s.zeros(nuls)
	s.zeros(-n & 3)
}

func (s *sink) value(v Value) {
	t := v.Type()
	if len(v.p) == 0 || t == Object && v.IsNull() {
		s.word(0)
		return
	}
	id := uint32(t.id(v.d))
	row := &types[t]
	switch row.shape {
	case shapeFixed:
		s.fixed(v, t, id)
	case shapeText:
		s.word(id)
		s.text(v.Bytes(), 0)
	case shapePacked:
		s.word(id | v.header()&flagWide)
		s.word(uint32(v.Len()))
		content := v.p[8 : 8+v.Components()*width(t, v.header())]
		s.raw(content)
		s.zeros(-len(content) & 3)
	case shapeTexts:
		s.word(id)
		s.word(uint32(v.Len()))
		list := texts{p: v.p, off: 8}
		for range v.Len() {
			s.text(list.next(), 1)
		}
	case shapeImage:
		s.raw(v.p[:24])
		n := int(word(v.p, 20))
		s.raw(v.p[24 : 24+n])
		s.zeros(-n & 3)
	case shapePath:
		s.word(id)
		v.writePath(s)
	case shapeSignal:
		s.word(id)
		list := texts{p: v.p, off: 4}
		s.text(list.next(), 0)
		s.raw(v.p[list.off:])
	case shapeArray, shapeDictionary:
		s.container(v, t, id)
	case shapeObject:
		s.word(id | flagWide)
		s.raw(v.p[4:])
	default: // no content, or opaque content
		s.word(id)
		s.raw(v.p[4:])
	}
}

// fixed writes components. Godot 3 and 4 write int and float with 32 bits if that is exact. A
// NaN is not equal to itself and therefore has 64.
func (s *sink) fixed(v Value, t Type, id uint32) {
	switch {
	case t == Bool:
		s.word(id)
		s.word(uint32(boolWord(v.Bool())))
	case t == Int:
		s.integer(v.d, v.Integer(0))
	case t == Float && v.d > Godot2:
		s.float(v.d, v.Real(0))
	default:
		s.word(id | v.header()&flagWide)
		s.raw(v.p[4:])
	}
}

func boolWord(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// integer writes an int, which fits 32 bits if d is Godot2.
func (s *sink) integer(d Dialect, i int64) {
	s.number(Int.id(d), int64(int32(i)) == i, uint32(i), uint64(i))
}

// float writes a float of Godot 3 or 4.
func (s *sink) float(d Dialect, f float64) {
	s.number(Float.id(d), float64(float32(f)) == f, math.Float32bits(float32(f)), math.Float64bits(f))
}

// number writes the shorter form if it is exact.
func (s *sink) number(id int, exact bool, short uint32, long uint64) {
	if exact {
		s.word(uint32(id))
		s.word(short)
		return
	}
	s.word(uint32(id) | flagWide)
	s.long(long)
}

// container writes an array or a dictionary with its element types. Only Godot 2 says whether
// it was shared.
func (s *sink) container(v Value, t Type, id uint32) {
	const bitsOfArray, bitsOfDictionary = kindMask << kindShift, kindMask<<kindShift | kindMask<<kindValueShift
	if v.d == Godot4 {
		bits := uint32(bitsOfArray)
		if t == Dictionary {
			bits = bitsOfDictionary
		}
		id |= v.header() & bits
	}
	s.word(id)
	at := 4
	at = s.elementType(v, at, kind(v.d, id, kindShift))
	if t == Dictionary {
		at = s.elementType(v, at, kind(v.d, id, kindValueShift))
	}
	count := word(v.p, at)
	if v.d != Godot2 {
		count &= maskShared
	}
	s.word(count)
	for c := v.Elements(); c.Next(); {
		if t == Dictionary {
			s.value(c.Key())
		}
		s.value(c.Value())
	}
}

// elementType writes the type record at this offset and returns the offset behind it.
func (s *sink) elementType(v Value, at int, kind uint32) int {
	switch kind {
	case kindBuiltin:
		s.raw(v.p[at : at+4])
		return at + 4
	case kindClass, kindScript:
		list := texts{p: v.p, off: at}
		s.text(list.next(), 0)
		return list.off
	}
	return at
}
