// Package message reads and writes the content of messages in the file format of the Drag[en]gine, in which
// games of that engine write what they send each other: a sequence of values without names or types, so that
// sender and receiver have to know the order.
//
//	data, err := message.Append(nil, message.Value{Type: message.Byte, Data: []byte{3}})
//	values, err := message.Parse(data, message.Byte)
//
// A value is encoded as the value of a network state that has the same components, see [Type.ValueType].
//
// The format has 20 types, listed with [Type]. Everything is little endian, and nothing is aligned. Releases of
// the engine since 2024 can also write numbers of variable length and longer strings; the protocol's document
// does not have them, and neither has this package.
//
// The package knows nothing of DNP: a message is opaque to edges, and travels reliably or not.
package message

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// SizeMax is the most bytes of a message, which is what edges take as one.
const SizeMax = 1 << 20

// Errors of messages. They are static values, because hostile input must not cost an allocation.
var (
	ErrTruncated = errors.New("dnp/message: the message ends inside a value")
	ErrTrailing  = errors.New("dnp/message: the message has more than these values")
	ErrTooLong   = errors.New("dnp/message: the text is longer than its type can say")
	ErrTooLarge  = errors.New("dnp/message: the message is larger than 1 MiB")
	ErrType      = errors.New("dnp/message: unknown type, or a value of another one")
)

// A Type is a type of the file format.
type Type uint8

// The types, and what they take.
const (
	Char       Type = iota // signed integer of 8 bits
	Byte                   // unsigned integer of 8 bits
	Short                  // signed integer of 16 bits
	UShort                 // unsigned integer of 16 bits
	Int                    // signed integer of 32 bits
	UInt                   // unsigned integer of 32 bits
	Long                   // signed integer of 64 bits
	ULong                  // unsigned integer of 64 bits
	Float                  // 32 bits
	Double                 // 64 bits
	String8                // length uint8, and as many bytes of UTF-8
	String16               // length uint16, and as many bytes of UTF-8
	Vector                 // x, y, z of 32 bits
	Vector2                // x, y of 32 bits
	Quaternion             // x, y, z, w of 32 bits
	Point                  // x, y, signed integers of 32 bits
	Point3                 // x, y, z, signed integers of 32 bits
	DVector                // x, y, z of 64 bits
	Color                  // red, green, blue, alpha of 32 bits
	Color3                 // red, green, blue of 32 bits
)

// types has the name of each type in lower case, and the value type of network states that has the same
// components. Only the length of a String8 differs.
var types = [...]struct{ name, value string }{
	Char: {"char", "sint8"}, Byte: {"byte", "uint8"}, Short: {"short", "sint16"}, UShort: {"ushort", "uint16"},
	Int: {"int", "sint32"}, UInt: {"uint", "uint32"}, Long: {"long", "sint64"}, ULong: {"ulong", "uint64"},
	Float: {"float", "float32"}, Double: {"double", "float64"}, String8: {"string8", "string"}, String16: {"string16", "string"},
	Vector: {"vector", "vector3f32"}, Vector2: {"vector2", "vector2f32"}, Quaternion: {"quaternion", "quaternionf32"},
	Point: {"point", "point2s32"}, Point3: {"point3", "point3s32"}, DVector: {"dvector", "vector3f64"},
	Color: {"color", "quaternionf32"}, Color3: {"color3", "vector3f32"},
}

// Types is the number of types; 0 to Types-1 are valid.
const Types = len(types)

// ParseType returns the type with this name, such as "string8".
func ParseType(name string) (t Type, ok bool) {
	for t.Valid() && types[t].name != name {
		t++
	}
	return t, t.Valid()
}

// Valid reports whether t is one of the types.
func (t Type) Valid() bool { return int(t) < Types }

// String returns the name of t in lower case.
func (t Type) String() string {
	if !t.Valid() {
		return "type?"
	}
	return types[t].name
}

// ValueType returns the value type of network states with the same components. t must be valid.
func (t Type) ValueType() wire.ValueType {
	v, ok := wire.ParseValueType(types[t].value)
	if !ok {
		panic("dnp/message: the table names a value type that does not exist: " + types[t].value)
	}
	return v
}

// A Value is one value of a message, encoded as a value of its ValueType.
type Value struct {
	Type Type
	Data []byte
}

// Parse reads a message of exactly these types. The values alias p, except those of type String8.
func Parse(p []byte, types ...Type) ([]Value, error) {
	values := make([]Value, 0, min(len(types), len(p)))
	for _, t := range types {
		v, rest, err := cut(p, t)
		if err != nil {
			return nil, err
		}
		values, p = append(values, v), rest
	}
	if len(p) > 0 {
		return nil, ErrTrailing
	}
	return values, nil
}

// cut reads a value at the start of p, and returns what follows it.
func cut(p []byte, t Type) (v Value, rest []byte, err error) {
	size := 0
	switch {
	case !t.Valid():
		return v, nil, ErrType
	case t == String8 && len(p) >= 1:
		size = 1 + int(p[0])
	case t == String16 && len(p) >= 2:
		size = 2 + int(binary.LittleEndian.Uint16(p))
	case t == String8 || t == String16:
		return v, nil, ErrTruncated
	default:
		size = t.ValueType().Size()
	}
	if size > len(p) {
		return v, nil, ErrTruncated
	}
	data := p[:size:size]
	if t == String8 {
		data = append([]byte{data[0], 0}, data[1:]...)
	}
	return Value{t, data}, p[size:], nil
}

// Append appends a value to a message.
func Append(b []byte, v Value) ([]byte, error) {
	switch {
	case !v.Type.Valid() || !wire.CheckValue(v.Type.ValueType(), v.Data):
		return b, ErrType
	case v.Type == String8 && len(v.Data)-2 > math.MaxUint8:
		return b, ErrTooLong
	case v.Type == String8:
		b = append(append(b, v.Data[0]), v.Data[2:]...)
	default:
		b = append(b, v.Data...)
	}
	if len(b) > SizeMax {
		return b, ErrTooLarge
	}
	return b, nil
}
