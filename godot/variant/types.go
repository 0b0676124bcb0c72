package variant

import (
	"fmt"
	"strconv"
)

// A Dialect is the encoding of one generation of Godot. The same header means different types
// in each, and the bytes of a bare value do not tell the dialect. [DecodeDictionary] is the
// exception: no two dialects share the header of a Dictionary.
type Dialect uint8

const (
	Godot2 Dialect = 2 + iota // the published document; Godot 1.1 to 2.1
	Godot3
	Godot4
)

// dialects is the number of dialects.
const dialects = 3

// ParseDialect returns the dialect of a major version of Godot: "2", "3" or "4".
func ParseDialect(version string) (d Dialect, ok bool) {
	n, err := strconv.ParseUint(version, 10, 8)
	d = Dialect(n)
	return d, err == nil && d.Valid() && version == d.Version()
}

// Valid reports whether d is one of the three dialects.
func (d Dialect) Valid() bool { return d >= Godot2 && d <= Godot4 }

// Version returns the major version of Godot in digits.
func (d Dialect) Version() string { return strconv.Itoa(int(d)) }

// String returns "godot2", "godot3" or "godot4".
func (d Dialect) String() string { return fmt.Sprintf("godot%d", uint8(d)) }

func (d Dialect) index() int { return int(d - Godot2) }

// A Type is the type of a Variant. Its numbers belong to this package: each dialect has headers
// of its own and lacks some types.
type Type uint8

const (
	Nil Type = iota
	Bool
	Int
	Float
	String
	Vector2
	Vector2i
	Rect2
	Rect2i
	Vector3
	Vector3i
	Transform2D // Matrix32 in Godot 2
	Vector4
	Vector4i
	Plane
	Quaternion
	AABB
	Basis       // Matrix3 in Godot 2; rows, not columns
	Transform3D // a Basis and an origin
	Projection
	Color
	Image
	StringName
	NodePath
	RID
	Object
	InputEvent
	Callable
	Signal
	Dictionary
	Array
	PackedByteArray
	PackedInt32Array
	PackedInt64Array
	PackedFloat32Array
	PackedFloat64Array
	PackedStringArray
	PackedVector2Array
	PackedVector3Array
	PackedColorArray
	PackedVector4Array
)

// Types is the number of types; 0 to Types-1 are valid.
const Types = len(types)

// A shape is the layout of the bytes behind a header.
type shape uint8

const (
	shapeEmpty      shape = iota // nothing
	shapeFixed                   // n components
	shapeText                    // uint32 length, UTF-8, padding
	shapePacked                  // uint32 count, count × n components, padding
	shapeTexts                   // uint32 count, then texts, each with a NUL that counts
	shapeImage                   // format, mipmaps, width, height, uint32 length, bytes, padding
	shapePath                    // as in nodepath.go
	shapeRID                     // nothing; uint64 in Godot 4
	shapeObject                  // nothing in Godot 2; uint64 if the flag is set
	shapeEvent                   // type, device, uint32 length of all of it, body
	shapeSignal                  // text, uint64
	shapeArray                   // [type], uint32 count, values
	shapeDictionary              // [type of keys], [of values], uint32 count, pairs
)

const never Dialect = 0

// types defines the encoding: the headers, the shape and the components of each type. Only
// types with a shape of their own have code.
var types = [...]struct {
	name     string
	ids      [dialects]int8 // header in each dialect; -1 where there is no such type
	shape    shape
	n        int     // components of a value, or of an element of a packed array
	width    int     // bytes of a component
	integral bool    // components are integers
	wide     Dialect // the first dialect in which bit 16 of the header doubles the width
}{
	Nil:                {name: "Nil", ids: [...]int8{0, 0, 0}},
	Bool:               {"bool", [...]int8{1, 1, 1}, shapeFixed, 1, 4, true, never},
	Int:                {"int", [...]int8{2, 2, 2}, shapeFixed, 1, 4, true, Godot3},
	Float:              {"float", [...]int8{3, 3, 3}, shapeFixed, 1, 4, false, Godot3},
	String:             {name: "String", ids: [...]int8{4, 4, 4}, shape: shapeText},
	Vector2:            {"Vector2", [...]int8{5, 5, 5}, shapeFixed, 2, 4, false, Godot4},
	Vector2i:           {"Vector2i", [...]int8{-1, -1, 6}, shapeFixed, 2, 4, true, never},
	Rect2:              {"Rect2", [...]int8{6, 6, 7}, shapeFixed, 4, 4, false, Godot4},
	Rect2i:             {"Rect2i", [...]int8{-1, -1, 8}, shapeFixed, 4, 4, true, never},
	Vector3:            {"Vector3", [...]int8{7, 7, 9}, shapeFixed, 3, 4, false, Godot4},
	Vector3i:           {"Vector3i", [...]int8{-1, -1, 10}, shapeFixed, 3, 4, true, never},
	Transform2D:        {"Transform2D", [...]int8{8, 8, 11}, shapeFixed, 6, 4, false, Godot4},
	Vector4:            {"Vector4", [...]int8{-1, -1, 12}, shapeFixed, 4, 4, false, Godot4},
	Vector4i:           {"Vector4i", [...]int8{-1, -1, 13}, shapeFixed, 4, 4, true, never},
	Plane:              {"Plane", [...]int8{9, 9, 14}, shapeFixed, 4, 4, false, Godot4},
	Quaternion:         {"Quaternion", [...]int8{10, 10, 15}, shapeFixed, 4, 4, false, Godot4},
	AABB:               {"AABB", [...]int8{11, 11, 16}, shapeFixed, 6, 4, false, Godot4},
	Basis:              {"Basis", [...]int8{12, 12, 17}, shapeFixed, 9, 4, false, Godot4},
	Transform3D:        {"Transform3D", [...]int8{13, 13, 18}, shapeFixed, 12, 4, false, Godot4},
	Projection:         {"Projection", [...]int8{-1, -1, 19}, shapeFixed, 16, 4, false, Godot4},
	Color:              {"Color", [...]int8{14, 14, 20}, shapeFixed, 4, 4, false, never},
	Image:              {name: "Image", ids: [...]int8{15, -1, -1}, shape: shapeImage},
	StringName:         {name: "StringName", ids: [...]int8{-1, -1, 21}, shape: shapeText},
	NodePath:           {name: "NodePath", ids: [...]int8{16, 15, 22}, shape: shapePath},
	RID:                {name: "RID", ids: [...]int8{17, 16, 23}, shape: shapeRID},
	Object:             {name: "Object", ids: [...]int8{18, 17, 24}, shape: shapeObject, wide: Godot3}, // the flag: only its id follows
	InputEvent:         {name: "InputEvent", ids: [...]int8{19, -1, -1}, shape: shapeEvent},
	Callable:           {name: "Callable", ids: [...]int8{-1, -1, 25}},
	Signal:             {name: "Signal", ids: [...]int8{-1, -1, 26}, shape: shapeSignal},
	Dictionary:         {name: "Dictionary", ids: [...]int8{20, 18, 27}, shape: shapeDictionary, wide: Godot4}, // bits 16 to 19: typed
	Array:              {name: "Array", ids: [...]int8{21, 19, 28}, shape: shapeArray, wide: Godot4},           // bits 16 and 17: typed
	PackedByteArray:    {"PackedByteArray", [...]int8{22, 20, 29}, shapePacked, 1, 1, true, never},
	PackedInt32Array:   {"PackedInt32Array", [...]int8{23, 21, 30}, shapePacked, 1, 4, true, never},
	PackedInt64Array:   {"PackedInt64Array", [...]int8{-1, -1, 31}, shapePacked, 1, 8, true, never},
	PackedFloat32Array: {"PackedFloat32Array", [...]int8{24, 22, 32}, shapePacked, 1, 4, false, never},
	PackedFloat64Array: {"PackedFloat64Array", [...]int8{-1, -1, 33}, shapePacked, 1, 8, false, never},
	PackedStringArray:  {name: "PackedStringArray", ids: [...]int8{25, 23, 34}, shape: shapeTexts},
	PackedVector2Array: {"PackedVector2Array", [...]int8{26, 24, 35}, shapePacked, 2, 4, false, Godot4},
	PackedVector3Array: {"PackedVector3Array", [...]int8{27, 25, 36}, shapePacked, 3, 4, false, Godot4},
	PackedColorArray:   {"PackedColorArray", [...]int8{28, 26, 37}, shapePacked, 4, 4, false, never},
	PackedVector4Array: {"PackedVector4Array", [...]int8{-1, -1, 38}, shapePacked, 4, 4, false, Godot4},
}

// String returns the name of t in Godot 4, or in the dialect that has it.
func (t Type) String() string {
	if int(t) >= Types {
		return "Type?"
	}
	return types[t].name
}

// In reports whether dialect d has the type.
func (t Type) In(d Dialect) bool { return t.id(d) >= 0 }

func (t Type) id(d Dialect) int { return int(types[t].ids[d.index()]) }

// idsMax is above the largest header of all dialects.
const idsMax = 39

// byID finds the type of a header; missing means that the dialect has no such type.
var byID = index()

const missing Type = 0xff

func index() (all [dialects][idsMax]Type) {
	for d := range all {
		for id := range all[d] {
			all[d][id] = missing
		}
		for t := range types {
			if id := types[t].ids[d]; id >= 0 {
				all[d][id] = Type(t)
			}
		}
	}
	return all
}

// typeOf returns the type with this id in dialect d.
func typeOf(d Dialect, id uint32) (t Type, ok bool) {
	if id >= idsMax {
		return 0, false
	}
	t = byID[d.index()][id]
	return t, t != missing
}

// Bits of a header above the id, in Godot 3 and 4. The other bits are unused.
const (
	idMask   = 0xff
	flagWide = 1 << 16 // 64 bit components; an object's id instead of the object

	// Element types of a typed container: two bits each.
	kindMask       = 3
	kindShift      = 16 // of an array's elements, of a dictionary's keys
	kindValueShift = 18 // of a dictionary's values

	kindAny     = 0
	kindBuiltin = 1 // uint32 id of a type
	kindClass   = 2 // text
	kindScript  = 3 // text
)
