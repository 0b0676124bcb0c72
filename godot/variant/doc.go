// Package variant reads and writes Godot's binary Variants, the bytes of
// var2bytes, put_var and store_var.
//
//	v, err := variant.DecodeDictionary(variant.Godot3, body)
//	for c := v.Elements(); c.Next(); {
//		fmt.Println(c.Key().Text(), c.Value().Type())
//	}
//
//	w := variant.NewWriter(variant.Godot3, nil)
//	m := w.Begin(variant.Array)
//	w.Floats(variant.Vector2, 1, 2)
//	w.End(m, 1)
//
// A [Value] is a view of bytes that have been checked as a whole. Nothing is
// decoded before somebody asks, so that what a value costs in memory does not
// depend on what it says: a tree of 64 KiB of nulls would take a megabyte. Counts
// are compared with the bytes that are left before anything is believed, and
// containers are at most 64 deep.
//
// # Dialects
//
// Each generation of Godot numbers its types differently and tells nothing about
// itself, so a dialect is always given: [Godot2] is the published document, [Godot3]
// and [Godot4] (up to 4.4, with typed arrays and dictionaries) are what those
// engines write. One table in types.go is the whole codec; what has a shape of its
// own has a function.
//
// What is read is a little stricter than in the engines, and what is written is what
// they write:
//
//   - Padding is zeros when written and ignored when read: engines leave
//     memory in it. It has to be there, so that a length is a multiple of four.
//   - Nothing may follow a value.
//   - Whole objects are refused always: to decode one is to run it. Ids of objects,
//     RIDs and signals pass, as numbers without a meaning.
//   - A key that a dictionary gives twice is refused. Engines keep the last one.
//   - A flag for 64 bits on a type without that form is refused, because it comes
//     from another dialect. Other meaningless bits of a header are ignored.
//   - Texts are UTF-8 without a byte order mark, and end at a NUL.
//   - The elements of a typed container have its type.
//   - Input events and images of Godot 2 are opaque.
//   - A node path that is one text, which only Godot 2 reads, is written in parts.
//
// # Values of network states
//
// This is how publishers of states use Variants; replication/payload does it, and
// its tests read these tables. A Variant on the left is accepted for the value types
// on the right:
//
//	Nil                                      | any that is nullable
//	bool                                     | uint8
//	int                                      | sint* uint* float*
//	float                                    | float* sint* uint*
//	String                                   | string uint32 sint64 uint64
//	StringName NodePath                      | string
//	Vector2                                  | vector2* point2*
//	Vector2i                                 | point2*
//	Vector3                                  | vector3* point3*
//	Vector3i                                 | point3*
//	Quaternion Vector4 Color Plane Rect2     | quaternion*
//	Array                                    | vector* point* quaternion* data
//	PackedByteArray Rect2i Vector4i          | data
//	AABB Basis Transform2D Transform3D       | data
//	Projection Image InputEvent Dictionary   | data
//	PackedInt32Array PackedInt64Array        | data
//	PackedFloat32Array PackedFloat64Array    | data
//	PackedStringArray PackedVector2Array     | data
//	PackedVector3Array PackedColorArray      | data
//	PackedVector4Array                       | data
//	Object RID Callable Signal               | none
//
// A number that does not fit is refused, and so is a fraction for an integer, NaN and
// infinity; floats are rounded to the type, half to even. A String for an
// integer is decimal digits. Color, Plane and Rect2 become r g b a, normal and
// distance, position and size. As data, a PackedByteArray is its bytes, Rect2i and
// Vector4i are four int32, little endian, and everything else is the Variant itself
// in the dialect of its publisher, in canonical form and without objects inside.
//
// A value of a type on the left is delivered as the first Variant on the right that
// can hold it:
//
//	sint* uint*   | int String
//	float*        | float String
//	string        | String
//	data          | PackedByteArray
//	point2*       | Vector2i Array
//	point3*       | Vector3i Array
//	vector2*      | Vector2 Array
//	vector3*      | Vector3 Array
//	quaternion*   | Quaternion Array
//
// Godot 2 has ints of 32 bits, the others of 64; what is beyond is a String of
// digits. Godot 2 and 3 have no vectors of integers: points are Vector2 and Vector3 as
// long as their floats hold the integers. Godot 4 gets vectors of 64 bit floats where
// 32 would lose something, Godot 2 and 3 rounded ones, and an Array if they do not
// fit at all. A String has U+FFFD where the bytes are not UTF-8 or NUL, and no byte
// order mark.
package variant
