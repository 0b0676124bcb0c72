package wire

import (
	"errors"
)

// ErrValueType reports a value type byte outside the table.
var ErrValueType = errors.New("dnp/wire: unknown value type")

// A ValueType names the encoding of one value of a network state.
type ValueType uint8

// The value types that code has to name. The others are only in the table.
const (
	TypeString ValueType = 11
	TypeData   ValueType = 12
)

// A Kind is the kind of one component of a value.
type Kind uint8

const (
	KindSint Kind = iota + 1
	KindUint
	KindFloat
	KindString
	KindData
)

// Sizes that are not a byte count.
const (
	sizeInvalid  = 0
	sizeVariable = -1 // a uint16 length, then the bytes
)

// valueTypes is all that the relay knows about values: it stores and forwards them
// encoded, so a name, a shape and a size are enough. The document gives points of three
// 32- or 64-bit integers 3 bytes; they have 12 and 24.
var valueTypes = [...]struct {
	name       string
	kind       Kind
	components int
	width      int // bytes of one component, sizeVariable for string and data
}{
	0: {"sint8", KindSint, 1, 1}, 1: {"uint8", KindUint, 1, 1},
	2: {"sint16", KindSint, 1, 2}, 3: {"uint16", KindUint, 1, 2},
	4: {"sint32", KindSint, 1, 4}, 5: {"uint32", KindUint, 1, 4},
	6: {"sint64", KindSint, 1, 8}, 7: {"uint64", KindUint, 1, 8},
	8: {"float16", KindFloat, 1, 2}, 9: {"float32", KindFloat, 1, 4}, 10: {"float64", KindFloat, 1, 8},
	11: {"string", KindString, 1, sizeVariable}, 12: {"data", KindData, 1, sizeVariable},
	13: {"point2s8", KindSint, 2, 1}, 14: {"point2u8", KindUint, 2, 1},
	15: {"point2s16", KindSint, 2, 2}, 16: {"point2u16", KindUint, 2, 2},
	17: {"point2s32", KindSint, 2, 4}, 18: {"point2u32", KindUint, 2, 4},
	19: {"point2s64", KindSint, 2, 8}, 20: {"point2u64", KindUint, 2, 8},
	21: {"point3s8", KindSint, 3, 1}, 22: {"point3u8", KindUint, 3, 1},
	23: {"point3s16", KindSint, 3, 2}, 24: {"point3u16", KindUint, 3, 2},
	25: {"point3s32", KindSint, 3, 4}, 26: {"point3u32", KindUint, 3, 4},
	27: {"point3s64", KindSint, 3, 8}, 28: {"point3u64", KindUint, 3, 8},
	29: {"vector2f16", KindFloat, 2, 2}, 30: {"vector2f32", KindFloat, 2, 4}, 31: {"vector2f64", KindFloat, 2, 8},
	32: {"vector3f16", KindFloat, 3, 2}, 33: {"vector3f32", KindFloat, 3, 4}, 34: {"vector3f64", KindFloat, 3, 8},
	35: {"quaternionf16", KindFloat, 4, 2}, 36: {"quaternionf32", KindFloat, 4, 4}, 37: {"quaternionf64", KindFloat, 4, 8},
}

// ValueTypes is the number of value types; codes 0 to ValueTypes-1 are valid.
const ValueTypes = len(valueTypes)

// ParseValueType returns the value type with this name, such as "vector3f32".
func ParseValueType(name string) (t ValueType, ok bool) {
	for t < ValueType(ValueTypes) && valueTypes[t].name != name {
		t++
	}
	return t, t.Valid()
}

// Valid reports whether t is in the protocol's table.
func (t ValueType) Valid() bool { return int(t) < len(valueTypes) }

// Size returns the encoded size of t in bytes, -1 if each value carries its own
// length, and 0 if t is not valid.
func (t ValueType) Size() int {
	if !t.Valid() {
		return sizeInvalid
	}
	v := &valueTypes[t]
	if v.width == sizeVariable {
		return sizeVariable
	}
	return v.components * v.width
}

// Variable reports whether each value of t carries its own length.
func (t ValueType) Variable() bool { return t == TypeString || t == TypeData }

// Kind returns what the components of t are. t must be valid.
func (t ValueType) Kind() Kind { return valueTypes[t].kind }

// Components returns how many components a value of t has: 1 for a scalar, 2 to
// 4 for points, vectors and quaternions. t must be valid.
func (t ValueType) Components() int { return valueTypes[t].components }

// Component returns the type of one component of a value of t: float32 for vector3f32,
// t itself for a type with one component. t must be valid.
func (t ValueType) Component() ValueType {
	of := &valueTypes[t]
	for c := range ValueTypes {
		if v := &valueTypes[c]; v.components == 1 && v.kind == of.kind && v.width == of.width {
			return ValueType(c)
		}
	}
	panic("dnp/wire: no value type for the components of a value type")
}

// Width returns the bytes of one component, or -1 for string and data. t must
// be valid.
func (t ValueType) Width() int { return valueTypes[t].width }

// String returns the protocol's name for t in lower case.
func (t ValueType) String() string {
	if !t.Valid() {
		return "valuetype?"
	}
	return valueTypes[t].name
}

var zeros [32]byte

// emptyData is a data value of one zero byte. The libraries would accept an empty one,
// but the engine's reader throws on it.
var emptyData = []byte{1, 0, 0}

// Zero returns the encoding that stands for "no value": zero bytes, an empty
// string, one zero byte of data. It is shared and must not be changed. t must
// be valid.
func (t ValueType) Zero() []byte {
	switch t {
	case TypeString:
		return zeros[:2:2]
	case TypeData:
		return emptyData
	}
	n := t.Size()
	return zeros[:n:n]
}

// Sendable returns an encoded value of type t, or one zero byte instead of data without bytes
// (dnp/PROTOCOL.md, rule no-empty). t must be valid.
func (t ValueType) Sendable(enc []byte) []byte {
	if t == TypeData && len(enc) == 2 {
		return emptyData
	}
	return enc
}

// CheckValue reports whether p is exactly one encoded value of type t.
func CheckValue(t ValueType, p []byte) bool {
	r := NewReader(p)
	r.Value(t)
	return r.Err() == nil && len(r.Rest()) == 0
}

// Values is a list of valid typed values:
//
//	{type uint8, data} × n
//
// It aliases the datagram.
type Values struct {
	n int
	p []byte
}

// ParseValues parses a uint16 count and that many typed values.
func ParseValues(p []byte) (Values, error) {
	r := NewReader(p)
	v := readValues(&r)
	return v, r.Err()
}

// Len returns how many values there are.
func (v Values) Len() int { return v.n }

// Next splits the first value from the rest. It must not be called on an empty
// list.
func (v Values) Next() (t ValueType, value []byte, rest Values) {
	t = ValueType(v.p[0])
	r := NewReader(v.p[1:])
	value = r.Value(t)
	return t, value, Values{n: v.n - 1, p: r.Rest()}
}

func readValues(r *Reader) Values {
	v := Values{n: int(r.Uint16())}
	start := r.Rest()
	for range v.n {
		r.Value(ValueType(r.Uint8()))
		if r.Err() != nil { // a count beyond the datagram must not cost 65,535 turns
			return Values{}
		}
	}
	v.p = start[:len(start)-len(r.Rest())]
	return v
}
